//! What the operator of this machine wants of the network, for all sandboxes.

use std::net::SocketAddr;

use domain::{Cidr, SecretText};
use serde::{Deserialize, Serialize};

/// The operator's part of what may be reached, and how. No sandbox's policy widens it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Configuration {
    /// Ranges of addresses that are not public and may be reached all the same.
    pub grants: Vec<Cidr>,
    /// Who is asked for names; whom the host asks when there is none.
    pub resolvers: Vec<SocketAddr>,
    /// A proxy through which everything is dialled: `http://` or `socks5://`, with a name and a
    /// password where it wants them.
    pub proxy: Option<SecretText>,
    /// Certificates, as PEM, that are trusted beside the usual ones.
    pub certificates: Option<String>,
}
