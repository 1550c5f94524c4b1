//! Sandboxes that end and are started again, and those that somebody else changed meanwhile.

use std::sync::Arc;

use domain::{Ending, Lease, OnTimeout, State};
use policy::Caller;
use provider::{Condition, ProviderError};
use tracing::{info, warn};

use super::{Command, Handle, Task};
use crate::{ControlError, find, now};

impl Handle {
    pub(crate) async fn start(&self, caller: Caller) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Start { caller, answer }).await
    }

    pub(crate) async fn stop(&self, caller: Caller) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Stop { caller, answer }).await
    }

    /// Has its task see whether the provider has it as we do. One with much to do sees later.
    pub(crate) fn look(&self) {
        let _ = self.mailbox.try_send(Command::Look);
    }
}

impl Task {
    /// Runs the sandbox again with the files that it has. One that runs is left alone.
    pub(super) async fn start(&mut self, caller: &Caller) -> Result<Arc<Lease>, ControlError> {
        if matches!(self.lease.state, State::Running(_)) {
            return Ok(Arc::clone(&self.published.borrow()));
        }
        if matches!(self.lease.state, State::Paused(_)) {
            return self.resume(caller).await;
        }
        let before = self.lease.state.as_ended().filter(|_| !self.lease.damaged);
        let Some(before) = before else { return Err(self.wrong_state()) };
        let (permitted, since) = (self.permit(caller)?, self.lease.changed_at);
        let starting = before.start();
        self.enter(State::Starting(starting.clone()), now(), caller).await;
        match self.shared.provider.start(&permitted, &self.spec()).await {
            Ok(seen) => {
                // Starting it has told it all.
                self.lease.spec.origin = None;
                let at = now();
                self.lease.unenforced = seen.unenforced;
                self.lease.missing_layers = seen.missing_layers;
                self.lease.until = self.lease.spec.limits.timeout.map(|timeout| at.after(timeout));
                self.enter(State::Running(starting.ready()), at, caller).await;
                self.keep().await?;
                Ok(Arc::clone(&self.published.borrow()))
            }
            Err(error) => {
                self.enter(starting.returned(before), since, caller).await;
                // The provider may have started it all the same: what is there counts.
                self.look().await;
                Err(error.into())
            }
        }
    }

    /// Ends the sandbox and keeps its files. One that ended already is left alone.
    pub(super) async fn stop(&mut self, caller: &Caller) -> Result<Arc<Lease>, ControlError> {
        match &self.lease.state {
            State::Running(_) | State::Paused(_) => {}
            State::Stopped(_) => return Ok(Arc::clone(&self.published.borrow())),
            _ => return Err(self.wrong_state()),
        }
        let permitted = self.permit(caller)?;
        self.shared.provider.stop(&permitted).await?;
        match self.lease.state.clone() {
            State::Running(running) => {
                self.enter(running.ended(Ending::Stopped), now(), caller).await;
            }
            State::Paused(paused) => {
                self.enter(paused.ended(Ending::Stopped), now(), caller).await;
            }
            _ => {}
        }
        Ok(Arc::clone(&self.published.borrow()))
    }

    /// Serves a sandbox that was found: first what an earlier daemon may not have finished.
    pub(super) async fn take_over(mut self) {
        let soma = Caller::soma();
        match &self.lease.state {
            state if self.is_to_go(state) => match self.delete(&soma).await {
                Ok(()) => return,
                Err(error) => {
                    warn!(sandbox = %self.lease.id, %error, "its removal is not finished");
                }
            },
            State::Starting(starting) if self.lease.spec.origin.is_some() => {
                let starting = starting.clone();
                if let Ok(permitted) = self.permit(&soma) {
                    self.introduce_copy(&permitted).await;
                }
                let since = self.lease.changed_at;
                self.enter(State::Running(starting.ready()), since, &soma).await;
            }
            State::Running(_) => {
                let told = match self.permit(&soma) {
                    Ok(permitted) => {
                        let _turn = self.shared.introductions.acquire().await;
                        let set_up = self.shared.provider.set_up(&permitted, &self.lease.spec);
                        let told = set_up.await.map_err(ControlError::from);
                        self.repeat_network(&permitted).await;
                        told
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = told {
                    info!(sandbox = %self.lease.id, %error, "its guest was not set up again");
                }
            }
            _ => {}
        }
        self.serve().await;
    }

    /// Whether an earlier daemon, had it lived, would have removed the sandbox by now.
    fn is_to_go(&self, state: &State) -> bool {
        let at_its_time = self.lease.on_timeout == OnTimeout::Delete;
        match state {
            State::Deleting(_) => true,
            State::Stopped(stopped) => at_its_time && stopped.why == Ending::TimedOut,
            _ => false,
        }
    }

    /// Goes by what the provider has; whether nothing of the sandbox is left.
    pub(super) async fn look(&mut self) -> bool {
        let seen = match self.shared.provider.inspect(&self.lease.id).await {
            Ok(seen) => Some(seen),
            Err(ProviderError::NotFound { .. }) => None,
            Err(error) => {
                warn!(sandbox = %self.lease.id, %error, "the provider does not say how it goes");
                return false;
            }
        };
        let (soma, at) = (Caller::soma(), now());
        if self.lease.damaged {
            return false;
        }
        match (&self.lease.state, seen.map(|seen| seen.condition)) {
            (State::Running(_) | State::Paused(_), Some(Condition::Ended(ending))) => {
                self.end(Some(ending)).await
            }
            (State::Running(_) | State::Paused(_), None) => self.end(None).await,
            // Why it is kept in memory only this task knows.
            (State::Paused(paused), Some(Condition::Paused(rest)))
                if paused.rest.name() == rest.name() =>
            {
                false
            }
            (State::Deleting(_), _) => self.delete(&soma).await.is_ok(),
            // It was found missing once, or somebody started it without us.
            (
                State::Running(_) | State::Paused(_) | State::Stopped(_) | State::Failed(_),
                Some(condition),
            ) => {
                let state = find::state_of(&condition);
                if state != self.lease.state {
                    self.enter(state, at, &soma).await;
                }
                false
            }
            _ => false,
        }
    }
}
