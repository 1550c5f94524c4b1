//! Finding the sandboxes again that an earlier daemon made.
//!
//! What the provider has is the truth; the store is made to agree with it. A sandbox whose record
//! cannot be read is not lost: it is listed as an error with the reason, and can be deleted.

use std::collections::BTreeSet;

use domain::{Lease, SandboxId, SandboxSpec, State, state::Starting};
use provider::{Condition, Observed};
use store::LeaseQuery;
use tracing::warn;

use crate::{Control, ControlError, now, sandbox};

/// What was found at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Sandboxes that run.
    pub running: usize,
    /// Sandboxes that ended; their files are there.
    pub ended: usize,
    /// Sandboxes whose record cannot be read.
    pub damaged: Vec<SandboxId>,
    /// Sandboxes that only the store knew, and which it has forgotten now.
    pub gone: usize,
}

impl Control {
    pub(crate) async fn find(&self) -> Result<Found, ControlError> {
        let mut found = Found::default();
        let mut there = BTreeSet::new();
        for seen in self.shared.provider.list().await? {
            let text = self.shared.provider.read_record(&seen.id).await?;
            let lease = match Lease::from_text(&text) {
                Ok(lease) if lease.id == seen.id => observe(lease, &seen),
                Ok(lease) => {
                    let reason = format!("its record is that of `{}`", lease.id);
                    damaged(&seen, &reason, &mut found)
                }
                Err(error) => {
                    let reason = format!("its record cannot be read: {error}");
                    damaged(&seen, &reason, &mut found)
                }
            };
            match lease.state {
                State::Running(_) => found.running += 1,
                _ => found.ended += 1,
            }
            there.insert(seen.id.clone());
            self.adopt(lease).await?;
        }
        let known = self.shared.store.leases(&LeaseQuery::default()).await?;
        for lease in known.items.iter().filter(|lease| !there.contains(&lease.id)) {
            self.shared.store.remove_lease(&lease.id).await?;
            found.gone += 1;
        }
        Ok(found)
    }

    async fn adopt(&self, mut lease: Lease) -> Result<(), ControlError> {
        // Before the others: an earlier index may have the name at another sandbox.
        match self.shared.store.put_lease(&lease, None).await {
            Err(store::StoreError::NameTaken { .. }) => {
                lease.name = None;
                self.shared.store.put_lease(&lease, None).await?;
            }
            other => other?,
        }
        match sandbox::adopt(&self.shared, lease.clone()) {
            Err(ControlError::NameTaken { name }) => {
                warn!(sandbox = %lease.id, name, "another sandbox has its name");
                lease.name = None;
                sandbox::adopt(&self.shared, lease)
            }
            other => other,
        }
    }
}

/// The record with the state that the provider sees.
fn observe(mut lease: Lease, seen: &Observed) -> Lease {
    let starting = Starting::new();
    let state = match &seen.condition {
        Condition::Running => State::Running(starting.ready()),
        Condition::Ended(why) => starting.ended(why.clone()),
    };
    if let (Condition::Running, None) = (&seen.condition, lease.until) {
        // The record was written before it ran, and its supervisor counts from there on.
        let timeout = lease.spec.limits.timeout;
        lease.until = timeout.map(|timeout| lease.created_at.after(timeout));
    }
    if lease.state.name() != state.name() {
        lease.changed_at = now();
    }
    lease.state = state;
    lease.unenforced.clone_from(&seen.unenforced);
    lease.missing_layers.clone_from(&seen.missing_layers);
    lease
}

fn damaged(seen: &Observed, reason: &str, found: &mut Found) -> Lease {
    warn!(sandbox = %seen.id, reason, "a sandbox is listed as an error");
    found.damaged.push(seen.id.clone());
    let mut lease = Lease::new(seen.id.clone(), SandboxSpec::default(), now());
    lease.state = State::Failed(Starting::new().failed(reason));
    lease
}
