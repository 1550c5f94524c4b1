//! What the egress program is told of one sandbox: one text, which the engine keeps unread.

use std::collections::BTreeMap;

use domain::{NetworkPolicy, SandboxId, SecretText};
use serde::{Deserialize, Serialize};

/// What a sandbox may reach, and what is to be known of it on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Which sandbox, as its metadata service says it.
    pub sandbox: SandboxId,
    /// What it may reach.
    pub policy: NetworkPolicy,
    /// Who signs for the names that have a transform; there is one as soon as there are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<Authority>,
    /// Further parts of what the metadata service says, as they are shown: `exec`, `telemetry`,
    /// `mounts`. Everything in it is readable inside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, serde_json::Value>,
}

/// A certificate authority of one sandbox alone. [`Authority::generate`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// What it is called in its certificate.
    pub name: String,
    /// What the sandbox trusts, as PEM.
    pub certificate: String,
    /// What signs, as PEM, and never leaves the host.
    pub key: SecretText,
}

impl Rules {
    /// The rules of a sandbox that may reach nothing.
    pub fn nothing(sandbox: SandboxId) -> Self {
        Self {
            sandbox,
            policy: NetworkPolicy::default(),
            authority: None,
            metadata: BTreeMap::new(),
        }
    }

    /// Reads rules. The reason of a failure repeats nothing of the text, which has secrets.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("the rules cannot be read at line {line}, column {column}")
        })
    }
}
