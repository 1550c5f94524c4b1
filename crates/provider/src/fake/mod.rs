//! A provider in memory, for tests of everything above providers.
//!
//! It keeps the promises of [`Provider`], and its guest speaks the real protocol over pipes in
//! memory; only the computer behind it is made up: a handful of programs (`programs.rs`) and a
//! tree of files (`tree.rs`). It isolates nothing and limits nothing.
//!
//! A [`FakeBackend`] stands for the host; each [`FakeProvider`] is one instance on it.

mod files;
mod guest;
mod processes;
mod programs;
mod tree;
mod users;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::{Lifetime, SandboxId, SandboxSpec};
use guest::Guest;
use guest_proto::ByteStream;

use crate::{Condition, Observed, Provider, ProviderError};

/// The host of sandboxes that are not there. Clones are the same host.
#[derive(Debug, Clone, Default)]
pub struct FakeBackend {
    sandboxes: Arc<Mutex<BTreeMap<SandboxId, Sandbox>>>,
}

#[derive(Debug)]
struct Sandbox {
    guest: Arc<Guest>,
    /// The provider that it dies with.
    owner: Option<Arc<()>>,
}

impl FakeBackend {
    /// A host without sandboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more instance on this host.
    pub fn provider(&self) -> FakeProvider {
        FakeProvider { backend: self.clone(), token: Arc::default() }
    }

    fn sandboxes(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance of the provider in memory.
#[derive(Debug)]
pub struct FakeProvider {
    backend: FakeBackend,
    /// What tells this instance from others on the same host.
    token: Arc<()>,
}

#[async_trait]
impl Provider for FakeProvider {
    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<(), ProviderError> {
        // A real backend is busy for a while; others get their turn here as they would there.
        tokio::task::yield_now().await;
        self.backend.sandboxes().entry(id.clone()).or_insert_with(|| Sandbox {
            guest: Arc::new(Guest::new(spec)),
            owner: (spec.lifetime == Lifetime::WithCaller).then(|| Arc::clone(&self.token)),
        });
        Ok(())
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, ProviderError> {
        let guest = self.backend.sandboxes().get(id).map(|sandbox| Arc::clone(&sandbox.guest));
        let guest = guest.ok_or_else(|| ProviderError::NotFound { id: id.clone() })?;
        Ok(Box::new(guest.connect()))
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError> {
        if self.backend.sandboxes().contains_key(id) {
            Ok(running(id))
        } else {
            Err(ProviderError::NotFound { id: id.clone() })
        }
    }

    async fn list(&self) -> Result<Vec<Observed>, ProviderError> {
        Ok(self.backend.sandboxes().keys().map(running).collect())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), ProviderError> {
        tokio::task::yield_now().await;
        let removed = self.backend.sandboxes().remove(id);
        if let Some(sandbox) = removed {
            sandbox.guest.end().await;
        }
        Ok(())
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.backend.sandboxes().retain(|_, sandbox| {
            let mine = sandbox.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, &self.token));
            if mine {
                sandbox.guest.stop();
            }
            !mine
        });
    }
}

fn running(id: &SandboxId) -> Observed {
    Observed { id: id.clone(), condition: Condition::Running, unenforced: Vec::new() }
}
