//! What happened to a sandbox, for whoever wants to know later.

use serde::{Deserialize, Serialize};

use crate::{Limits, Owner, SandboxId, State, Timestamp};

/// One thing that happened to one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which.
    pub sandbox: SandboxId,
    /// Whose it is, so that others do not see it.
    pub owner: Owner,
    /// Who did it: a key's name, `local`, or `soma` itself.
    pub actor: String,
    /// What.
    pub happened: Happened,
}

/// What can happen to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happened {
    /// It went into another state.
    StateChanged(State),
    /// Its time was set anew.
    TimeoutSet {
        /// When it is over now; never when unset.
        until: Option<Timestamp>,
    },
    /// What it may use was set anew.
    LimitsSet {
        /// What it may use now.
        limits: Limits,
    },
}
