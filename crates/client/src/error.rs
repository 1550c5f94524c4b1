//! Why a daemon did not do what it was asked.

use std::io;

use http::StatusCode;

/// Why a daemon did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no daemon answers at {place}")]
    Away {
        /// Where.
        place: String,
        /// What was seen.
        #[source]
        source: io::Error,
    },
    /// It refused, in its own words.
    #[error("{message}")]
    Refused {
        /// Its code.
        status: StatusCode,
        /// Its words.
        message: String,
    },
    /// It went away in the middle, or speaks something else.
    #[error("the daemon at {place} does not answer as it should: {reason}")]
    Odd {
        /// Where.
        place: String,
        /// What was seen.
        reason: String,
    },
    /// The key cannot be sent.
    #[error("the API key has characters that no key has")]
    BadKey,
}

impl ClientError {
    /// The code of a refusal.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}
