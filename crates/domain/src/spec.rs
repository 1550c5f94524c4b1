//! What is asked for when a sandbox is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::network::NetworkPolicy;
use crate::snapshot::Origin;
use crate::template::TemplateName;
use crate::token::Token;

/// The wish for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// What it may use.
    pub limits: Limits,
    /// Variables that every command in it sees.
    pub environment: BTreeMap<String, String>,
    /// How long it is kept.
    pub lifetime: Lifetime,
    /// Make it also where the host cannot hold it to some of its limits. What is not held is
    /// written down with the sandbox.
    #[serde(default)]
    pub allow_unenforced: bool,
    /// Whether its user may become its root with `sudo`. One that says nothing may.
    #[serde(default = "allowed")]
    pub sudo: bool,
    /// What the guest wants to be shown by everybody who speaks with it, if anything.
    #[serde(default)]
    pub token: Option<Token>,
    /// What it is made from; the host's own system when unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateName>,
    /// The snapshot that it is made from instead; its processes too, where that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What it may reach. One that says nothing reaches nothing.
    #[serde(default)]
    pub network: NetworkPolicy,
}

impl Default for SandboxSpec {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            environment: BTreeMap::new(),
            lifetime: Lifetime::default(),
            allow_unenforced: false,
            sudo: allowed(),
            token: None,
            template: None,
            origin: None,
            network: NetworkPolicy::default(),
        }
    }
}

fn allowed() -> bool {
    true
}

/// How long a sandbox is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// Until somebody destroys it.
    #[default]
    Kept,
    /// As long as the connection of whoever asked for it, and no longer.
    WithCaller,
}

/// Why a text is no variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a variable: write NAME=value")]
pub struct InvalidEnvironment {
    text: String,
}

/// Splits `NAME=value`. The value may be empty and may hold more `=`.
pub fn parse_environment(text: &str) -> Result<(String, String), InvalidEnvironment> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !text.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        // The value may be a secret: only the name is ever repeated.
        _ => Err(InvalidEnvironment {
            text: text.split('=').next().unwrap_or("").chars().take(40).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_name_and_any_value() {
        assert_eq!(parse_environment("A=b=c").unwrap(), ("A".into(), "b=c".into()));
        assert_eq!(parse_environment("A=").unwrap(), ("A".into(), String::new()));
        assert!(parse_environment("A").is_err());
        assert!(parse_environment("=secret").unwrap_err().to_string().starts_with("`` is"));
    }
}
