//! Why a guest did not do what it was asked.

use connectrpc::{ConnectError, ErrorCode};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::transport::BROKEN;
use crate::fault::{self, Fault};
use crate::version::Feature;

/// A cause from some other crate.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a guest did not do what it was asked, in the guest's own words.
///
/// A variant exists only where a caller acts on it; the rest is [`GuestError::Refused`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// No such process or file.
    #[error("{message}")]
    NotFound {
        /// The guest's words.
        message: String,
    },

    /// It is there already.
    #[error("{message}")]
    AlreadyExists {
        /// The guest's words.
        message: String,
    },

    /// The wish itself is wrong: a folder that is not there, a pattern that makes no sense.
    #[error("{message}")]
    InvalidArgument {
        /// The guest's words.
        message: String,
    },

    /// The user may not do this.
    #[error("{message}")]
    PermissionDenied {
        /// The guest's words.
        message: String,
    },

    /// Something else is where a directory is wanted.
    #[error("{message}")]
    NotADirectory {
        /// The guest's words.
        message: String,
    },

    /// A directory is where something else is wanted.
    #[error("{message}")]
    IsADirectory {
        /// The guest's words.
        message: String,
    },

    /// A directory holds something and should not.
    #[error("{message}")]
    NotEmpty {
        /// The guest's words.
        message: String,
    },

    /// What is there stands in the way: a mount point, a directory where none was expected, a
    /// tree that is too large.
    #[error("{message}")]
    FailedPrecondition {
        /// The guest's words.
        message: String,
    },

    /// The sandbox has no such user.
    #[error("{message}")]
    UnknownUser {
        /// The guest's words.
        message: String,
    },

    /// It took longer than it was allowed to, and was ended.
    #[error("{message}")]
    DeadlineExceeded {
        /// The guest's words.
        message: String,
    },

    /// The sandbox's disk is full.
    #[error("{message}")]
    NoSpace {
        /// The guest's words.
        message: String,
    },

    /// The guest cannot be reached, or went away in the middle. It may be back later.
    #[error("the guest cannot be reached: {message}")]
    Unavailable {
        /// What was seen of it.
        message: String,
    },

    /// The guest is of an earlier version, and has no such thing. Nothing was sent to it.
    #[error(
        "the guest of this sandbox speaks protocol {has} and has no `{}`, which came with \
         protocol {}: a sandbox that is made now has it",
        needs.name,
        needs.since
    )]
    TooOld {
        /// What it would have to have.
        needs: Feature,
        /// The protocol that it speaks.
        has: u32,
    },

    /// Anything else.
    #[error("{message} ({code})")]
    Refused {
        /// The protocol's name for the kind of trouble.
        code: &'static str,
        /// The guest's words.
        message: String,
    },
}

impl GuestError {
    /// Whether the same request may succeed later without anyone changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether whoever asked can mend it, by asking for something else.
    pub fn is_callers_fault(&self) -> bool {
        !matches!(self, Self::Unavailable { .. } | Self::Refused { .. })
    }

    pub(super) fn unavailable(cause: &dyn std::error::Error) -> Self {
        let mut message = cause.to_string();
        let mut source = cause.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::Unavailable { message: harmless(&message) }
    }

    /// What a plain HTTP answer means, given its body.
    pub(super) fn from_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Words {
            message: String,
        }
        let message = match serde_json::from_slice::<Words>(body) {
            Ok(words) => harmless(&words.message),
            Err(_) => format!("the guest answered with status {}", status.as_u16()),
        };
        let code = match status {
            StatusCode::INSUFFICIENT_STORAGE => return Self::NoSpace { message },
            StatusCode::BAD_REQUEST => ErrorCode::InvalidArgument,
            StatusCode::UNAUTHORIZED => ErrorCode::Unauthenticated,
            StatusCode::FORBIDDEN => ErrorCode::PermissionDenied,
            StatusCode::NOT_FOUND => ErrorCode::NotFound,
            StatusCode::CONFLICT => ErrorCode::AlreadyExists,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => ErrorCode::DeadlineExceeded,
            _ => ErrorCode::Internal,
        };
        Self::new(code, named_fault(headers), message)
    }

    fn new(code: ErrorCode, fault: Option<Fault>, message: String) -> Self {
        match fault {
            Some(Fault::NotADirectory) => return Self::NotADirectory { message },
            Some(Fault::IsADirectory) => return Self::IsADirectory { message },
            Some(Fault::NotEmpty) => return Self::NotEmpty { message },
            Some(Fault::NoSpace) => return Self::NoSpace { message },
            None => {}
        }
        match code {
            ErrorCode::NotFound => Self::NotFound { message },
            ErrorCode::AlreadyExists => Self::AlreadyExists { message },
            ErrorCode::InvalidArgument => Self::InvalidArgument { message },
            ErrorCode::PermissionDenied => Self::PermissionDenied { message },
            ErrorCode::FailedPrecondition => Self::FailedPrecondition { message },
            ErrorCode::Unauthenticated if message.contains("username") => {
                Self::UnknownUser { message }
            }
            ErrorCode::DeadlineExceeded => Self::DeadlineExceeded { message },
            ErrorCode::Unavailable => Self::Unavailable { message },
            // The library calls a body that broke off internal; our transport marks it.
            ErrorCode::Internal if message.contains(BROKEN) => Self::Unavailable { message },
            _ => Self::Refused { code: code.as_str(), message },
        }
    }
}

fn named_fault(headers: &HeaderMap) -> Option<Fault> {
    Fault::from_name(headers.get(fault::HEADER)?.to_str().ok()?)
}

impl From<ConnectError> for GuestError {
    fn from(error: ConnectError) -> Self {
        let words = error.message.as_deref().unwrap_or("the guest gave no reason");
        Self::new(error.code, named_fault(error.response_headers()), harmless(words))
    }
}

/// A guest's words, short and without anything that would steer a terminal or forge a log line.
pub(super) fn harmless(words: &str) -> String {
    words.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_words_cannot_steer_a_terminal() {
        let error = ConnectError::not_found(format!("\u{1b}[2Jgone\n{}", "x".repeat(5000)));
        let GuestError::NotFound { message } = GuestError::from(error) else { panic!() };
        assert!(message.starts_with(" [2Jgone x"));
        assert_eq!(message.chars().count(), 500);
    }

    #[test]
    fn an_unknown_user_is_told_from_a_missing_token() {
        let unknown = ConnectError::unauthenticated("invalid username: 'x'");
        assert!(matches!(GuestError::from(unknown), GuestError::UnknownUser { .. }));
        let token = ConnectError::unauthenticated("no token");
        assert!(matches!(GuestError::from(token), GuestError::Refused { .. }));
    }

    #[test]
    fn a_plain_answer_carries_its_words() {
        let error = GuestError::from_answer(
            StatusCode::NOT_FOUND,
            &HeaderMap::new(),
            br#"{"code":404,"message":"path '/x' does not exist"}"#,
        );
        assert_eq!(error.to_string(), "path '/x' does not exist");
        let none = HeaderMap::new();
        let error = GuestError::from_answer(StatusCode::IM_A_TEAPOT, &none, b"<html>");
        assert_eq!(error.to_string(), "the guest answered with status 418 (internal)");
    }
    #[test]
    fn a_fault_is_told_from_others_of_its_kind() {
        let with = |name: &'static str| {
            let value = http::HeaderValue::from_static(name);
            let headers = HeaderMap::from_iter([(fault::HEADER.parse().unwrap(), value)]);
            GuestError::from_answer(StatusCode::BAD_REQUEST, &headers, b"{}")
        };
        assert!(matches!(with("is-a-directory"), GuestError::IsADirectory { .. }));
        assert!(matches!(with("not-a-directory"), GuestError::NotADirectory { .. }));
        assert!(matches!(with("something-new"), GuestError::InvalidArgument { .. }));
    }
}
