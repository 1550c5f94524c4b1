//! Why an image is not taken.

use std::io;

/// Why an image is not taken. All of it is said to whoever sent the image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The archive is damaged, or never was one.
    #[error("the archive cannot be read: {reason}")]
    Damaged {
        /// What does not fit.
        reason: String,
    },
    /// It has more of something than is allowed.
    #[error("the image has more than {most} {what}, which is the most that is taken")]
    TooMuch {
        /// Of what there is too much.
        what: &'static str,
        /// The bound.
        most: u64,
    },
    /// A name or link in it is not acceptable.
    #[error("`{path}` in the image is refused: {reason}")]
    Refused {
        /// Which, with nothing in it that a terminal would act on.
        path: String,
        /// Why, and what would be accepted.
        reason: String,
    },
    /// It is whole, but no sandbox can be made from it.
    #[error("{reason}")]
    Unfit {
        /// Why, and what would be accepted.
        reason: String,
    },
    /// It could not be written.
    #[error("could not {step}: {source}")]
    Write {
        /// What was tried.
        step: String,
        /// Why it did not work.
        #[source]
        source: io::Error,
    },
}

impl ImageError {
    pub(crate) fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged { reason: reason.into() }
    }

    pub(crate) fn unfit(reason: impl Into<String>) -> Self {
        Self::Unfit { reason: reason.into() }
    }

    pub(crate) fn refused(path: &[u8], reason: impl Into<String>) -> Self {
        Self::Refused { path: shown(path), reason: reason.into() }
    }
}

/// Gives the name of a step to an error of the kernel's.
pub(crate) trait Step<T> {
    /// `step` completes the sentence "could not ...".
    fn step(self, step: &str, path: &[u8]) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &str, path: &[u8]) -> Result<T, ImageError> {
        self.map_err(|error| ImageError::Write {
            step: format!("{step} `{}`", shown(path)),
            source: error.into(),
        })
    }
}

/// A name as it can be shown: short, and with nothing that a terminal would act on.
pub(crate) fn shown(path: &[u8]) -> String {
    const MOST: usize = 120;
    let text = String::from_utf8_lossy(path);
    let harmless = |c: char| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(MOST).map(harmless).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

/// Characters that change the order in which others are shown.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
