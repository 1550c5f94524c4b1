//! What a sandbox tried to reach, and what came of it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// One attempt of a sandbox to reach something: a question for a name, or a connection.
///
/// A connection that was let through is written down when it ends, with what passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkEntry {
    /// Its number within the sandbox's log, from 1.
    pub sequence: u64,
    /// When it began.
    pub at: Timestamp,
    /// What was spoken.
    pub protocol: NetworkProtocol,
    /// The name that was meant, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address that was dialled or asked for, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port; 53 for questions.
    pub port: u16,
    /// Which process inside, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
    /// Whether it was let through.
    pub allowed: bool,
    /// Which rule decided: `allow_domains: *.example.com`, `mode: deny-all`, `private address`.
    pub rule: String,
    /// What went wrong with what was allowed, or what to do about what was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What was spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkProtocol {
    /// A question for a name.
    Dns,
    /// A connection of which nothing more is known.
    Tcp,
    /// A connection with TLS.
    Tls,
    /// A request in plain HTTP, or in TLS that was ended for a transform.
    Http,
}
