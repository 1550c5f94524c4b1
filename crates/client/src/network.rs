//! Calls on what sandboxes may reach, and tried to reach.

use std::fmt::Write as _;

use api_v1::network::{Attempt, AttemptList, Attempts, LearnedNetwork, Network};
use http::Method;

use crate::sandboxes::path;
use crate::server_events::ServerEvents;
use crate::{Client, ClientError};

/// What a sandbox tries to reach, as it does.
#[derive(Debug)]
pub struct NetworkAttempts {
    events: ServerEvents,
}

impl Client {
    /// What a sandbox may reach.
    pub async fn network(&self, which: &str) -> Result<Network, ClientError> {
        self.ask::<(), _>(Method::GET, &path(which, "/network"), None).await
    }

    /// Lets a sandbox reach this, and nothing else.
    pub async fn set_network(
        &self,
        which: &str,
        network: &Network,
    ) -> Result<Network, ClientError> {
        self.ask(Method::PUT, &path(which, "/network"), Some(network)).await
    }

    /// The policy that a sandbox would need for what it reached so far.
    pub async fn learned_network(&self, which: &str) -> Result<LearnedNetwork, ClientError> {
        self.ask::<(), _>(Method::GET, &path(which, "/network/learned"), None).await
    }

    /// Some of what a sandbox tried to reach, the oldest first.
    pub async fn network_log(
        &self,
        which: &str,
        asked: &Attempts,
    ) -> Result<AttemptList, ClientError> {
        let mut path = path(which, "/network/log?");
        if let Some(after) = asked.after {
            let _ = write!(path, "after={after}&");
        }
        if let Some(limit) = asked.limit {
            let _ = write!(path, "limit={limit}&");
        }
        if let Some(follow) = asked.follow {
            let _ = write!(path, "follow={follow}");
        }
        self.ask::<(), _>(Method::GET, &path, None).await
    }

    /// Follows what a sandbox tries to reach, after the entry with this number.
    pub async fn follow_network_log(
        &self,
        which: &str,
        after: u64,
    ) -> Result<NetworkAttempts, ClientError> {
        let path = path(which, &format!("/network/log/stream?after={after}"));
        Ok(NetworkAttempts { events: self.server_events(&path).await? })
    }
}

impl NetworkAttempts {
    /// Waits for the next one; `None` when the daemon ends the stream.
    pub async fn next(&mut self) -> Result<Option<Attempt>, ClientError> {
        let Some(event) = self.events.next().await? else { return Ok(None) };
        self.events.read(&event.data).map(Some)
    }
}
