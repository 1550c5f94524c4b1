//! What the engine can be asked, and what it answers.
//!
//! The whole of it: whoever may send these may make and end sandboxes, and nothing else. The
//! engine takes them from its own unprivileged programs only, and checks every value anyway.

use domain::{Lifetime, Limit, Limits, SandboxId};
use provider::Observed;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// A request and the number by which its answer is told from others on the same connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) verb: Verb,
}

/// An answer to the request with the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) number: u64,
    pub(crate) answer: Result<Answer, Refusal>,
}

/// What is asked of the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Verb {
    /// Make a sandbox; done when it is there already.
    Create { id: SandboxId, limits: Limits, lifetime: Lifetime, allow_unenforced: bool },
    /// Open a connection to a sandbox's guest; it comes along with the answer.
    Connect { id: SandboxId },
    /// See one sandbox.
    Inspect { id: SandboxId },
    /// See all sandboxes.
    List,
    /// End a sandbox and remove all of it; done when there is none.
    Destroy { id: SandboxId },
    /// Tell where the time of the last launch went.
    Steps,
    /// Tell how many sandboxes wait for an owner.
    Prepared,
    /// End the engine. Sandboxes that are kept go on.
    Leave,
}

/// What the engine says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Observed(Observed),
    Sandboxes(Vec<Observed>),
    Steps(Vec<(String, u64)>),
    Prepared(u32),
}

/// Why the engine does not do it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotFound,
    NotRunning(domain::Ending),
    Invalid(String),
    /// Nothing would hold it to these limits; the text says what would.
    Unenforced(Vec<Limit>, String),
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
