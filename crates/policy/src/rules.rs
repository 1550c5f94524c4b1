//! The rules, and the decisions that follow from them.

use domain::{Bytes, Lease, Limits, MilliCpus, NetworkPolicy, Owner, SandboxSpec, TemplateName};

use crate::{Caller, Who};

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Make a sandbox.
    Create {
        /// What it is to be.
        spec: &'a SandboxSpec,
        /// How many there are already, of all owners.
        existing: usize,
    },
    /// See that a sandbox is there, and what it is doing.
    See(&'a Lease),
    /// Do something inside it: run commands, read and write files.
    Use(&'a Lease),
    /// Change its life: its time, its end, its record.
    Manage(&'a Lease),
    /// Change what it may use.
    Limit(&'a Lease, &'a Limits),
    /// Change what it may reach.
    ChangeNetwork(&'a Lease, &'a NetworkPolicy),
    /// See what it tried to reach.
    SeeNetwork(&'a Lease),
    /// Let a sandbox of this owner reach that one.
    Grant(&'a Owner, &'a Lease),
    /// See and put in order what is on this machine, whoever's it is.
    Oversee,
    /// See which templates there are.
    SeeTemplates,
    /// Import a template under a name that nobody has.
    ImportTemplate,
    /// Replace or remove a template. Whose it is, where that can be read.
    ChangeTemplate(&'a TemplateName, Option<&'a Owner>),
}

/// What an operator allows on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Sandboxes at one time, running or not.
    pub sandboxes: usize,
    /// The most memory of one sandbox.
    pub memory: Bytes,
    /// The most processors of one sandbox.
    pub cpus: MilliCpus,
    /// The most disk of one sandbox.
    pub disk: Bytes,
    /// Whether a sandbox may be made that the host cannot hold to all of its limits.
    pub unenforced: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            sandboxes: 1000,
            memory: Bytes::gibibytes(64),
            cpus: MilliCpus(64_000),
            disk: Bytes::gibibytes(100),
            unenforced: true,
        }
    }
}

/// A rule, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A sandbox is its owner's, and so is a template.
    Owner,
    /// There are so many sandboxes at the most.
    Sandboxes,
    /// One sandbox has so much at the most.
    Size,
    /// Limits hold, or the sandbox is not made.
    Enforced,
    /// Whoever has only a sandbox's token uses that sandbox and nothing else.
    Token,
}

impl Rule {
    /// The rule's name, as it is shown and configured.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Sandboxes => "max_sandboxes",
            Self::Size => "max_size",
            Self::Enforced => "allow_unenforced",
            Self::Token => "token",
        }
    }
}

/// A refusal, with the rule that it follows from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (rule `{}`)", rule.name())]
pub struct Denied {
    /// Which rule.
    pub rule: Rule,
    /// What it says of this case, and what to do.
    pub reason: String,
}

/// Something that was decided on and may be done. Only [`Rules::decide`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permitted<T> {
    subject: T,
}

impl<T> Permitted<T> {
    /// What may be done, or to what.
    pub fn get(&self) -> &T {
        &self.subject
    }

    /// The same, without the decision.
    pub fn into_inner(self) -> T {
        self.subject
    }
}

impl Rules {
    /// Decides whether the caller may do this; `subject` is what they do it with or to.
    pub fn decide<T>(
        &self,
        caller: &Caller,
        action: Action<'_>,
        subject: T,
    ) -> Result<Permitted<T>, Denied> {
        match action {
            Action::Create { spec, existing } => self.may_create(caller, spec, existing)?,
            Action::See(lease) | Action::Use(lease) => may_touch(caller, lease, true)?,
            // What a policy names is checked against the operator's configuration where it counts:
            // for every connection, after its name was resolved.
            Action::Manage(lease) | Action::ChangeNetwork(lease, _) | Action::SeeNetwork(lease) => {
                may_touch(caller, lease, false)?;
            }
            Action::Grant(owner, other) => may_grant(owner, other)?,
            Action::Limit(lease, limits) => {
                may_touch(caller, lease, false)?;
                self.may_use(limits)?;
            }
            Action::Oversee => may_oversee(caller)?,
            Action::SeeTemplates | Action::ImportTemplate => may_use_templates(caller)?,
            Action::ChangeTemplate(name, owner) => may_change_template(caller, name, owner)?,
        }
        Ok(Permitted { subject })
    }

    fn may_create(
        &self,
        caller: &Caller,
        spec: &SandboxSpec,
        existing: usize,
    ) -> Result<(), Denied> {
        if matches!(caller.who, Who::Token { .. }) {
            return denied(Rule::Token, "a sandbox's token makes no sandboxes: use an API key");
        }
        if existing >= self.sandboxes {
            let reason = format!(
                "there are {existing} sandboxes, and {} is the most: delete some, or raise it in \
                 the configuration",
                self.sandboxes
            );
            return denied(Rule::Sandboxes, reason);
        }
        self.may_use(&spec.limits)?;
        if spec.allow_unenforced && !self.unenforced {
            let reason = "this machine makes no sandbox whose limits do not hold: leave \
                          `allow_unenforced` out";
            return denied(Rule::Enforced, reason);
        }
        Ok(())
    }

    fn may_use(&self, limits: &Limits) -> Result<(), Denied> {
        let too_large = |what: &str, wanted: String, most: String| {
            let reason = format!(
                "{wanted} of {what} is more than the {most} that one sandbox may have here: ask \
                 for less, or raise it in the configuration"
            );
            denied(Rule::Size, reason)
        };
        if limits.memory > self.memory {
            return too_large("memory", limits.memory.to_string(), self.memory.to_string());
        }
        if limits.cpus > self.cpus {
            return too_large("processors", limits.cpus.to_string(), self.cpus.to_string());
        }
        if limits.disk > self.disk {
            return too_large("disk", limits.disk.to_string(), self.disk.to_string());
        }
        Ok(())
    }
}

/// Who looks after the machine itself.
fn may_oversee(caller: &Caller) -> Result<(), Denied> {
    match &caller.who {
        Who::Soma | Who::Local => Ok(()),
        // The first owner is the machine's own.
        Who::Key { .. } if caller.owner == Owner::default() => Ok(()),
        Who::Key { .. } | Who::Token { .. } => {
            denied(Rule::Owner, "this is for whoever runs the machine: ask them")
        }
    }
}

/// Whoever has a key sees templates, makes sandboxes from them, and imports more.
fn may_use_templates(caller: &Caller) -> Result<(), Denied> {
    match caller.who {
        Who::Soma | Who::Local | Who::Key { .. } => Ok(()),
        Who::Token { .. } => {
            denied(Rule::Token, "a sandbox's token has no templates: use an API key")
        }
    }
}

/// Sandboxes of two owners never reach each other, whoever asks for it.
fn may_grant(owner: &Owner, other: &Lease) -> Result<(), Denied> {
    if *owner == other.owner {
        return Ok(());
    }
    let reason = format!("sandbox `{}` has another owner, and is not reached from here", other.id);
    denied(Rule::Owner, reason)
}

/// Sandboxes of everybody are made from a template, so nobody changes another's under them.
fn may_change_template(
    caller: &Caller,
    name: &TemplateName,
    owner: Option<&Owner>,
) -> Result<(), Denied> {
    may_use_templates(caller)?;
    match caller.who {
        Who::Key { .. } if owner != Some(&caller.owner) => {
            let reason = format!(
                "template `{name}` was imported by somebody else: choose another name, or ask \
                 whoever runs this machine"
            );
            denied(Rule::Owner, reason)
        }
        _ => Ok(()),
    }
}

/// A sandbox that is not the caller's is treated like one that is not there by whoever shows the
/// refusal; the rule is for the log.
fn may_touch(caller: &Caller, lease: &Lease, with_token: bool) -> Result<(), Denied> {
    match &caller.who {
        Who::Soma | Who::Local => Ok(()),
        Who::Key { .. } if caller.owner == lease.owner => Ok(()),
        Who::Key { .. } => denied(Rule::Owner, format!("sandbox `{}` is not yours", lease.id)),
        Who::Token { sandbox } if with_token && *sandbox == lease.id => Ok(()),
        Who::Token { .. } => {
            denied(Rule::Token, "a sandbox's token is for using that sandbox only")
        }
    }
}

fn denied(rule: Rule, reason: impl Into<String>) -> Result<(), Denied> {
    Err(Denied { rule, reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use domain::{SandboxId, Timestamp};

    use super::*;

    fn lease(owner: &str) -> Lease {
        let id = SandboxId::from_random([1; 15]);
        let mut lease = Lease::new(id, SandboxSpec::default(), Timestamp(0));
        lease.owner = Owner(owner.to_owned());
        lease
    }

    fn rule(decision: Result<Permitted<()>, Denied>) -> Option<Rule> {
        decision.err().map(|denied| denied.rule)
    }

    #[test]
    fn a_key_touches_its_owners_sandboxes_only() {
        let rules = Rules::default();
        let caller = Caller::key("ci", Owner("here".into()));
        let (own, foreign) = (lease("here"), lease("there"));
        for action in [Action::See(&own), Action::Use(&own), Action::Manage(&own)] {
            assert_eq!(rule(rules.decide(&caller, action, ())), None, "{action:?}");
        }
        for action in [Action::See(&foreign), Action::Use(&foreign), Action::Manage(&foreign)] {
            assert_eq!(rule(rules.decide(&caller, action, ())), Some(Rule::Owner), "{action:?}");
        }
    }

    #[test]
    fn two_owners_sandboxes_never_reach_each_other() {
        let (here, there) = (lease("here"), lease("there"));
        for caller in [Caller::soma(), Caller::local(), Caller::key("ci", here.owner.clone())] {
            let grant = |other| {
                rule(Rules::default().decide(&caller, Action::Grant(&here.owner, other), ()))
            };
            assert_eq!(grant(&here), None);
            assert_eq!(grant(&there), Some(Rule::Owner));
        }
    }

    #[test]
    fn a_policy_is_changed_and_a_log_read_by_the_owner_and_not_by_a_token() {
        let (own, policy) = (lease("here"), NetworkPolicy::default());
        let token = Who::Token { sandbox: own.id.clone() };
        let token = Caller { who: token, owner: own.owner.clone(), request: None };
        let foreign = Caller::key("ci", Owner("there".into()));
        let owner = Caller::key("ci", own.owner.clone());
        for action in [Action::ChangeNetwork(&own, &policy), Action::SeeNetwork(&own)] {
            let decide = |caller| rule(Rules::default().decide(caller, action, ()));
            assert_eq!(decide(&owner), None);
            assert_eq!(decide(&token), Some(Rule::Token));
            assert_eq!(decide(&foreign), Some(Rule::Owner));
        }
    }

    #[test]
    fn whoever_runs_the_machine_touches_everything() {
        let foreign = lease("there");
        for caller in [Caller::soma(), Caller::local()] {
            let decision = Rules::default().decide(&caller, Action::Manage(&foreign), ());
            assert_eq!(rule(decision), None);
        }
    }

    #[test]
    fn a_token_uses_its_sandbox_and_nothing_else() {
        let rules = Rules::default();
        let own = lease("here");
        let who = Who::Token { sandbox: own.id.clone() };
        let caller = Caller { who, owner: Owner("here".to_owned()), request: None };
        assert_eq!(rule(rules.decide(&caller, Action::Use(&own), ())), None);
        assert_eq!(rule(rules.decide(&caller, Action::Manage(&own), ())), Some(Rule::Token));
        let mut other = lease("here");
        other.id = SandboxId::from_random([2; 15]);
        assert_eq!(rule(rules.decide(&caller, Action::Use(&other), ())), Some(Rule::Token));
        let create = Action::Create { spec: &own.spec, existing: 0 };
        assert_eq!(rule(rules.decide(&caller, create, ())), Some(Rule::Token));
        let name = "debian".parse().unwrap();
        let change = Action::ChangeTemplate(&name, Some(&own.owner));
        for action in [Action::SeeTemplates, Action::ImportTemplate, change] {
            assert_eq!(rule(rules.decide(&caller, action, ())), Some(Rule::Token), "{action:?}");
        }
    }

    #[test]
    fn a_template_is_changed_by_its_owner_and_whoever_runs_the_machine() {
        let name = "debian".parse().unwrap();
        let (own, foreign) = (Owner("here".into()), Owner("there".into()));
        let key = Caller::key("ci", own.clone());
        let change = |caller: &Caller, owner| {
            rule(Rules::default().decide(caller, Action::ChangeTemplate(&name, owner), ()))
        };
        assert_eq!(change(&key, Some(&own)), None);
        assert_eq!(change(&key, Some(&foreign)), Some(Rule::Owner));
        // Of one that cannot be read nobody knows whose it is.
        assert_eq!(change(&key, None), Some(Rule::Owner));
        for owner in [Some(&own), Some(&foreign), None] {
            assert_eq!(change(&Caller::local(), owner), None);
        }
        for action in [Action::SeeTemplates, Action::ImportTemplate] {
            assert_eq!(rule(Rules::default().decide(&key, action, ())), None, "{action:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_refused_by_name() {
        let rules = Rules { sandboxes: 2, unenforced: false, ..Rules::default() };
        let usual = SandboxSpec::default();
        let create = |spec: &SandboxSpec, existing| {
            rule(rules.decide(&Caller::local(), Action::Create { spec, existing }, ()))
        };
        assert_eq!(create(&usual, 1), None);
        assert_eq!(create(&usual, 2), Some(Rule::Sandboxes));
        let limits = Limits { memory: Bytes::gibibytes(65), ..Limits::default() };
        let own = lease("here");
        let limit = Action::Limit(&own, &limits);
        assert_eq!(rule(rules.decide(&Caller::local(), limit, ())), Some(Rule::Size));
        assert_eq!(create(&SandboxSpec { limits, ..usual.clone() }, 0), Some(Rule::Size));
        let loose = SandboxSpec { allow_unenforced: true, ..usual };
        assert_eq!(create(&loose, 0), Some(Rule::Enforced));
    }

    #[test]
    fn a_refusal_says_what_and_by_which_rule() {
        let rules = Rules { sandboxes: 1, ..Rules::default() };
        let spec = SandboxSpec::default();
        let action = Action::Create { spec: &spec, existing: 1 };
        let text = rules.decide(&Caller::local(), action, ()).unwrap_err().to_string();
        assert_eq!(
            text,
            "there are 1 sandboxes, and 1 is the most: delete some, or raise it in the \
             configuration (rule `max_sandboxes`)"
        );
    }
}
