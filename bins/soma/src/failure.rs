//! Why a command did not do what was asked, in words for whoever typed it.

use std::error::Error;
use std::fmt;

use client::ClientError;
use guest_proto::GuestError;
use provider::ProviderError;

/// It was refused: no such sandbox, a name that is taken.
pub(crate) const FAILED: u8 = 1;
/// What was typed makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Soma itself failed, as opposed to what it ran.
pub(crate) const SOMA_FAILED: u8 = 125;

/// One line on what happened, perhaps one on what to do, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty when there is nothing to say: the pipe is closed, and nobody would read it.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// What was typed makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Soma itself could not do its part.
    pub(crate) fn own(error: &(dyn Error + 'static)) -> Self {
        Self::new(SOMA_FAILED, chain(error))
    }

    /// The same for a command that runs nothing, whose 1 is therefore free.
    pub(crate) fn into_refusal(mut self) -> Self {
        if self.code == SOMA_FAILED {
            self.code = FAILED;
        }
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A refusal of the daemon's for a command that runs nothing, whose 1 is therefore free.
pub(crate) fn refused(error: ClientError) -> Failure {
    let is_refusal = error.status().is_some_and(|status| status.is_client_error());
    let mut failure = Failure::from(error);
    if is_refusal && failure.code != USAGE {
        failure.code = FAILED;
    }
    failure
}

/// A refusal of a guest's for such a command.
pub(crate) fn refused_inside(error: &GuestError) -> Failure {
    match error {
        GuestError::Unavailable { .. } => Failure::own(error),
        error => Failure::new(FAILED, error.to_string()),
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::Invalid { .. } => Self::usage(chain(&error)),
            error => Self::own(&error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// An error with its causes, none said twice.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}
