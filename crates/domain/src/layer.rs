//! Layers of isolation that not every host has.

use serde::{Deserialize, Serialize};

/// A layer of a sandbox's isolation without which it can be made all the same. Those without which
/// it cannot are not here: where one of them is missing, there is no sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Landlock, a second check of what commands may do.
    Landlock,
    /// Ids that nobody else on the host has.
    OwnIds,
    /// A file system of its own, rather than a folder of the host's.
    OwnDisk,
}

impl std::fmt::Display for Layer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Landlock => "landlock",
            Self::OwnIds => "own_ids",
            Self::OwnDisk => "own_disk",
        })
    }
}
