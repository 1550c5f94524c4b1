//! Why a command did not do what was asked, in words for whoever typed it.

use std::error::Error;
use std::fmt;

use provider::ProviderError;

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

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        match error {
            ProviderError::Invalid { .. } => Self::usage(chain(&error)),
            ProviderError::Unenforced { .. } => {
                Self::own(&error).hint("to run it without those limits, say --allow-unenforced")
            }
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
