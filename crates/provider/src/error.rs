//! Why a provider could not do what it was asked.

use domain::{Limit, SandboxId, SnapshotId, TemplateName};

/// A cause from some other crate.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a provider could not do what it was asked.
///
/// A variant exists only where a caller acts on it; the rest is [`ProviderError::Backend`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The sandbox is gone, or never was. Not retried.
    #[error("there is no sandbox `{id}`")]
    NotFound {
        /// What was asked for.
        id: SandboxId,
    },

    /// The sandbox is there but does not run.
    #[error("sandbox `{id}` is not running: {why}")]
    NotRunning {
        /// What was asked for.
        id: SandboxId,
        /// How it ended.
        why: domain::Ending,
    },

    /// The sandbox is there, and stands still until it is resumed.
    #[error("sandbox `{id}` is paused: resume it first")]
    Paused {
        /// What was asked for.
        id: SandboxId,
    },

    /// The host is full now; the same request may succeed later.
    #[error("there is no room for another sandbox: {reason}")]
    NoCapacity {
        /// What is short, and what to do.
        reason: String,
    },

    /// This host cannot do it until somebody changes the host.
    #[error("this host cannot run it: {reason}")]
    Unsupported {
        /// What is missing, and what to do.
        reason: String,
    },

    /// Nothing on this host would hold the sandbox to these limits.
    #[error("this host cannot hold a sandbox to its limits on {}: {fix}", Limit::list(limits))]
    Unenforced {
        /// Which.
        limits: Vec<Limit>,
        /// What would hold it to them.
        fix: String,
    },

    /// There is no such template.
    #[error("there is no template `{name}`: `soma template ls` lists those that are there")]
    NoTemplate {
        /// What was asked for.
        name: TemplateName,
    },

    /// There is such a template already.
    #[error("there is a template `{name}` already: choose another name, or replace it")]
    TemplateExists {
        /// What was asked for.
        name: TemplateName,
    },

    /// Sandboxes stand on the template.
    #[error("sandboxes stand on the template `{name}`: delete {} first", list(sandboxes))]
    TemplateInUse {
        /// Which template.
        name: TemplateName,
        /// Some of the sandboxes.
        sandboxes: Vec<SandboxId>,
    },

    /// There is no such snapshot.
    #[error("there is no snapshot `{id}`: `soma snapshot ls` lists those that are there")]
    NoSnapshot {
        /// What was asked for.
        id: SnapshotId,
    },

    /// Sandboxes were made from the snapshot.
    #[error("sandboxes were made from the snapshot `{id}`: delete {} first", list(sandboxes))]
    SnapshotInUse {
        /// Which snapshot.
        id: SnapshotId,
        /// Some of the sandboxes.
        sandboxes: Vec<SandboxId>,
    },

    /// The wish itself is wrong.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },

    /// It does not fit the present state of the sandbox.
    #[error("{reason}")]
    Conflict {
        /// What stands in the way, and what to do.
        reason: String,
    },

    /// The backend refused or broke. `step` completes the sentence "could not ...".
    #[error("could not {step}")]
    Backend {
        /// What was tried.
        step: String,
        /// Why it did not work.
        #[source]
        source: BoxError,
    },
}

impl ProviderError {
    /// Whether the same request may succeed later without anyone changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NoCapacity { .. })
    }

    /// Whether whoever asked can mend it, by asking for something else.
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::NotRunning { .. }
                | Self::Paused { .. }
                | Self::NoTemplate { .. }
                | Self::TemplateExists { .. }
                | Self::TemplateInUse { .. }
                | Self::NoSnapshot { .. }
                | Self::SnapshotInUse { .. }
                | Self::Invalid { .. }
                | Self::Conflict { .. }
        )
    }
}

fn list(sandboxes: &[SandboxId]) -> String {
    let names: Vec<String> = sandboxes.iter().map(|id| format!("`{id}`")).collect();
    names.join(", ")
}
