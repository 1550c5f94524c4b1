//! A network that is not there: policies are kept, and what was tried is what a test says.

use domain::{NetworkEntry, NetworkPolicy, SandboxId};
use futures::StreamExt as _;
use futures::stream;

use super::{FakeBackend, FakeProvider};
use crate::{NetworkLog, ProviderError};

impl FakeBackend {
    /// What a sandbox may reach, as far as this host knows.
    pub fn network(&self, id: &SandboxId) -> Option<NetworkPolicy> {
        self.sandboxes().get(id).map(|sandbox| sandbox.network.clone())
    }

    /// Writes down what a sandbox tried to reach. Its number is the next one.
    pub fn reach(&self, id: &SandboxId, mut entry: NetworkEntry) {
        if let Some(sandbox) = self.sandboxes().get_mut(id) {
            entry.sequence = sandbox.reached.len() as u64 + 1;
            sandbox.reached.push(entry);
            sandbox.changed.notify_waiters();
        }
    }

    /// From now on no policy is changed here, or again every one.
    pub fn refuse_changes_of_network(&self, refuse: bool) {
        self.refuses_network.store(refuse, std::sync::atomic::Ordering::SeqCst);
    }
}

impl FakeProvider {
    pub(super) fn set_network(
        &self,
        id: &SandboxId,
        policy: &NetworkPolicy,
    ) -> Result<(), ProviderError> {
        if self.backend.refuses_network.load(std::sync::atomic::Ordering::SeqCst) {
            let reason = "the network is away".to_owned();
            return Err(ProviderError::Conflict { reason });
        }
        self.with(id, |sandbox| {
            if let Some(why) = sandbox.ending.clone() {
                return Err(ProviderError::NotRunning { id: id.clone(), why });
            }
            sandbox.network = policy.clone();
            Ok(())
        })?
    }

    pub(super) fn read_network(
        &self,
        id: &SandboxId,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ProviderError> {
        self.with(id, |_| ())?;
        let state = (self.backend.clone(), id.clone(), after);
        let entries = stream::unfold(state, move |(backend, id, after)| async move {
            loop {
                let changed =
                    backend.sandboxes().get(&id).map(|it| std::sync::Arc::clone(&it.changed))?;
                // Before the look: what changes after it is told.
                let change = changed.notified();
                let next = {
                    let sandboxes = backend.sandboxes();
                    sandboxes.get(&id)?.reached.iter().find(|it| it.sequence > after).cloned()
                };
                match next {
                    Some(entry) => {
                        let sequence = entry.sequence;
                        return Some((Ok(entry), (backend, id, sequence)));
                    }
                    None if follow => change.await,
                    None => return None,
                }
            }
        });
        Ok(entries.boxed())
    }
}
