//! Snapshots: sandboxes that were captured, to be made again from what they were.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Lease, Owner, SandboxId, Timestamp, Token};

/// How an id begins.
const PREFIX: &str = "snap-";

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 1;

/// The longest name.
const LONGEST: usize = 64;

/// The id of one snapshot: `snap-` and 24 characters of lowercase base 32.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotId(String);

impl SnapshotId {
    /// Spells 120 random bits.
    pub fn from_random(bits: [u8; 15]) -> Self {
        Self(format!("{PREFIX}{}", SandboxId::from_random(bits)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no snapshot id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a snapshot id: one is `snap-` and 24 lowercase letters and digits")]
pub struct InvalidSnapshotId {
    text: String,
}

impl FromStr for SnapshotId {
    type Err = InvalidSnapshotId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix(PREFIX).and_then(|rest| rest.parse::<SandboxId>().ok());
        rest.map(|_| Self(text.to_owned()))
            .ok_or_else(|| InvalidSnapshotId { text: text.chars().take(40).collect() })
    }
}

impl TryFrom<String> for SnapshotId {
    type Error = InvalidSnapshotId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SnapshotId> for String {
    fn from(id: SnapshotId) -> Self {
        id.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SnapshotId({})", self.0)
    }
}

/// What its owner calls a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no name for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no name for a snapshot: one has 1 to {LONGEST} letters, digits, `-`, `_`, `.`, `:` \
     and `/`, and does not begin with `snap-`"
)]
pub struct InvalidSnapshotName {
    text: String,
}

impl FromStr for SnapshotName {
    type Err = InvalidSnapshotName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        let fits = !text.is_empty() && text.len() <= LONGEST && text.chars().all(is_usual);
        // What looks like an id is one.
        if fits && !text.starts_with(PREFIX) {
            return Ok(Self(text.to_owned()));
        }
        let text = text.chars().filter(|c| !c.is_control()).take(LONGEST + 1).collect();
        Err(InvalidSnapshotName { text })
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = InvalidSnapshotName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a sandbox is made from, where that is a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Which.
    pub snapshot: SnapshotId,
    /// What the guest that was captured wants to be shown, until it is told another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// What is written down with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    version: u32,
    /// Which.
    pub id: SnapshotId,
    /// What its owner calls it; one without is a step on somebody's way to copies.
    pub name: Option<SnapshotName>,
    /// Whose it is.
    pub owner: Owner,
    /// When it was taken.
    pub created_at: Timestamp,
    /// The sandbox that it was taken of, as it was then.
    pub lease: Lease,
}

impl SnapshotRecord {
    /// The record of a snapshot that is about to be taken.
    pub fn new(id: SnapshotId, name: Option<SnapshotName>, lease: Lease, now: Timestamp) -> Self {
        let owner = lease.owner.clone();
        Self { version: VERSION, id, name, owner, created_at: now, lease }
    }

    /// As it is written down.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads what was written down, also by earlier versions.
    pub fn from_text(text: &str) -> Result<Self, InvalidSnapshotRecord> {
        let record: Self = serde_json::from_str(text)?;
        match record.version {
            found if found > VERSION => Err(InvalidSnapshotRecord::Later { found }),
            _ => Ok(record),
        }
    }
}

/// Why a text is no record of a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSnapshotRecord {
    /// It was written by a later Soma.
    #[error("it has version {found}, and this soma reads up to {VERSION}")]
    Later {
        /// Its version.
        found: u32,
    },
    /// It is damaged, or never was one.
    #[error("it cannot be read")]
    Damaged(#[from] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SandboxSpec;

    #[test]
    fn an_id_survives_being_written_and_read_and_nothing_else_is_one() {
        let id = SnapshotId::from_random([7; 15]);
        assert_eq!(id.as_str().parse::<SnapshotId>().unwrap(), id);
        for text in ["", "snap-", "snap-../../../etc/passwd0000", "000000000000000000000000"] {
            assert!(text.parse::<SnapshotId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_short_and_is_no_id() {
        for text in ["before-upgrade", "team/base:v1", "a"] {
            assert!(text.parse::<SnapshotName>().is_ok(), "{text}");
        }
        for text in ["", "snap-1", "a b", "a\n", "é", &"x".repeat(65)] {
            assert!(text.parse::<SnapshotName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written_and_a_later_one_is_refused() {
        let lease =
            Lease::new(SandboxId::from_random([1; 15]), SandboxSpec::default(), Timestamp(1));
        let name = Some("first".parse().unwrap());
        let mut record =
            SnapshotRecord::new(SnapshotId::from_random([2; 15]), name, lease, Timestamp(5));
        let text = record.to_text().unwrap();
        assert_eq!(SnapshotRecord::from_text(&text).unwrap(), record);
        record.version = VERSION + 1;
        let error = SnapshotRecord::from_text(&record.to_text().unwrap()).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}
