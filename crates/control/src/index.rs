//! The index: what the store has of the sandboxes, made true again wherever it is not.
//!
//! A change that the store could not take is remembered and written before anybody searches. So is
//! everything when the store was lost and an empty one took its place, and a row that cannot be
//! read.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use domain::{Lease, SandboxId};
use policy::{Caller, Who};
use store::{LeaseQuery, Page, StoreError};
use tracing::warn;

use crate::{Control, ControlError, Shared};

impl Shared {
    pub(crate) fn unindexed(&self) -> MutexGuard<'_, BTreeSet<SandboxId>> {
        self.unindexed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a sandbox to the store.
    pub(crate) async fn put(&self, lease: &Lease) -> Result<(), StoreError> {
        match self.store.put_lease(lease).await {
            Err(error) if self.is_empty_now(&error) => self.store.put_lease(lease).await,
            put => put,
        }
    }

    /// Has the store forget a sandbox.
    pub(crate) async fn forget(&self, id: &SandboxId) -> Result<(), StoreError> {
        match self.store.remove_lease(id).await {
            Err(error) if self.is_empty_now(&error) => self.store.remove_lease(id).await,
            forgotten => forgotten,
        }
    }

    /// What the store has, after it was told all that it missed.
    pub(crate) async fn search(&self, query: &LeaseQuery) -> Result<Page<Lease>, ControlError> {
        self.catch_up().await?;
        let found = match self.store.leases(query).await {
            Err(error) if self.is_empty_now(&error) => {
                self.catch_up().await?;
                self.store.leases(query).await
            }
            found => found,
        };
        let found = found?;
        for row in &found.unreadable {
            warn!(sandbox = row.id, reason = row.reason, "what the store has of it makes no sense");
        }
        let ids = found.unreadable.iter().filter_map(|row| row.id.parse::<SandboxId>().ok());
        let known: Vec<SandboxId> = ids.filter(|id| self.registry.get(id).is_some()).collect();
        if known.is_empty() {
            return Ok(found);
        }
        // What we have of it came from its folder, and is written over what is there.
        self.unindexed().extend(known);
        self.catch_up().await?;
        Ok(self.store.leases(query).await?)
    }

    /// Whether the store answers. What it misses is no matter here.
    pub(crate) async fn store_answers(&self) -> Result<(), StoreError> {
        let query = LeaseQuery { limit: Some(1), ..LeaseQuery::default() };
        match self.store.leases(&query).await {
            Err(error) if self.is_empty_now(&error) => Ok(()),
            found => found.map(drop),
        }
    }

    /// Whether the store is another one from now on, which knows nothing yet.
    fn is_empty_now(&self, error: &StoreError) -> bool {
        let is_lost = matches!(error, StoreError::Lost { .. });
        if is_lost {
            warn!(%error, "the sandboxes are indexed anew");
            let all = self.registry.all().into_iter().map(|handle| handle.lease().id.clone());
            self.unindexed().extend(all);
        }
        is_lost
    }

    /// Writes to the store what it could not take before, so that it says nothing untrue.
    async fn catch_up(&self) -> Result<(), ControlError> {
        let missed: Vec<SandboxId> = self.unindexed().iter().cloned().collect();
        for id in missed {
            if let Some(handle) = self.registry.get(&id) {
                match handle.index().await {
                    // It is gone in this moment.
                    Err(ControlError::NotFound { .. }) => {}
                    indexed => indexed?,
                }
            }
            self.unindexed().remove(&id);
        }
        Ok(())
    }
}

impl Control {
    /// Some of the caller's sandboxes.
    pub async fn list(
        &self,
        caller: &Caller,
        mut query: LeaseQuery,
    ) -> Result<Page<Lease>, ControlError> {
        match &caller.who {
            // Whoever runs the machine may look at one owner's, or at all.
            Who::Soma | Who::Local => {}
            Who::Key { .. } | Who::Token { .. } => query.owner = Some(caller.owner.clone()),
        }
        // Whoever was told of a sandbox also finds it here.
        drop(self.shared.indexing.write().await);
        self.shared.search(&query).await
    }
}
