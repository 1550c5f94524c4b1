//! What can be asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{
    Asked, Bytes, Labels, Lease, Lifetime, Limits, MilliCpus, NetworkPolicy, OnExit, OnTimeout,
    Origin, Owner, SandboxId, SandboxName, SandboxSpec, TemplateName, Timestamp, Token,
    check_labels, check_variables,
};

use crate::{ControlError, NetworkWish, build};

/// The wish for a sandbox.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Debug, Clone)]
pub struct Wish {
    /// What to call it.
    pub name: Option<SandboxName>,
    /// What to make it from; the default template when unset.
    pub template: Option<String>,
    /// The snapshot to make it from instead.
    pub origin: Option<Origin>,
    /// What it may use.
    pub limits: Limits,
    /// Variables that every command in it sees.
    pub environment: BTreeMap<String, String>,
    /// What to hang on it.
    pub labels: Labels,
    /// How long it is kept.
    pub lifetime: Lifetime,
    /// What becomes of it when its time is over.
    pub on_timeout: OnTimeout,
    /// What becomes of it when the daemon is told to end.
    pub on_exit: OnExit,
    /// Whether any request resumes it while it is paused.
    pub auto_resume: bool,
    /// How the same request is known again when its answer was lost.
    pub asked: Option<Asked>,
    /// Whether requests to its own address must show its token.
    pub secure: bool,
    /// Make it also where the host cannot hold it to some of its limits.
    pub allow_unenforced: bool,
    /// Whether its user may become its root.
    pub sudo: bool,
    /// What it may reach; what the operator chose when unset.
    pub network: Option<NetworkWish>,
}

impl Default for Wish {
    fn default() -> Self {
        let usual = SandboxSpec::default();
        Self {
            name: None,
            template: None,
            origin: None,
            limits: usual.limits,
            environment: usual.environment,
            labels: Labels::new(),
            lifetime: usual.lifetime,
            on_timeout: OnTimeout::default(),
            on_exit: OnExit::default(),
            auto_resume: true,
            asked: None,
            secure: true,
            allow_unenforced: usual.allow_unenforced,
            sudo: usual.sudo,
            network: None,
        }
    }
}

/// The names under which the default template is known: our own, and those that the clients of
/// others send when nobody chose one.
const DEFAULT_TEMPLATES: [&str; 4] =
    ["default", "base", "system/debian:bookworm", "system/default"];

impl Wish {
    /// The record of the sandbox that this asks for, or why there can be none.
    pub(crate) fn into_lease(
        self,
        id: SandboxId,
        token: Token,
        owner: Owner,
        now: Timestamp,
    ) -> Result<Lease, ControlError> {
        check_labels(&self.labels)?;
        check_variables(&self.environment)?;
        let names = self.environment.keys();
        if let Some(name) = names.clone().find(|name| !is_variable(name)) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            let reason = format!("`{shown}` is no name for a variable");
            return Err(ControlError::Invalid { reason });
        }
        if self.environment.values().any(|value| value.contains('\0')) {
            let reason = "a variable's value has a NUL in it, which no process can have";
            return Err(ControlError::Invalid { reason: reason.to_owned() });
        }
        let imported = self.imported_template()?;
        let template = self.template.unwrap_or_else(|| "default".to_owned());
        let spec = SandboxSpec {
            limits: self.limits.check()?,
            environment: self.environment,
            lifetime: self.lifetime,
            allow_unenforced: self.allow_unenforced,
            sudo: self.sudo,
            token: Some(token),
            template: imported,
            origin: self.origin,
            // Whoever makes a plan of this finds out which sandboxes are meant.
            network: NetworkPolicy::default(),
        };
        let mut lease = Lease::new(id, spec, now);
        lease.name = self.name;
        lease.owner = owner;
        lease.template = template;
        lease.labels = self.labels;
        lease.on_timeout = self.on_timeout;
        lease.on_exit = self.on_exit;
        lease.auto_resume = self.auto_resume;
        lease.secure = self.secure;
        Ok(lease)
    }
}

impl Wish {
    /// The name of the template that somebody imported, unless the wish is for the host's own
    /// system.
    pub(crate) fn imported_template(&self) -> Result<Option<TemplateName>, ControlError> {
        let Some(template) = self.template.as_deref() else { return Ok(None) };
        if DEFAULT_TEMPLATES.contains(&template) {
            return Ok(None);
        }
        build::resolve(template).parse().map(Some).map_err(|_| {
            let shown: String = template.chars().filter(|c| !c.is_control()).take(64).collect();
            let reason = format!(
                "there is no template `{shown}`: this soma has `default`, which is this machine's \
                 own system, and those that `soma template ls` lists"
            );
            ControlError::NoTemplate { reason }
        })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// What of a sandbox's limits is to be another; what is unset stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitChange {
    /// Memory.
    pub memory: Option<Bytes>,
    /// Processor time.
    pub cpus: Option<MilliCpus>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// What can be written to its disk.
    pub disk: Option<Bytes>,
    /// Files and folders on its disk.
    pub inodes: Option<u64>,
    /// Descriptors of one process.
    pub open_files: Option<u32>,
}

impl LimitChange {
    pub(crate) fn applied_to(self, limits: &Limits) -> Limits {
        Limits {
            memory: self.memory.unwrap_or(limits.memory),
            cpus: self.cpus.unwrap_or(limits.cpus),
            pids: self.pids.unwrap_or(limits.pids),
            disk: self.disk.unwrap_or(limits.disk),
            inodes: self.inodes.or(limits.inodes),
            open_files: self.open_files.or(limits.open_files),
            timeout: limits.timeout,
        }
    }
}

/// How a sandbox's time is set anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It is over so long from now.
    Set(Duration),
    /// It is over so long from now, unless it is over later already.
    AtLeast(Duration),
}
