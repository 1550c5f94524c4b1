//! Why the store could not do what it was asked.

use std::path::PathBuf;

use domain::SandboxName;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// What is there is no database of ours, or is damaged.
    #[error("the database `{name}` cannot be read: {reason}")]
    Damaged {
        /// Which file, or which database of which server.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It was damaged while it was in use, and an empty one has taken its place.
    #[error(
        "the database `{name}` was damaged and is set aside as `{}`: ask again, it is filled anew \
         from the sandboxes' folders", aside.display()
    )]
    Lost {
        /// Which file.
        name: String,
        /// Where it is now.
        aside: PathBuf,
    },
    /// It was written by a later Soma.
    #[error("the database `{name}` is of a later soma: use that one, or another database")]
    Later {
        /// Which file, or which database of which server.
        name: String,
    },
    /// It is the memory of another daemon.
    #[error(
        "the database `{name}` belongs to the daemon of another home: \
         give this one a database of its own"
    )]
    Taken {
        /// Which database of which server.
        name: String,
    },
    /// Its server does not answer, or not to us.
    #[error(
        "the database `{name}` does not answer: \
         see that its server runs, that it can be reached from here, and that the user may use it"
    )]
    Unreachable {
        /// Which database of which server.
        name: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
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
