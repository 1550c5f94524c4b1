//! Why the store could not do what it was asked.

use domain::SandboxName;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What is on the disk is no database of ours, or is damaged.
    #[error("the database `{path}` cannot be read: {reason}")]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a later Soma.
    #[error("the database `{path}` is of a later soma: use that one, or move the file away")]
    Later {
        /// Which file.
        path: String,
    },
    /// Another sandbox of the same owner has this name.
    #[error("a sandbox with the name `{name}` is there already: take another name")]
    NameTaken {
        /// The name.
        name: SandboxName,
    },
    /// It could not be reached, read or written.
    #[error("could not {step} in the database")]
    Backend {
        /// What was tried.
        step: &'static str,
        /// Why it did not work.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
