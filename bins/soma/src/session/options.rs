//! What can be typed about a sandbox and the command in it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use api_v1::network::Network;
use clap::Args;
use domain::{Bytes, Lifetime, Limits, MilliCpus, SandboxSpec, parse_environment};
use guest_proto::client::StartOptions;

use super::network::NetworkOptions;
use super::plan::Plan;
use crate::failure::Failure;

/// How much longer than its command a sandbox may live, in case the guest does not end it.
const BACKSTOP: Duration = Duration::from_secs(5);

/// What a fresh sandbox may be given.
#[derive(Debug, Args)]
pub(crate) struct LimitOptions {
    /// Memory of everything in the sandbox, such as 512m or 2g [default: 2g].
    #[arg(long, short, value_name = "AMOUNT")]
    memory: Option<Bytes>,
    /// Processors, such as 2 or 0.5 [default: 2].
    #[arg(long, short, value_name = "NUMBER")]
    cpus: Option<MilliCpus>,
    /// Processes and threads at one time [default: 512].
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u32>,
    /// What can be written to the sandbox's disk, such as 1g [default: 10g].
    #[arg(long, value_name = "AMOUNT")]
    disk: Option<Bytes>,
    /// Files and folders on the sandbox's disk [default: one for every 16 KiB of it].
    #[arg(long, value_name = "NUMBER")]
    inodes: Option<u64>,
    /// Descriptors that one process may have open [default: 16384].
    #[arg(long, value_name = "NUMBER")]
    open_files: Option<u32>,
    /// What to make the sandbox from: a template that was imported [default: this machine's own
    /// system].
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Run also where this host cannot hold the sandbox to all of these limits.
    #[arg(long, env = "SOMA_ALLOW_UNENFORCED", hide_env_values = true)]
    allow_unenforced: bool,
    /// Nobody in the sandbox becomes its root with sudo.
    #[arg(long)]
    no_sudo: bool,
    #[command(flatten)]
    network: NetworkOptions,
}

/// The options that every command with a fresh sandbox has.
#[derive(Debug, Args)]
pub(crate) struct SandboxOptions {
    #[command(flatten)]
    limits: LimitOptions,
    /// A variable for the command; can be repeated.
    // Taken as it is and read later: clap would repeat a wrong one, and it may be a secret.
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// The folder in the sandbox to run in [default: the user's home].
    #[arg(long, short, value_name = "FOLDER")]
    workdir: Option<String>,
    /// Who runs it: user or root [default: user].
    #[arg(long, short, value_name = "NAME")]
    user: Option<String>,
}

impl LimitOptions {
    /// What it may reach; `None` when nothing was said about that.
    pub(crate) fn network(&self) -> Result<Option<Network>, Failure> {
        self.network.policy()
    }

    /// Refuses what only a fresh sandbox can be given.
    pub(crate) fn refuse_what_is_set_at_first(&self) -> Result<(), Failure> {
        let set = [
            ("--memory", self.memory.is_some()),
            ("--cpus", self.cpus.is_some()),
            ("--pids", self.pids.is_some()),
            ("--disk", self.disk.is_some()),
            ("--inodes", self.inodes.is_some()),
            ("--open-files", self.open_files.is_some()),
            ("--no-sudo", self.no_sudo),
            ("--template", self.template.is_some()),
        ];
        if let Some(name) = self.network.typed() {
            let message = format!(
                "{name} is for a sandbox that is made, and the one that was named is there"
            );
            return Err(Failure::usage(message).hint("`soma net` changes what it may reach"));
        }
        match set.iter().find(|(_, typed)| *typed) {
            Some((name, _)) => Err(Failure::usage(format!(
                "{name} is set when a sandbox is made, and the one that was named is there"
            ))),
            None => Ok(()),
        }
    }

    /// A sandbox with these limits, which may run so long.
    pub(crate) fn spec(&self, timeout: Option<Duration>) -> Result<SandboxSpec, Failure> {
        let named = |name: &String| match name.as_str() {
            "default" => Ok(None),
            name => name.parse().map(Some),
        };
        let template = self.template.as_ref().map(named).transpose();
        let template = template
            .map_err(|error: domain::InvalidTemplateName| Failure::usage(error.to_string()))?;
        Ok(SandboxSpec {
            template: template.flatten(),
            limits: self.limits(timeout)?,
            allow_unenforced: self.allow_unenforced,
            sudo: !self.no_sudo,
            ..SandboxSpec::default()
        })
    }

    fn limits(&self, timeout: Option<Duration>) -> Result<Limits, Failure> {
        let usual = Limits::default();
        let limits = Limits {
            memory: self.memory.unwrap_or(usual.memory),
            cpus: self.cpus.unwrap_or(usual.cpus),
            pids: self.pids.unwrap_or(usual.pids),
            disk: self.disk.unwrap_or(usual.disk),
            inodes: self.inodes,
            open_files: self.open_files,
            timeout,
        };
        limits.check().map_err(|error| Failure::usage(error.to_string()))
    }
}

impl SandboxOptions {
    /// Refuses what only a fresh sandbox can be given.
    pub(crate) fn refuse_what_is_set_at_first(&self) -> Result<(), Failure> {
        self.limits.refuse_what_is_set_at_first()
    }

    /// A plan for this program, which may take so long. Refuses what makes no sense, before
    /// anything is made.
    pub(crate) fn plan(
        self,
        cmd: String,
        args: Vec<String>,
        timeout: Option<Duration>,
    ) -> Result<Plan, Failure> {
        let mut spec = self.limits.spec(timeout)?;
        spec.limits.timeout = timeout.map(|timeout| timeout.saturating_add(BACKSTOP));
        spec.lifetime = Lifetime::WithCaller;
        // Variables go with the command and not with the sandbox: they may be secrets, and
        // what belongs to a sandbox is written to disk.
        let start = StartOptions {
            cmd,
            args,
            env: environment(self.env)?,
            cwd: self.workdir,
            user: self.user,
            timeout,
            ..StartOptions::default()
        };
        Ok(Plan { spec, network: self.limits.network()?, start, language: None, is_fresh: true })
    }
}

pub(crate) fn environment(typed: Vec<OsString>) -> Result<BTreeMap<String, String>, Failure> {
    let read = |text: OsString| {
        let text = text.into_string().map_err(|_| Failure::usage("a variable is not UTF-8"))?;
        parse_environment(&text).map_err(|error| Failure::usage(error.to_string()))
    };
    typed.into_iter().map(read).collect()
}

/// The text of something typed, which is called `what` when it is none.
pub(crate) fn utf8(text: OsString, what: &str) -> Result<String, Failure> {
    text.into_string().map_err(|_| Failure::usage(format!("{what} is not UTF-8")))
}
