//! Where a database is: an address that may hold a password, and never shows it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// What may be said after the question mark. Others are refused and not repeated: they may be the
/// rest of a password.
const PARAMETERS: [&str; 6] = ["dbname", "host", "password", "port", "sslmode", "user"];

/// The address of a database in a PostgreSQL server, such as
/// `postgres://soma:PASSWORD@127.0.0.1/soma` or `postgres:///soma?host=/run/postgresql`.
///
/// Whatever shows it leaves the password out.
#[derive(Clone)]
pub struct Address {
    options: PgConnectOptions,
    has_password: bool,
}

/// Why a text is no address. What was written stays out of it: it may be a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAddress {
    /// It has not the shape of one.
    #[error(
        "it has to be an address such as postgres://USER:PASSWORD@HOST/DATABASE, with %XX for \
         what is no letter or digit in the password"
    )]
    Shape,
    /// A database is not named.
    #[error("it names no database: postgres://HOST/DATABASE has one after the slash")]
    Unnamed,
    /// It says more than is understood.
    #[error("after the question mark it may say {} and nothing else", PARAMETERS.join(", "))]
    Parameter,
    /// It asks for TLS.
    #[error(
        "soma speaks no TLS with databases: reach the server by a socket or a tunnel that ends \
         on this machine"
    )]
    Tls,
    /// What is said would be readable on its way.
    #[error(
        "the server is another machine, and soma speaks no TLS with databases: use a tunnel that \
         ends on this machine, or say ?sslmode=disable where the network is trusted"
    )]
    Open,
}

impl Address {
    /// Whether a password is in it.
    pub fn has_password(&self) -> bool {
        self.has_password
    }

    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    fn is_local(&self) -> bool {
        let host = self.options.get_host();
        let is_loopback =
            host.trim_matches(['[', ']']).parse().is_ok_and(|it: IpAddr| it.is_loopback());
        self.options.get_socket().is_some()
            || host.starts_with('/')
            || host == "localhost"
            || is_loopback
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let rest = text.strip_prefix("postgres://").or(text.strip_prefix("postgresql://"));
        let rest = rest.filter(|rest| !rest.contains('#')).ok_or(InvalidAddress::Shape)?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let keys = || parameters.split('&').filter_map(|pair| Some(pair.split_once('=')?.0));
        let pairs = parameters.split('&').filter(|pair| !pair.is_empty()).count();
        if keys().count() != pairs || !keys().all(|key| PARAMETERS.contains(&key)) {
            return Err(InvalidAddress::Parameter);
        }
        let authority = place.split('/').next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        let has_password = user.contains(':') || keys().any(|key| key == "password");
        let options: PgConnectOptions = text.parse().map_err(|_| InvalidAddress::Shape)?;
        let address = Self { options, has_password };
        if address.options.get_database().is_none_or(str::is_empty) {
            return Err(InvalidAddress::Unnamed);
        }
        match address.options.get_ssl_mode() {
            PgSslMode::Disable => Ok(address),
            PgSslMode::Allow | PgSslMode::Prefer if address.is_local() => Ok(address),
            PgSslMode::Allow | PgSslMode::Prefer => Err(InvalidAddress::Open),
            PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => {
                Err(InvalidAddress::Tls)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, port) = (self.options.get_username(), self.options.get_port());
        let database = self.options.get_database().unwrap_or_default();
        if let Some(folder) = self.options.get_socket() {
            let folder = folder.display();
            write!(formatter, "postgres:///{database}?host={folder}&port={port}&user={user}")
        } else {
            let host = self.options.get_host();
            write!(formatter, "postgres://{user}@{host}:{port}/{database}")
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({self})")
    }
}

impl PartialEq for Address {
    /// Passwords are not compared.
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Address {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for text in [
            "postgres://anna:swordfish@127.0.0.1:6000/memory",
            "postgresql://anna:swordfish@localhost/memory?sslmode=disable",
            "postgres://anna@[::1]/memory?password=swordfish",
            "postgres:///memory?host=/run/postgresql&user=anna&password=swordfish",
            "postgres://anna:swordfish@%2Frun%2Fpostgresql/memory",
            "postgres://anna:swordfish@db.example/memory?sslmode=disable",
        ] {
            let address: Address = text.parse().unwrap();
            assert!(address.has_password(), "{text}");
            let shown = format!("{address} {address:?}");
            assert!(shown.contains("anna") && shown.contains("memory"), "{shown}");
            assert!(!shown.contains("swordfish"), "{shown}");
        }
        let without: Address = "postgres://anna@localhost:6000/memory".parse().unwrap();
        assert!(!without.has_password());
        assert_eq!(without.to_string(), "postgres://anna@localhost:6000/memory");
    }

    #[test]
    fn what_is_no_address_is_refused_and_not_repeated() {
        use InvalidAddress::{Open, Parameter, Shape, Tls, Unnamed};
        for (text, reason) in [
            ("", Shape),
            ("swordfish", Shape),
            ("mysql://anna:swordfish@localhost/memory", Shape),
            ("postgres://anna:sword#fish@localhost/memory", Shape),
            ("postgres://anna:swordfish@localhost:99999/memory", Shape),
            ("postgres://anna:swordfish@localhost", Unnamed),
            ("postgres://anna:swordfish@localhost/memory?swordfish", Parameter),
            ("postgres://anna:sword?fish=@localhost/memory", Parameter),
            ("postgres://anna@localhost/memory?options=-csearch_path%3Dx", Parameter),
            ("postgres://anna:swordfish@localhost/memory?sslmode=require", Tls),
            ("postgres://anna:swordfish@db.example/memory", Open),
            ("postgres://anna:swordfish@localhost/memory?host=db.example", Open),
            ("postgres://anna:swordfish@192.0.2.1/memory?sslmode=prefer", Open),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error, reason, "{text}");
            assert!(!format!("{error} {error:?}").contains("swordfish"), "{error}");
        }
    }
}
