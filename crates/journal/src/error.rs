//! Why an event is not written down, or not found.

use std::io;
use std::path::PathBuf;

/// Why an event is not written down, or not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The folder or a segment in it cannot be used.
    #[error("the events in `{path}` cannot be used: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nothing can be written, as when the disk is full.
    #[error("an event could not be written to `{path}`: {source}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It cannot be put into words.
    #[error("an event cannot be put into words: {0}")]
    Unwritable(#[source] serde_json::Error),
    /// It would take too much.
    #[error("an event takes {bytes} bytes: the most is {most}")]
    TooLarge {
        /// So much.
        bytes: usize,
        /// What is allowed.
        most: usize,
    },
    /// So many follow that no more can.
    #[error("{most} follow the events already, which is the most: end one of them")]
    TooMany {
        /// What is allowed.
        most: usize,
    },
    /// The daemon is about to end.
    #[error("the daemon is about to end: ask again when it is back")]
    Closed,
}
