//! How much is left to the host, as a setting.

use std::fmt::Display;
use std::str::FromStr;

use domain::Bytes;

/// What is left to the host: an amount, or `auto` for a share of what it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reserve(pub(crate) Option<Bytes>);

impl FromStr for Reserve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self(None)),
            "0" => Ok(Self(Some(Bytes(0)))),
            text => text
                .parse()
                .map(|bytes| Self(Some(bytes)))
                .map_err(|error: domain::InvalidQuantity| format!("{error}, or `auto`")),
        }
    }
}

impl Display for Reserve {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => bytes.fmt(formatter),
            None => formatter.write_str("auto"),
        }
    }
}
