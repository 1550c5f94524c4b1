//! What can be set, and what is wrong with what was set.

use std::str::FromStr;

/// What is told, how, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What is logged: a level such as `info`, or directives such as `info,sqlx=warn`.
    pub level: String,
    /// How a log line looks.
    pub format: Format,
    /// Where traces are sent, as `http://HOST:PORT`; nowhere when unset.
    pub otlp_endpoint: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: Format::Auto, otlp_endpoint: None }
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As text on a terminal, as JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// For programs: one object on each line.
    Json,
}

/// Why a word is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log format is one of `auto`, `text` and `json`")]
pub struct UnknownFormat;

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        match word {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(UnknownFormat),
        }
    }
}

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// What is to be logged makes no sense.
    #[error(
        "`{level}` is no log level: use off, error, warn, info, debug or trace, alone or as \
         TARGET=LEVEL, with commas between"
    )]
    Level {
        /// The beginning of what was given.
        level: String,
    },
    /// The address of the collector makes no sense. It may hold a password, so it is not shown.
    #[error("the address for traces cannot be used: {reason}: write http://HOST:PORT")]
    Endpoint {
        /// What is wrong with it.
        reason: String,
    },
    /// The exporter could not be made.
    #[error("traces cannot be sent")]
    Exporter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Somebody was first.
    #[error("logging was started before in this process")]
    Started,
}
