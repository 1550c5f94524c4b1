//! What a provider sees of a sandbox from outside.

use domain::{Ending, Layer, Limit, Rest, SandboxId};
use serde::{Deserialize, Serialize};

/// One sandbox as its provider sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Which one.
    pub id: SandboxId,
    /// What it is doing.
    pub condition: Condition,
    /// Whether it is kept until somebody destroys it; others go with whoever made them.
    pub is_kept: bool,
    /// Those of its limits that nothing holds it to, as whoever asked for it allowed.
    pub unenforced: Vec<Limit>,
    /// The layers of isolation that its host could not give it.
    pub missing_layers: Vec<Layer>,
}

/// Whether a sandbox runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// Its guest can be reached.
    Running,
    /// It stands still, and goes on where it was when it is resumed.
    Paused(Rest),
    /// It ended. Its files are still there.
    Ended(Ending),
}
