//! What happened to sandboxes, written down and told to those whom it concerns.
//!
//! The journal has all of it, also of sandboxes that are gone. Whoever runs the machine sees all,
//! an owner their own, and whoever has only a sandbox's token what happened to that one.

use domain::{Event, Happened, Lease, Owner, SandboxId};
use journal::{Follower, Page, Query};
use policy::{Caller, Who};
use tracing::{info, warn};

use crate::{Control, ControlError, Reference, Shared, now};

impl Control {
    /// What happened, as far as the caller may know.
    pub async fn history(&self, caller: &Caller, query: Query) -> Result<Page, ControlError> {
        let (owner, sandbox) = scope(caller, query.owner, query.sandbox)?;
        Ok(self.shared.journal.find(Query { owner, sandbox, ..query }).await?)
    }

    /// Follows what happens, to one sandbox or to all, as far as the caller may know: after the
    /// event with this number, or from now on.
    pub fn follow(
        &self,
        caller: &Caller,
        sandbox: Option<SandboxId>,
        after: Option<u64>,
    ) -> Result<Follower, ControlError> {
        let (owner, sandbox) = scope(caller, None, sandbox)?;
        Ok(self.shared.journal.follow(owner, sandbox, after)?)
    }

    /// The id of a sandbox whose events are meant: of one that is there, or the whole id of one
    /// that may be gone.
    pub fn meant(&self, caller: &Caller, which: &Reference) -> Result<SandboxId, ControlError> {
        match (self.get(caller, which), which.as_str().parse()) {
            (Ok(lease), _) => Ok(lease.id.clone()),
            (Err(_), Ok(id)) => Ok(id),
            (Err(error), Err(_)) => Err(error),
        }
    }
}

/// Whose events, and of which sandbox, this caller sees of those that are asked for.
fn scope(
    caller: &Caller,
    owner: Option<Owner>,
    sandbox: Option<SandboxId>,
) -> Result<(Option<Owner>, Option<SandboxId>), ControlError> {
    match &caller.who {
        Who::Soma | Who::Local => Ok((owner, sandbox)),
        Who::Key { .. } => Ok((Some(caller.owner.clone()), sandbox)),
        Who::Token { sandbox: own } => match sandbox {
            Some(other) if other != *own => {
                Err(ControlError::NotFound { which: other.to_string() })
            }
            _ => Ok((Some(caller.owner.clone()), Some(own.clone()))),
        },
    }
}

impl Shared {
    /// Writes down what happened to a sandbox, and tells whoever follows.
    pub(crate) fn tell(&self, caller: &Caller, lease: &Lease, happened: Happened) {
        if let Happened::StateChanged(state) = &happened {
            let (reason, actor) = (state.reason(), caller.name());
            info!(sandbox = %lease.id, state = state.name(), reason, actor,
                  "a sandbox changed its state");
        }
        let event = Event {
            at: now(),
            sandbox: lease.id.clone(),
            owner: lease.owner.clone(),
            actor: caller.name(),
            request: caller.request.clone(),
            happened,
        };
        if let Err(error) = self.journal.append(event) {
            warn!(sandbox = %lease.id, %error, "an event was not written down");
        }
    }
}
