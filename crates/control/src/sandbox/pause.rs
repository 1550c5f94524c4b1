//! Sandboxes that stand still, and go on when somebody needs them.
//!
//! A pause freezes at once; after a grace the sandbox is put on the disk, which frees its memory.
//! Whoever needs a paused sandbox has it resumed and waits for that. All of it passes through the
//! sandbox's one task: ten who ask at one time cause one resume, and the nine others find it done.

use std::sync::Arc;
use std::time::Duration;

use domain::{Ending, Event, Happened, Lease, OnTimeout, Rest, SandboxSpec, State};
use policy::Caller;
use tokio::time::Instant;
use tracing::warn;

use super::{AGAIN, Command, Handle, Task};
use crate::{ControlError, Fault, now};

/// What the provider is told to make. It keeps no clock for a sandbox that is paused when its time is
/// over: at that moment there is nothing to end.
pub(crate) fn spec_of(lease: &Lease) -> SandboxSpec {
    let mut spec = lease.spec.clone();
    if lease.on_timeout == OnTimeout::Pause {
        spec.limits.timeout = None;
    }
    spec
}

impl Handle {
    pub(crate) async fn pause(
        &self,
        caller: Caller,
        grace: Option<Duration>,
    ) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Pause { caller, grace, answer }).await
    }

    pub(crate) async fn resume(&self, caller: Caller) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Resume { caller, answer }).await
    }

    /// The sandbox when it is no longer on its way to anywhere; one that stands still goes on first,
    /// unless it was made to go on only for who asks for that.
    pub(crate) async fn awake(&self, caller: &Caller) -> Result<Arc<Lease>, ControlError> {
        let lease = self.settled().await;
        if lease.auto_resume && matches!(lease.state, State::Paused(_)) {
            return self.resume(caller.clone()).await;
        }
        Ok(lease)
    }
}

impl Task {
    /// Lets the sandbox stand still.
    pub(super) async fn pause(
        &mut self,
        caller: &Caller,
        grace: Option<Duration>,
    ) -> Result<Arc<Lease>, ControlError> {
        let State::Running(running) = self.lease.state.clone() else {
            return Err(self.wrong_state());
        };
        let (permitted, since) = (self.permit(caller)?, self.lease.changed_at);
        let pausing = running.pause();
        self.enter(State::Pausing(pausing.clone()), now(), caller).await;
        if let Err(error) = self.shared.provider.pause(&permitted).await {
            self.enter(State::Running(pausing.returned()), since, caller).await;
            // The provider may have paused it all the same: what is there counts.
            self.look().await;
            return Err(error.into());
        }
        self.lease.until = None;
        let rest = Rest::Frozen { because: None };
        self.enter(State::Paused(pausing.paused(rest)), now(), caller).await;
        let grace = grace.unwrap_or(self.shared.grace);
        if grace.is_zero() {
            self.hibernate().await;
        } else {
            self.hibernate_at = Some(Instant::now() + grace);
        }
        Ok(Arc::clone(&self.published.borrow()))
    }

    /// Puts a sandbox that stands still on the disk. Where that cannot be done it stays in memory, and
    /// its state says why.
    pub(super) async fn hibernate(&mut self) {
        self.hibernate_at = None;
        let State::Paused(paused) = self.lease.state.clone() else { return };
        if paused.rest == Rest::Hibernated {
            return;
        }
        let rest = match self.permit(&Caller::soma()) {
            Ok(permitted) => self.shared.provider.hibernate(&permitted).await,
            Err(error) => return warn!(sandbox = %self.lease.id, %error, "it stays in memory"),
        };
        let rest = rest.unwrap_or_else(|error| {
            warn!(sandbox = %self.lease.id, %error, "it stays in memory");
            Rest::Frozen { because: Some(Event::words_of(&error)) }
        });
        let since = self.lease.changed_at;
        self.enter(State::Paused(paused.kept(rest)), since, &Caller::soma()).await;
    }

    /// Lets the sandbox go on. One that runs is left alone.
    pub(super) async fn resume(&mut self, caller: &Caller) -> Result<Arc<Lease>, ControlError> {
        let paused = match self.lease.state.clone() {
            State::Running(_) => return Ok(Arc::clone(&self.published.borrow())),
            State::Paused(paused) => paused,
            _ => return Err(self.wrong_state()),
        };
        // Whoever may use it may have it resumed.
        let (permitted, since) = (self.permit(&Caller::soma())?, self.lease.changed_at);
        let resuming = paused.resume();
        self.enter(State::Resuming(resuming.clone()), now(), caller).await;
        match self.shared.provider.resume(&permitted, &self.spec()).await {
            Ok(seen) => {
                self.introduce_copy(&permitted).await;
                let at = now();
                self.lease.unenforced = seen.unenforced;
                self.lease.missing_layers = seen.missing_layers;
                self.lease.until = self.lease.spec.limits.timeout.map(|timeout| at.after(timeout));
                self.enter(State::Running(resuming.resumed()), at, caller).await;
                self.keep().await?;
                Ok(Arc::clone(&self.published.borrow()))
            }
            Err(error) => {
                let before = resuming.returned(paused);
                self.enter(State::Paused(before), since, caller).await;
                // What stood still may have ended meanwhile, or goes on all the same.
                self.look().await;
                Err(error.into())
            }
        }
    }

    /// Resumes the sandbox if it is paused; fails unless it runs afterwards.
    pub(super) async fn go_on(&mut self, caller: &Caller) -> Result<(), ControlError> {
        match self.lease.state {
            State::Running(_) => Ok(()),
            State::Paused(_) => self.resume(caller).await.map(drop),
            _ => Err(self.wrong_state()),
        }
    }

    /// Its time is over. Where it cannot be paused it ends, and its files stay.
    pub(super) async fn pause_in_time(&mut self) {
        self.pause_at = None;
        let soma = Caller::soma();
        let Err(error) = self.pause(&soma, None).await else { return };
        let reason = Event::words_of(&error);
        self.tell(&soma, Happened::PauseFailed { reason });
        if error.fault() != Fault::Unsupported {
            warn!(sandbox = %self.lease.id, %error, "its time is over, but it runs on");
            self.pause_at = Some(Instant::now() + AGAIN);
            return;
        }
        let State::Running(running) = self.lease.state.clone() else { return };
        let stopped = match self.permit(&soma) {
            Ok(permitted) => self.shared.provider.stop(&permitted).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        match stopped {
            Ok(()) => self.enter(running.ended(Ending::TimedOut), now(), &soma).await,
            Err(error) => {
                warn!(sandbox = %self.lease.id, %error, "its time is over, but it runs on");
                self.pause_at = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Sets the clocks by what the sandbox does now.
    pub(super) fn set_clocks(&mut self) {
        let is_paused_in_time = self.lease.on_timeout == OnTimeout::Pause;
        self.pause_at = match (&self.lease.state, self.lease.until) {
            (State::Running(_), Some(until)) if is_paused_in_time => {
                let left = u64::try_from(until.0.saturating_sub(now().0)).unwrap_or(0);
                Some(Instant::now() + Duration::from_millis(left))
            }
            _ => None,
        };
        self.hibernate_at = None;
    }

    /// The same for a sandbox that was found. What stands still was to be put on the disk by the
    /// daemon that paused it.
    pub(super) fn set_clocks_of_earlier(&mut self) {
        self.set_clocks();
        if let State::Paused(paused) = &self.lease.state
            && paused.rest != Rest::Hibernated
        {
            let until = self.lease.changed_at.after(self.shared.grace);
            let left = u64::try_from(until.0.saturating_sub(now().0)).unwrap_or(0);
            let left = Duration::from_millis(left).min(self.shared.grace);
            self.hibernate_at = Some(Instant::now() + left);
        }
    }

    /// What the provider is told that the sandbox is to be.
    pub(super) fn spec(&self) -> SandboxSpec {
        spec_of(&self.lease)
    }
}
