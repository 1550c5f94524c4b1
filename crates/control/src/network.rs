//! What sandboxes may reach: seen, changed while they run, and what they tried to reach.
//!
//! Here a policy becomes whole: sandboxes that are named in it are found, and values that were not
//! shown are put back. Whether a connection passes is decided elsewhere, for each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{Learned, Lease, NetworkEntry, NetworkPolicy, Owner, SandboxId};
use futures::StreamExt as _;
use policy::{Action, Caller};
use tokio::sync::OwnedSemaphorePermit;

use crate::{Control, ControlError, Reference, Shared};

/// How many may follow what sandboxes try to reach.
pub(crate) const FOLLOWERS: usize = 256;

/// What a sandbox is to reach, as it is asked for.
#[derive(Debug, Clone, Default)]
pub struct NetworkWish {
    /// The policy. Which sandboxes are meant is not said here.
    pub policy: NetworkPolicy,
    /// The names or ids of other sandboxes of the same owner that it may reach.
    pub sandboxes: Vec<String>,
}

impl From<NetworkPolicy> for NetworkWish {
    fn from(policy: NetworkPolicy) -> Self {
        Self { policy, sandboxes: Vec::new() }
    }
}

/// What a sandbox tried to reach, one after the other.
pub struct NetworkLog {
    entries: provider::NetworkLog,
    _turn: OwnedSemaphorePermit,
}

impl NetworkLog {
    /// The next of it; `None` when there is no more.
    pub async fn next(&mut self) -> Option<Result<NetworkEntry, ControlError>> {
        Some(self.entries.next().await?.map_err(ControlError::from))
    }
}

impl std::fmt::Debug for NetworkLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NetworkLog").finish_non_exhaustive()
    }
}

impl Control {
    /// What a sandbox may reach, without any value that is set in requests.
    pub fn network(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<NetworkPolicy, ControlError> {
        Ok(self.get(caller, which)?.spec.network.redacted())
    }

    /// Lets a sandbox reach this from now on, and nothing else. One that does not run gets it when
    /// it is started.
    pub async fn change_network(
        &self,
        caller: &Caller,
        which: &Reference,
        wish: NetworkWish,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.change_network(caller.clone(), wish).await
    }

    /// What a sandbox tried to reach, after the entry with this number; with `follow` also what it
    /// tries from now on.
    pub async fn network_log(
        &self,
        caller: &Caller,
        which: &Reference,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::SeeNetwork(lease))?;
        let turn = Arc::clone(&self.shared.followers).try_acquire_owned();
        let turn = turn.map_err(|_| ControlError::TooManyFollow { most: FOLLOWERS })?;
        let id = handle.lease().id.clone();
        let entries = self.shared.provider.network_log(&id, after, follow).await?;
        Ok(NetworkLog { entries, _turn: turn })
    }

    /// A policy that would let pass what passed so far, and what it has no room for.
    pub async fn learned(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<(NetworkPolicy, Vec<String>), ControlError> {
        let mut log = self.network_log(caller, which, 0, false).await?;
        let mut learned = Learned::default();
        while let Some(entry) = log.next().await {
            learned.note(&entry?);
        }
        Ok(learned.policy(&self.network(caller, which)?))
    }
}

impl Shared {
    /// What a sandbox that is about to be made may reach.
    pub(crate) fn network_of_new(
        &self,
        caller: &Caller,
        id: &SandboxId,
        wish: Option<NetworkWish>,
    ) -> Result<NetworkPolicy, ControlError> {
        match wish {
            Some(wish) => self.whole(caller, (id, &caller.owner), wish, &NetworkPolicy::default()),
            None => Ok(NetworkPolicy { mode: self.network, ..NetworkPolicy::default() }),
        }
    }

    /// The policy that is meant for a sandbox of this owner, which had another before.
    pub(crate) fn whole(
        &self,
        caller: &Caller,
        (id, owner): (&SandboxId, &Owner),
        wish: NetworkWish,
        before: &NetworkPolicy,
    ) -> Result<NetworkPolicy, ControlError> {
        let NetworkWish { mut policy, sandboxes } = wish;
        policy.sandboxes = BTreeMap::new();
        for name in &sandboxes {
            let (name, other) = self.granted(caller, owner, name, before)?;
            if other == *id {
                let reason = "`allow_sandboxes`: a sandbox reaches itself by 127.0.0.1";
                return Err(ControlError::Invalid { reason: reason.to_owned() });
            }
            policy.sandboxes.insert(name, other);
        }
        policy.restore_from(before)?;
        policy.check()?;
        Ok(policy)
    }

    /// A sandbox that may be reached, and the name by which. Somebody else's is as good as not
    /// there.
    fn granted(
        &self,
        caller: &Caller,
        owner: &Owner,
        name: &str,
        before: &NetworkPolicy,
    ) -> Result<(String, SandboxId), ControlError> {
        let reference = Reference::from(name);
        let found = self.registry.find(owner, &reference, false).and_then(|handle| {
            let lease = handle.lease();
            let grant = self.rules.decide(caller, Action::Grant(owner, &lease), ());
            grant.map_err(|_| ControlError::NotFound { which: reference.to_string() })?;
            Ok(lease)
        });
        let lease = match found {
            Ok(lease) => lease,
            Err(error) => {
                // It was there when the policy was made, and whoever sends that back means no
                // other.
                let known = before.sandboxes.get_key_value(name);
                let known = known.map(|(name, id)| (name.clone(), id.clone()));
                let reason = format!("`allow_sandboxes`: {error}");
                return known.ok_or(ControlError::Invalid { reason });
            }
        };
        let own = lease.name.as_ref().filter(|_| lease.id.as_str() != name);
        let spelt = own.map_or(lease.id.to_string(), ToString::to_string);
        Ok((spelt, lease.id.clone()))
    }
}
