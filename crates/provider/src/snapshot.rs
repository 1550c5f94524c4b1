//! Snapshots as a provider keeps them.

use domain::{SandboxId, SnapshotId};

/// What of a sandbox is captured, and for how long that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotKind {
    /// Its processes too, where there are any.
    pub memory: bool,
    /// Nobody keeps it: it is not listed, and goes with the last sandbox that stands on it.
    pub passing: bool,
}

/// A snapshot that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Which.
    pub id: SnapshotId,
    /// What was written down with it.
    pub record: String,
    /// Whether processes were captured too.
    pub memory: bool,
    /// How much of the host's disk is its own, without what it shares with those below it.
    pub bytes: u64,
    /// The snapshots that it shares the rest with.
    pub layers: Vec<SnapshotId>,
    /// Some of the sandboxes that were made from it.
    pub sandboxes: Vec<SandboxId>,
}
