//! Where a command runs: a sandbox that lives as long as this process, or one that is there.

use std::sync::{Mutex, PoisonError};

use api_v1::network::Network;
use api_v1::sandboxes::{Create, Sandbox};
use async_trait::async_trait;
use client::{Client, Held};
use domain::{Bytes, Ending, SandboxSpec};
use guest_proto::GuestClient;
use guest_proto::process::Signal;

use crate::failure::{Failure, SOMA_FAILED};
use crate::moment::whole_seconds;
use crate::output::building::watched;

/// The longest time that a sandbox can be given, in seconds: a year.
const LONGEST: u64 = 366 * 24 * 3600;

/// What a session needs of whoever has the sandboxes.
#[async_trait]
pub(crate) trait Ground: Send + Sync {
    /// The sandbox to run in. When this future is dropped, what it made goes with the session.
    async fn enter(&self, spec: &SandboxSpec) -> Result<Entered, Failure>;

    /// What became of it.
    async fn look(&self, id: &str) -> Option<Seen>;

    /// Leaves nothing of this session behind; `pid` is its command while that may still run.
    async fn leave(&self, entered: &Entered, pid: Option<u32>) -> Result<(), Failure>;
}

/// A sandbox that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Entered {
    pub(crate) id: String,
    pub(crate) guest: GuestClient,
}

/// A sandbox as it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Running,
    TimedOut,
    /// It ended for this reason.
    Ended(String),
}

/// A fresh sandbox of a daemon's, which dies with this process.
pub(crate) struct Fresh {
    client: Client,
    network: Option<Network>,
    held: Mutex<Option<Held>>,
}

impl Fresh {
    /// One that may reach this, or what the daemon chooses.
    pub(crate) fn new(client: Client, network: Option<Network>) -> Self {
        Self { client, network, held: Mutex::new(None) }
    }
}

#[async_trait]
impl Ground for Fresh {
    async fn enter(&self, spec: &SandboxSpec) -> Result<Entered, Failure> {
        let wish = Create { network_policy: self.network.clone(), ..wish(spec) };
        let making = self.client.create_held(&wish);
        let held = watched(&self.client, wish.template_name.as_deref(), making).await?;
        let id = held.sandbox.id.clone();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(Entered { guest: self.client.guest(&id)?, id })
    }

    async fn look(&self, id: &str) -> Option<Seen> {
        self.client.get(id).await.ok().map(seen)
    }

    async fn leave(&self, entered: &Entered, _pid: Option<u32>) -> Result<(), Failure> {
        match self.client.delete(&entered.id).await {
            Err(error) if error.status() == Some(http::StatusCode::NOT_FOUND) => Ok(()),
            deleted => Ok(deleted?),
        }
    }
}

/// A sandbox that is there, and stays.
pub(crate) struct Existing {
    client: Client,
    id: String,
}

impl Existing {
    /// The sandbox that is called so, which has to run.
    pub(crate) async fn find(client: Client, which: &str) -> Result<(Self, Sandbox), Failure> {
        let sandbox = client.get(which).await?;
        let states = ["starting", "running", "pausing", "paused", "unpausing"];
        if !states.contains(&sandbox.state.as_str()) {
            let reason = sandbox.reason.as_deref().map(|reason| format!(": {reason}"));
            let (state, reason) = (&sandbox.state, reason.unwrap_or_default());
            let message = format!("sandbox `{which}` is {state}{reason}");
            let failure = Failure::new(SOMA_FAILED, message);
            return Err(failure.hint(format!("`soma start {which}` runs it again")));
        }
        Ok((Self { client, id: sandbox.id.clone() }, sandbox))
    }
}

#[async_trait]
impl Ground for Existing {
    async fn enter(&self, _spec: &SandboxSpec) -> Result<Entered, Failure> {
        Ok(Entered { id: self.id.clone(), guest: self.client.guest(&self.id)? })
    }

    async fn look(&self, id: &str) -> Option<Seen> {
        self.client.get(id).await.ok().map(seen)
    }

    async fn leave(&self, entered: &Entered, pid: Option<u32>) -> Result<(), Failure> {
        if let Some(pid) = pid {
            // One that has ended meanwhile is what was wanted.
            let _ = entered.guest.signal(pid, Signal::SIGNAL_SIGKILL).await;
        }
        Ok(())
    }
}

fn seen(sandbox: Sandbox) -> Seen {
    let reason = sandbox.reason.unwrap_or_else(|| sandbox.state.clone());
    match sandbox.state.as_str() {
        "starting" | "running" => Seen::Running,
        "stopped" if reason == Ending::TimedOut.to_string() => Seen::TimedOut,
        _ => Seen::Ended(reason),
    }
}

/// The wish for such a sandbox. The API counts in mebibytes and seconds; what lies between is
/// rounded up, so that nobody gets less than was typed.
pub(crate) fn wish(spec: &SandboxSpec) -> Create {
    let limits = &spec.limits;
    let mebibytes = |bytes: Bytes| bytes.0.div_ceil(1 << 20);
    let timeout = limits.timeout.map(|timeout| whole_seconds(timeout).clamp(1, LONGEST));
    Create {
        vcpu: Some(f64::from(limits.cpus.0) / 1000.0),
        memory: Some(mebibytes(limits.memory)),
        disk: Some(mebibytes(limits.disk)),
        pids: Some(limits.pids),
        inodes: limits.inodes,
        open_files: limits.open_files,
        timeout,
        unlimited_time: timeout.is_none().then_some(true),
        env_vars: (!spec.environment.is_empty()).then(|| spec.environment.clone()),
        template_name: spec.template.as_ref().map(ToString::to_string),
        sudo: Some(spec.sudo),
        allow_unenforced: Some(spec.allow_unenforced),
        ..Create::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::Limits;

    use super::*;

    #[test]
    fn nobody_gets_less_than_was_typed() {
        let limits = Limits {
            memory: Bytes((16 << 20) + 1),
            timeout: Some(Duration::from_millis(5500)),
            ..Limits::default()
        };
        let wish = wish(&SandboxSpec { limits, ..SandboxSpec::default() });
        assert_eq!((wish.memory, wish.timeout, wish.vcpu), (Some(17), Some(6), Some(2.0)));
    }

    #[test]
    fn no_time_limit_is_for_ever() {
        let limits = Limits { timeout: None, ..Limits::default() };
        let wish = wish(&SandboxSpec { limits, ..SandboxSpec::default() });
        assert_eq!((wish.timeout, wish.unlimited_time), (None, Some(true)));
    }
}
