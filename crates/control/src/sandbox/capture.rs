//! Sandboxes captured while they are used: they stand still for a moment, are put on the disk,
//! captured there, and go on.

use std::sync::Arc;
use std::time::Duration;

use domain::{Lease, Origin, Rest, SandboxId, SandboxSpec, SnapshotRecord, State};
use policy::{Caller, Permitted};
use provider::{ProviderError, SnapshotKind};
use tracing::warn;

use super::{Command, Handle, Task};
use crate::{ControlError, now};

impl Handle {
    /// Takes the snapshot that this record is of, but for the sandbox in it, which is filled in.
    pub(crate) async fn capture(
        &self,
        caller: Caller,
        record: SnapshotRecord,
        kind: SnapshotKind,
    ) -> Result<SnapshotRecord, ControlError> {
        let record = Box::new(record);
        self.ask(|answer| Command::Capture { caller, record, kind, answer }).await
    }

    pub(crate) async fn roll_back(
        &self,
        caller: Caller,
        origin: Origin,
    ) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::RollBack { caller, origin, answer }).await
    }
}

impl Task {
    /// Takes a snapshot. Whatever the sandbox did before, it does afterwards.
    pub(super) async fn capture(
        &mut self,
        caller: &Caller,
        mut record: SnapshotRecord,
        kind: SnapshotKind,
    ) -> Result<SnapshotRecord, ControlError> {
        let permitted = self.permit(caller)?;
        record.lease = self.lease.clone();
        let text = record.to_text().map_err(|error| ControlError::Broken {
            step: "write the snapshot's record".to_owned(),
            source: Box::new(error),
        })?;
        let running = match self.lease.state.clone() {
            State::Running(running) => running,
            State::Paused(_) => {
                self.hibernate().await;
                self.is_on_the_disk()?;
                self.shared.provider.capture(&permitted, &record.id, kind, &text).await?;
                return Ok(record);
            }
            State::Stopped(_) => {
                let kind = SnapshotKind { memory: false, ..kind };
                self.shared.provider.capture(&permitted, &record.id, kind, &text).await?;
                return Ok(record);
            }
            _ => return Err(self.wrong_state()),
        };
        let since = self.lease.changed_at;
        let snapshotting = running.snapshot();
        self.enter(State::Snapshotting(snapshotting.clone()), now(), caller).await;
        let captured = self.capture_standing(&permitted, &record, kind, &text).await;
        match self.shared.provider.resume(&permitted, &self.spec_from_now()).await {
            Ok(seen) => {
                self.lease.missing_layers = seen.missing_layers;
                self.enter(State::Running(snapshotting.returned()), since, caller).await;
                self.keep().await?;
            }
            Err(error) => {
                warn!(sandbox = %self.lease.id, %error, "it was captured and does not go on");
                // Wherever it is now, it goes on from there when somebody needs it.
                let rest = Rest::Hibernated;
                self.enter(State::Paused(snapshotting.paused(rest)), now(), caller).await;
                self.look().await;
                captured?;
                return Err(error.into());
            }
        }
        captured.map(|()| record)
    }

    async fn capture_standing(
        &self,
        permitted: &Permitted<SandboxId>,
        record: &SnapshotRecord,
        kind: SnapshotKind,
        text: &str,
    ) -> Result<(), ControlError> {
        let provider = &self.shared.provider;
        provider.pause(permitted).await?;
        match provider.hibernate(permitted).await? {
            Rest::Hibernated => Ok(provider.capture(permitted, &record.id, kind, text).await?),
            Rest::Frozen { because } => Err(cannot_capture(because)),
        }
    }

    /// Tells a copy what is new in it, if nobody lived to do so: before that, its guest wants to be
    /// shown the token of what it is a copy of.
    pub(super) async fn introduce_copy(&mut self, permitted: &Permitted<SandboxId>) {
        if self.lease.spec.origin.is_none() {
            return;
        }
        if let Err(error) = self.shared.provider.set_up(permitted, &self.spec()).await {
            return warn!(sandbox = %self.lease.id, %error, "a copy was not told what is new in it");
        }
        self.lease.spec.origin = None;
        if let Err(error) = self.keep().await {
            warn!(sandbox = %self.lease.id, %error, "it is told once more what is new in it");
        }
    }

    fn is_on_the_disk(&self) -> Result<(), ControlError> {
        match &self.lease.state {
            State::Paused(paused) => match &paused.rest {
                Rest::Hibernated => Ok(()),
                Rest::Frozen { because } => Err(cannot_capture(because.clone())),
            },
            _ => Err(self.wrong_state()),
        }
    }

    /// What the provider is told of a sandbox that goes on with the time that it has left.
    fn spec_from_now(&self) -> SandboxSpec {
        let mut spec = self.spec();
        if let (Some(until), Some(_)) = (self.lease.until, spec.limits.timeout) {
            let left = u64::try_from(until.0.saturating_sub(now().0)).unwrap_or(0);
            spec.limits.timeout = Some(Duration::from_millis(left.max(1)));
        }
        spec
    }

    /// Makes the sandbox what a snapshot was.
    pub(super) async fn roll_back(
        &mut self,
        caller: &Caller,
        origin: Origin,
    ) -> Result<Arc<Lease>, ControlError> {
        let permitted = self.permit(caller)?;
        let starting = match self.lease.state.clone() {
            State::Running(running) => running.roll_back(),
            State::Paused(paused) => paused.resume().resumed().roll_back(),
            other => match other.as_ended().filter(|_| !self.lease.damaged) {
                Some(ended) => ended.start(),
                None => return Err(self.wrong_state()),
            },
        };
        self.enter(State::Starting(starting.clone()), now(), caller).await;
        match self.shared.provider.roll_back(&permitted, &self.spec(), &origin).await {
            Ok(seen) => {
                let at = now();
                self.lease.missing_layers = seen.missing_layers;
                self.lease.until = self.lease.spec.limits.timeout.map(|timeout| at.after(timeout));
                self.enter(State::Running(starting.ready()), at, caller).await;
                self.keep().await?;
                Ok(Arc::clone(&self.published.borrow()))
            }
            Err(error) => {
                let reason = format!("it could not be brought back to `{}`", origin.snapshot);
                self.enter(State::Failed(starting.failed(reason)), now(), caller).await;
                // What is there counts.
                self.look().await;
                Err(error.into())
            }
        }
    }
}

/// What is not on the disk is not captured.
fn cannot_capture(because: Option<String>) -> ControlError {
    let because = because.unwrap_or_else(|| "its memory could not be put on the disk".to_owned());
    let reason = format!(
        "no snapshot can be taken of a sandbox that runs ({because}); stop it, and its files can be \
         captured"
    );
    ControlError::Provider(ProviderError::Unsupported { reason })
}
