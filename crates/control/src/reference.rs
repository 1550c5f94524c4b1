//! How a sandbox is named by whoever asks.

use std::fmt;
use std::str::FromStr;

use domain::{SandboxId, SandboxName};

/// An id, a name, or the beginning of either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference(String);

impl Reference {
    /// The id, if it is a whole one.
    pub(crate) fn id(&self) -> Option<SandboxId> {
        self.0.parse().ok()
    }

    /// The name, if it could be one.
    pub(crate) fn name(&self) -> Option<SandboxName> {
        self.0.parse().ok()
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Reference {
    type Err = std::convert::Infallible;

    /// Any text may be meant to name something; that nothing is called so is found out later.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What cannot be in an id or a name is not repeated in messages either.
        let text = text.chars().filter(|c| !c.is_control()).take(64).collect();
        Ok(Self(text))
    }
}

impl From<&str> for Reference {
    fn from(text: &str) -> Self {
        text.parse().unwrap_or_else(|never| match never {})
    }
}

impl From<&SandboxId> for Reference {
    fn from(id: &SandboxId) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
