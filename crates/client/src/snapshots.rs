//! Calls on snapshots.

use api_v1::sandboxes::Sandbox;
use api_v1::snapshots::{Fork, Forked, NewSnapshot, Restore, Rollback, Snapshot, SnapshotList};
use http::Method;

use crate::sandboxes::{escaped, path};
use crate::{Client, ClientError};

impl Client {
    /// Takes a snapshot of a sandbox.
    pub async fn snapshot(
        &self,
        which: &str,
        wanted: &NewSnapshot,
    ) -> Result<Snapshot, ClientError> {
        self.ask(Method::POST, &path(which, "/snapshot/create"), Some(wanted)).await
    }

    /// Every snapshot, the latest first.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>, ClientError> {
        let mut all: Vec<Snapshot> = Vec::new();
        for page in 1u64.. {
            let path = format!("/v1/snapshots?page={page}&page-size=100");
            let listed: SnapshotList = self.ask::<(), _>(Method::GET, &path, None).await?;
            let is_last = listed.items.is_empty();
            all.extend(listed.items);
            if is_last || all.len() as u64 >= listed.total_items {
                break;
            }
        }
        Ok(all)
    }

    /// Removes a snapshot.
    pub async fn remove_snapshot(&self, which: &str) -> Result<(), ClientError> {
        let path = format!("/v1/snapshot/{}", escaped(which));
        self.order::<()>(Method::DELETE, &path, None).await
    }

    /// Makes a sandbox from a snapshot.
    pub async fn restore(&self, wanted: &Restore) -> Result<Sandbox, ClientError> {
        self.ask(Method::POST, "/v1/snapshot/restore", Some(wanted)).await
    }

    /// Copies a sandbox.
    pub async fn fork(&self, which: &str, wanted: &Fork) -> Result<Forked, ClientError> {
        self.ask(Method::POST, &path(which, "/fork"), Some(wanted)).await
    }

    /// Makes a sandbox what it was in a snapshot.
    pub async fn roll_back(&self, which: &str, snapshot: &str) -> Result<Sandbox, ClientError> {
        let wanted = Rollback { snapshot_name: snapshot.to_owned() };
        self.ask(Method::POST, &path(which, "/rollback"), Some(&wanted)).await
    }
}
