//! How a sandbox is kept that is paused.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a paused sandbox's processes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// In memory, standing still. They do not outlive their host.
    Frozen {
        /// Why they are not on the disk, where that was tried.
        because: Option<String>,
    },
    /// On the disk, with their memory. They outlive their host.
    Hibernated,
}

impl Rest {
    /// Its name, as every dialect and every list has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Frozen { .. } => "frozen",
            Self::Hibernated => "hibernated",
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frozen { because: None } => formatter.write_str("it stands still in memory"),
            Self::Frozen { because: Some(reason) } => {
                write!(
                    formatter,
                    "it stands still in memory and cannot be put on the disk: {reason}"
                )
            }
            Self::Hibernated => formatter.write_str("it is on the disk"),
        }
    }
}
