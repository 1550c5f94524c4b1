//! What went wrong in the engine, in a form that crosses process borders.
//!
//! An error inside the engine is born in one of three processes (engine, launcher, the
//! sandbox's first process) and read in a fourth. So it is text and a kind, no live object.

use std::fmt::Display;
use std::io;

use serde::{Deserialize, Serialize};

/// Why the engine could not do something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("could not {step}: {cause}")]
pub(crate) struct Failure {
    /// Completes the sentence "could not ...".
    pub(crate) step: String,
    /// The kernel's word or our own.
    pub(crate) cause: String,
    /// Who can mend it.
    pub(crate) kind: Kind,
}

/// Who can mend a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The host lacks something that its owner can give.
    Unsupported,
    /// The host is full now.
    NoCapacity,
    /// Something broke.
    Broken,
}

impl Failure {
    /// A failure that is ours to explain.
    pub(crate) fn new(step: impl Into<String>, cause: impl Display, kind: Kind) -> Self {
        Self { step: step.into(), cause: cause.to_string(), kind }
    }

    /// A failure in the kernel's words.
    pub(crate) fn of(step: impl Into<String>, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        Self { step: step.into(), kind: kind_of(&error), cause: cause_of(&error) }
    }
}

/// Gives the name of a step to an error.
pub(crate) trait Step<T> {
    /// `step` completes the sentence "could not ...".
    fn step(self, step: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(step, error))
    }
}

fn kind_of(error: &io::Error) -> Kind {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
            Kind::NoCapacity
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Kind::Unsupported,
        _ => Kind::Broken,
    }
}

/// The kernel's word without Rust's `(os error 28)` behind it.
fn cause_of(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}
