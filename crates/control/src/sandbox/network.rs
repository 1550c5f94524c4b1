//! What a sandbox may reach, changed while it runs.

use std::sync::Arc;

use domain::{Event, Happened, Lease, NetworkPolicy, SandboxId, State};
use policy::{Action, Caller, Permitted};
use provider::ProviderError;
use tracing::{info, warn};

use super::{Command, Handle, Task};
use crate::{ControlError, NetworkWish};

impl Handle {
    pub(crate) async fn change_network(
        &self,
        caller: Caller,
        wish: NetworkWish,
    ) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Network { caller, wish, answer }).await
    }
}

impl Task {
    /// Writes it down first: a daemon that dies meanwhile is followed by one that finds it, and
    /// has the provider do it.
    pub(super) async fn change_network(
        &mut self,
        caller: &Caller,
        wish: NetworkWish,
    ) -> Result<Arc<Lease>, ControlError> {
        if matches!(self.lease.state, State::Paused(_)) {
            self.resume(caller).await?;
        }
        let runs = matches!(self.lease.state, State::Running(_));
        let is_whole = self.lease.state.as_ended().is_some() && !self.lease.damaged;
        if !runs && !is_whole {
            return Err(self.wrong_state());
        }
        let (id, before) = (self.lease.id.clone(), self.lease.spec.network.clone());
        let policy = self.shared.whole(caller, (&id, &self.lease.owner), wish, &before)?;
        let action = Action::ChangeNetwork(&self.lease, &policy);
        let permitted = self.shared.rules.decide(caller, action, id)?;
        self.lease.spec.network = policy;
        let changed = match self.keep().await {
            Ok(()) if runs => {
                let policy = &self.lease.spec.network;
                self.shared.provider.change_network(&permitted, policy).await.map_err(Into::into)
            }
            kept => kept,
        };
        if let Err(error) = changed {
            self.return_to(before, &permitted, runs).await;
            return Err(error);
        }
        if runs && !self.lease.spec.network.transforms.is_empty() {
            // Programs inside are to trust whoever ends their connections from now on. Who is inside
            // can prevent that, and would only hurt itself: the change holds all the same.
            if let Err(error) = self.shared.provider.set_up(&permitted, &self.lease.spec).await {
                warn!(sandbox = %self.lease.id, %error, "it does not trust its own authority");
            }
        }
        let policy = &self.lease.spec.network;
        let summary = Event::words_of(&policy.summary());
        self.tell(caller, Happened::NetworkChanged { mode: policy.mode, summary });
        Ok(Arc::clone(&self.published.borrow()))
    }

    /// What could not be changed is as it was, and that is written down again.
    async fn return_to(
        &mut self,
        before: NetworkPolicy,
        permitted: &Permitted<SandboxId>,
        runs: bool,
    ) {
        self.lease.spec.network = before;
        // The provider may have done it and not lived to say so.
        let returned = match self.keep().await {
            Ok(()) if runs => {
                let policy = &self.lease.spec.network;
                self.shared.provider.change_network(permitted, policy).await.map_err(Into::into)
            }
            kept => kept,
        };
        // What others see is what was last said to hold, also where it could not be written.
        self.published.send_replace(Arc::new(self.lease.clone()));
        if let Err(error) = returned {
            warn!(sandbox = %self.lease.id, %error, "a change of its network is half undone");
        }
    }

    /// Has the provider do what is written down, in case that an earlier daemon did not get to it.
    pub(super) async fn repeat_network(&self, permitted: &Permitted<SandboxId>) {
        let policy = &self.lease.spec.network;
        match self.shared.provider.change_network(permitted, policy).await {
            Ok(()) | Err(ProviderError::Unsupported { .. }) => {}
            Err(error) => {
                info!(sandbox = %self.lease.id, %error, "its network was not set up again");
            }
        }
    }
}
