//! Finding sandboxes: those that an earlier daemon made, and whatever is not as we have it.
//!
//! What the provider has is the truth; the store is made to agree with it. It is asked at the
//! start, every half a minute and whenever somebody wants it. Only what is found counts: a sandbox
//! that is missing stays listed, as an error, and so does one whose record cannot be read. Both
//! can be deleted, and come back when they are found again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{Ending, Happened, Lease, Lifetime, SandboxId, SandboxSpec, State, state::Starting};
use policy::{Action, Caller};
use provider::{Condition, Observed, ProviderError};
use store::{LeaseQuery, Unreadable};
use tracing::warn;

use crate::{Control, ControlError, now, sandbox};

/// How often the provider is asked what it has.
const EVERY: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Sandboxes that run.
    pub running: usize,
    /// Sandboxes that stand still.
    pub paused: usize,
    /// Sandboxes that ended; their files are there.
    pub ended: usize,
    /// Sandboxes that this daemon did not know.
    pub adopted: usize,
    /// Sandboxes whose record cannot be read.
    pub damaged: Vec<SandboxId>,
    /// Sandboxes that the provider does not have, though nobody removed them.
    pub missing: Vec<SandboxId>,
}

impl Control {
    /// The same for somebody who asks: what is found is of all owners.
    pub async fn reconcile_for(&self, caller: &Caller) -> Result<Found, ControlError> {
        let () = self.shared.rules.decide(caller, Action::Oversee, ())?.into_inner();
        self.reconcile().await
    }

    /// Compares what we have with what the provider has, and goes by the latter.
    pub async fn reconcile(&self) -> Result<Found, ControlError> {
        // One at a time: two would adopt the same sandbox.
        let _turn = self.shared.reconciling.lock().await;
        let (mut found, mut there) = (Found::default(), BTreeSet::new());
        let mut unknown = Vec::new();
        for seen in self.shared.provider.list().await? {
            match seen.condition {
                Condition::Running => found.running += 1,
                Condition::Paused(_) => found.paused += 1,
                Condition::Ended(_) => found.ended += 1,
            }
            there.insert(seen.id.clone());
            match self.shared.registry.get(&seen.id) {
                Some(handle) if handle.lease().state == state_of(&seen.condition) => {}
                Some(handle) => handle.look(),
                // What goes with somebody else is theirs.
                None if !seen.is_kept => {}
                None => unknown.push(seen),
            }
        }
        for handle in self.shared.registry.all() {
            let lease = handle.lease();
            let is_here =
                matches!(lease.state, State::Running(_) | State::Paused(_) | State::Deleting(_));
            if !there.contains(&lease.id) && is_here {
                handle.look();
            }
        }
        if !unknown.is_empty() || !self.shared.compared.load(Ordering::Relaxed) {
            let all = self.shared.search(&LeaseQuery::default()).await?;
            let lost = all.unreadable.iter().filter_map(|row| forgotten(row, &there));
            let all: Vec<Lease> = lost.chain(all.items).collect();
            let known: BTreeMap<_, _> =
                all.into_iter().map(|lease| (lease.id.clone(), lease)).collect();
            for seen in &unknown {
                self.take_in(seen, known.get(&seen.id), &mut found).await?;
            }
            self.miss(&known, &there, &mut found).await?;
            self.shared.compared.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Keeps comparing for as long as the daemon lives.
    pub(crate) fn reconcile_for_ever(&self) {
        let control = self.clone();
        let closing = self.shared.closing.clone();
        let turns = async move {
            loop {
                tokio::time::sleep(EVERY).await;
                if let Err(error) = control.reconcile().await {
                    warn!(%error, "what is there could not be compared with what is known");
                }
            }
        };
        self.shared.tasks.spawn(async move { closing.run_until_cancelled(turns).await });
    }

    /// A sandbox that the provider has and we do not know.
    async fn take_in(
        &self,
        seen: &Observed,
        known: Option<&Lease>,
        found: &mut Found,
    ) -> Result<(), ControlError> {
        let text = match self.shared.provider.read_record(&seen.id).await {
            // It is gone by now.
            Err(ProviderError::NotFound { .. }) => return Ok(()),
            text => text,
        };
        let lease = text.map_err(|error| format!("{:#}", Chain(&error))).and_then(|text| {
            match Lease::from_text(&text) {
                // Before there was a daemon, nothing was written down.
                Err(_) if text.is_empty() => {
                    let lease = Lease::new(seen.id.clone(), SandboxSpec::default(), now());
                    Ok(observe(lease, seen))
                }
                Ok(lease) if lease.id == seen.id => Ok(observe(lease, seen)),
                Ok(lease) => Err(format!("it is that of `{}`", lease.id)),
                Err(error) => Err(error.to_string()),
            }
        });
        let is_going = |lease: &&Lease| matches!(lease.state, State::Deleting(_));
        let mut lease = match (lease, known) {
            (Ok(lease), _) => lease,
            // The index has a copy of what its folder does not tell any more.
            (Err(reason), Some(known)) => {
                warn!(sandbox = %seen.id, reason, "its record is restored from the index");
                observe(known.clone(), seen)
            }
            (Err(reason), None) => damaged(seen, &reason, found),
        };
        if let Some(known) = known.filter(|known| known.state == lease.state) {
            // The folder does not say since when.
            lease.changed_at = known.changed_at;
        }
        if let Some(known) = known.filter(is_going) {
            // Whoever asked for that was not told that it is done.
            lease.state = known.state.clone();
        }
        found.adopted += 1;
        self.adopt(lease).await
    }

    /// Sandboxes that only the index knows.
    async fn miss(
        &self,
        known: &BTreeMap<SandboxId, Lease>,
        there: &BTreeSet<SandboxId>,
        found: &mut Found,
    ) -> Result<(), ControlError> {
        let is_missing = |lease: &&Lease| {
            !there.contains(&lease.id) && self.shared.registry.get(&lease.id).is_none()
        };
        for lease in known.values().filter(is_missing) {
            let is_first = lease.changed_at == lease.created_at;
            let never_was = matches!(lease.state, State::Starting(_)) && is_first;
            let was_going = matches!(lease.state, State::Deleting(_) | State::Deleted(_));
            if never_was || was_going || lease.spec.lifetime == Lifetime::WithCaller {
                // Nobody was told that it is there, or somebody wanted it gone.
                self.shared.forget(&lease.id).await?;
                continue;
            }
            warn!(sandbox = %lease.id, "nothing of a sandbox was found: it is listed as an error");
            found.missing.push(lease.id.clone());
            self.shared.tell(&Caller::soma(), lease, Happened::Missing);
            let mut lease = lease.clone();
            lease.state = Starting::new().ended(Ending::Missing);
            self.adopt(lease).await?;
        }
        Ok(())
    }

    async fn adopt(&self, mut lease: Lease) -> Result<(), ControlError> {
        // Before the others: an earlier index may have the name at another sandbox.
        match self.shared.put(&lease).await {
            Err(store::StoreError::NameTaken { .. }) => {
                self.take_name_off(&mut lease);
                self.shared.put(&lease).await?;
            }
            other => other?,
        }
        self.shared.tell(&Caller::soma(), &lease, Happened::Found(lease.state.clone()));
        match sandbox::adopt(&self.shared, lease.clone()) {
            Err(ControlError::NameTaken { .. }) => {
                self.take_name_off(&mut lease);
                sandbox::adopt(&self.shared, lease)
            }
            // Somebody asked for it in this moment.
            Err(ControlError::Exists { .. }) => Ok(()),
            other => other,
        }
    }

    fn take_name_off(&self, lease: &mut Lease) {
        if let Some(name) = lease.name.take() {
            warn!(sandbox = %lease.id, %name, "another sandbox has its name");
            self.shared.tell(&Caller::soma(), lease, Happened::NameTakenOff { name });
        }
    }
}

/// The state of a sandbox that the provider sees so.
pub(crate) fn state_of(condition: &Condition) -> State {
    let starting = Starting::new();
    match condition {
        Condition::Running => State::Running(starting.ready()),
        Condition::Paused(rest) => State::Paused(starting.ready().found_paused(rest.clone())),
        Condition::Ended(why) => starting.ended(why.clone()),
    }
}

/// The record with the state that the provider sees.
fn observe(mut lease: Lease, seen: &Observed) -> Lease {
    let mut state = state_of(&seen.condition);
    if matches!(seen.condition, Condition::Running) && lease.spec.origin.is_some() {
        // A copy that nobody lived to tell what is new in it: its task does, before it is used.
        state = State::Starting(Starting::new());
    }
    if let (Condition::Running, None) = (&seen.condition, lease.until) {
        // The record was written before it ran, and its supervisor counts from there on.
        let timeout = lease.spec.limits.timeout;
        lease.until = timeout.map(|timeout| lease.created_at.after(timeout));
    }
    if let Condition::Paused(_) = &seen.condition {
        // Its time begins anew when it goes on.
        lease.until = None;
    }
    if lease.state.name() != state.name() {
        lease.changed_at = now();
    }
    lease.state = state;
    lease.unenforced.clone_from(&seen.unenforced);
    lease.missing_layers.clone_from(&seen.missing_layers);
    lease
}

/// What stands for a sandbox of which nothing is found but an entry that cannot be read. One that
/// is found says itself what it is.
fn forgotten(row: &Unreadable, there: &BTreeSet<SandboxId>) -> Option<Lease> {
    let id: SandboxId = row.id.parse().ok()?;
    if there.contains(&id) {
        return None;
    }
    let mut lease = Lease::new(id, SandboxSpec::default(), now());
    lease.state = Starting::new().ended(Ending::Missing);
    lease.damaged = true;
    Some(lease)
}

fn damaged(seen: &Observed, reason: &str, found: &mut Found) -> Lease {
    warn!(sandbox = %seen.id, reason, "a sandbox is listed as an error");
    found.damaged.push(seen.id.clone());
    let mut lease = Lease::new(seen.id.clone(), SandboxSpec::default(), now());
    let reason = format!("its record cannot be read: {reason}");
    lease.state = State::Failed(Starting::new().failed(reason));
    lease.damaged = true;
    lease
}

/// An error with its causes, on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
