//! Where the daemon remembers.

use std::fmt;
use std::str::FromStr;

use store::postgres::{Address, InvalidAddress};

/// Where the daemon remembers. Whatever shows it leaves a password out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Database {
    /// In a file of its own.
    File,
    /// In a PostgreSQL server.
    Postgres(Box<Address>),
}

impl Database {
    pub(crate) fn has_password(&self) -> bool {
        matches!(self, Self::Postgres(address) if address.has_password())
    }
}

impl FromStr for Database {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if text == "file" { Ok(Self::File) } else { text.parse().map(Box::new).map(Self::Postgres) }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => formatter.write_str("file"),
            Self::Postgres(address) => address.fmt(formatter),
        }
    }
}
