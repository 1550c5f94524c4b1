//! Snapshots: taken, seen, made into sandboxes, removed.
//!
//! What is written down with one is the sandbox as it was; a sandbox that is made from it has what
//! that had, but for its id, its token and its name.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{
    Lease, OnTimeout, Origin, Owner, SandboxId, SandboxName, SnapshotId, SnapshotName,
    SnapshotRecord,
};
use futures::future::join_all;
use policy::{Action, Caller};
use provider::{ProviderError, SnapshotKind};

use crate::wish::Wish;
use crate::{
    Control, ControlError, NetworkWish, Reference, Shared, is_everybody, now, random, sandbox,
};

/// So many copies are made at one time.
pub const MOST_COPIES: usize = 100;

/// A snapshot that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What is written down with it.
    pub record: SnapshotRecord,
    /// Whether processes were captured too.
    pub memory: bool,
    /// How much of the host's disk is its own, without what it shares with those below it.
    pub bytes: u64,
    /// The snapshots that it shares the rest with.
    pub layers: Vec<SnapshotId>,
    /// Some of the sandboxes that were made from it.
    pub sandboxes: Vec<SandboxId>,
}

/// What is wanted of a snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotWish {
    /// What to call it; something is made up when unset.
    pub name: Option<SnapshotName>,
    /// Processes too.
    pub memory: bool,
}

/// What a sandbox that is made from a snapshot has otherwise than the one that was captured.
#[derive(Debug, Clone, Default)]
pub struct RestoreWish {
    /// What to call it.
    pub name: Option<SandboxName>,
    /// When its time is over; as it was when unset.
    pub timeout: Option<Duration>,
    /// What becomes of it then.
    pub on_timeout: Option<OnTimeout>,
    /// What it may reach.
    pub network: Option<NetworkWish>,
    /// Whether any request resumes it while it is paused.
    pub auto_resume: Option<bool>,
    /// Variables that commands in it see beside those that there were.
    pub environment: std::collections::BTreeMap<String, String>,
    /// What to hang on it instead.
    pub labels: Option<domain::Labels>,
}

/// Names of snapshots that are being taken.
#[derive(Debug, Default)]
pub(crate) struct Naming(Mutex<BTreeSet<(Owner, SnapshotName)>>);

/// A name that nobody else takes as long as this is there.
struct Named<'a> {
    naming: &'a Naming,
    key: (Owner, SnapshotName),
}

impl Naming {
    fn take(&self, owner: &Owner, name: &SnapshotName) -> Option<Named<'_>> {
        let key = (owner.clone(), name.clone());
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(key.clone()).then_some(Named { naming: self, key })
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.naming.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Control {
    /// Takes a snapshot of a sandbox, which goes on.
    pub async fn snapshot(
        &self,
        caller: &Caller,
        which: &Reference,
        wish: SnapshotWish,
    ) -> Result<Snapshot, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        let lease = handle.lease();
        let id = SnapshotId::from_random(random::<15>()?);
        let name = wish.name.map_or_else(|| made_up(&id), Ok)?;
        let exists = || ControlError::SnapshotExists { name: name.to_string() };
        let _named = self.shared.naming.take(&lease.owner, &name).ok_or_else(exists)?;
        let there = self.shared.snapshots().await?;
        let is_same = |one: &Snapshot| {
            one.record.owner == lease.owner && one.record.name.as_ref() == Some(&name)
        };
        if there.iter().any(is_same) {
            return Err(exists());
        }
        let record = SnapshotRecord::new(id.clone(), Some(name.clone()), (*lease).clone(), now());
        let kind = SnapshotKind { memory: wish.memory, passing: false };
        let record = handle.capture(caller.clone(), record, kind).await?;
        let taken = self.shared.snapshots().await?.into_iter().find(|one| one.record.id == id);
        taken.ok_or(ControlError::Provider(ProviderError::NoSnapshot { id: record.id }))
    }

    /// Every snapshot that the caller sees, the latest first.
    pub async fn snapshots(&self, caller: &Caller) -> Result<Vec<Snapshot>, ControlError> {
        let mut all = self.shared.snapshots().await?;
        all.retain(|one| one.record.owner == caller.owner || is_everybody(caller));
        all.sort_by_key(|one| std::cmp::Reverse(one.record.created_at));
        Ok(all)
    }

    /// One of them, by its id or its name.
    pub async fn find_snapshot(
        &self,
        caller: &Caller,
        which: &str,
    ) -> Result<Snapshot, ControlError> {
        let is_it = |one: &Snapshot| {
            let name = one.record.name.as_ref().map(SnapshotName::as_str);
            one.record.id.as_str() == which || name == Some(which)
        };
        let all = self.snapshots(caller).await?;
        let shown = || which.chars().filter(|c| !c.is_control()).take(80).collect();
        all.into_iter().find(is_it).ok_or_else(|| ControlError::NoSnapshot { which: shown() })
    }

    /// Makes a sandbox from a snapshot.
    pub async fn restore(
        &self,
        caller: &Caller,
        which: &str,
        wish: RestoreWish,
    ) -> Result<Arc<Lease>, ControlError> {
        let snapshot = self.find_snapshot(caller, which).await?;
        self.restore_record(caller, &snapshot.record, wish).await
    }

    /// Makes copies of a sandbox, which goes on. Each is there, or why it is not.
    pub async fn fork(
        &self,
        caller: &Caller,
        which: &Reference,
        copies: usize,
        wish: RestoreWish,
    ) -> Result<Vec<Result<Arc<Lease>, ControlError>>, ControlError> {
        if copies == 0 || copies > MOST_COPIES {
            let reason = format!("{copies} copies cannot be made: 1 to {MOST_COPIES} at one time");
            return Err(ControlError::Invalid { reason });
        }
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        let id = SnapshotId::from_random(random::<15>()?);
        let record = SnapshotRecord::new(id, None, (*handle.lease()).clone(), now());
        let kind = SnapshotKind { memory: true, passing: true };
        let record = handle.capture(caller.clone(), record, kind).await?;
        let make = || self.restore_record(caller, &record, wish.clone());
        Ok(join_all((0..copies).map(|_| make())).await)
    }

    /// Makes a sandbox what a snapshot of it was. What it was since is gone.
    pub async fn roll_back(
        &self,
        caller: &Caller,
        which: &Reference,
        snapshot: &str,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        let snapshot = self.find_snapshot(caller, snapshot).await?.record;
        if snapshot.lease.id != handle.lease().id {
            let reason = format!(
                "`{}` is a snapshot of `{}`: a sandbox goes back to what it was itself; restore it \
                 to make another",
                snapshot.id, snapshot.lease.id
            );
            return Err(ControlError::Invalid { reason });
        }
        handle.roll_back(caller.clone(), origin_of(&snapshot)).await
    }

    /// Removes a snapshot that no sandbox was made from.
    pub async fn remove_snapshot(&self, caller: &Caller, which: &str) -> Result<(), ControlError> {
        let snapshot = self.find_snapshot(caller, which).await?.record;
        let action = Action::Manage(&snapshot.lease);
        let permitted = self.shared.rules.decide(caller, action, snapshot.id.clone())?;
        Ok(self.shared.provider.remove_snapshot(&permitted).await?)
    }

    async fn restore_record(
        &self,
        caller: &Caller,
        record: &SnapshotRecord,
        wish: RestoreWish,
    ) -> Result<Arc<Lease>, ControlError> {
        let before = &record.lease;
        let mut limits = before.spec.limits.clone();
        limits.timeout = wish.timeout.or(limits.timeout);
        let mut environment = before.spec.environment.clone();
        environment.extend(wish.environment);
        let wish = Wish {
            name: wish.name,
            template: Some(before.template.clone()),
            origin: Some(origin_of(record)),
            limits,
            environment,
            labels: wish.labels.unwrap_or_else(|| before.labels.clone()),
            on_timeout: wish.on_timeout.unwrap_or(before.on_timeout),
            on_exit: before.on_exit,
            auto_resume: wish.auto_resume.unwrap_or(before.auto_resume),
            secure: before.secure,
            allow_unenforced: before.spec.allow_unenforced,
            sudo: before.spec.sudo,
            network: Some(wish.network.unwrap_or_else(|| before.spec.network.clone().into())),
            ..Wish::default()
        };
        let id = SandboxId::from_random(random::<15>()?);
        let (lease, spec) = self.plan(caller, wish, id)?;
        sandbox::begin(&self.shared, caller, lease, spec)?.made().await
    }
}

impl Shared {
    /// A snapshot whose record cannot be read was taken by a later Soma, or is damaged: it is not
    /// shown, and the log says why.
    async fn snapshots(&self) -> Result<Vec<Snapshot>, ControlError> {
        let mut all = Vec::new();
        for found in self.provider.snapshots().await? {
            match SnapshotRecord::from_text(&found.record) {
                Ok(record) => all.push(Snapshot {
                    record,
                    memory: found.memory,
                    bytes: found.bytes,
                    layers: found.layers,
                    sandboxes: found.sandboxes,
                }),
                Err(error) => {
                    tracing::warn!(snapshot = %found.id, %error, "a snapshot is left alone");
                }
            }
        }
        Ok(all)
    }
}

fn origin_of(record: &SnapshotRecord) -> Origin {
    Origin { snapshot: record.id.clone(), token: record.lease.spec.token.clone() }
}

/// A name for a snapshot to which nobody gave one.
fn made_up(id: &SnapshotId) -> Result<SnapshotName, ControlError> {
    let end = id.as_str().get(id.as_str().len() - 8..).unwrap_or_default();
    format!("snapshot-{end}").parse().map_err(|error: domain::InvalidSnapshotName| {
        ControlError::Invalid { reason: error.to_string() }
    })
}
