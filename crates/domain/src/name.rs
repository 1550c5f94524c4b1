//! What people call a sandbox, and what they hang on it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A name for a sandbox: a host name label, unique among the sandboxes of one owner.
///
/// It is accepted wherever an id is, so it may not look like one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no name for a sandbox: use 1 to 40 lowercase letters, digits and hyphens, \
     beginning with a letter"
)]
pub struct InvalidName {
    text: String,
}

/// Names stay longer than prefixes and shorter than anything that would break a table.
const LONGEST: usize = 40;

impl SandboxName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SandboxName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        let is_good = text.len() <= LONGEST
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && text.parse::<crate::SandboxId>().is_err();
        if is_good {
            Ok(Self(text))
        } else {
            let text = text.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
            Err(InvalidName { text })
        }
    }
}

impl std::str::FromStr for SandboxName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        text.to_owned().try_into()
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What an owner hangs on a sandbox, to find it again.
pub type Labels = BTreeMap<String, String>;

/// Why something that belongs to a sandbox's record cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} take {bytes} bytes: the most is {most}")]
pub struct TooLarge {
    what: &'static str,
    bytes: usize,
    most: usize,
}

/// The most that the labels of a sandbox may take, keys and values together.
const MOST_LABELS: usize = 8 << 10;

/// The most that its variables may take.
const MOST_VARIABLES: usize = 32 << 10;

/// Refuses labels that a record has no room for.
pub fn check_labels(labels: &Labels) -> Result<(), TooLarge> {
    within("the labels", labels, MOST_LABELS)
}

/// Refuses variables that a record has no room for.
pub fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), TooLarge> {
    within("the variables", variables, MOST_VARIABLES)
}

fn within(what: &'static str, map: &BTreeMap<String, String>, most: usize) -> Result<(), TooLarge> {
    let bytes = map.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if bytes > most { Err(TooLarge { what, bytes, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_host_name_label() {
        for good in ["a", "my-box", "b2"] {
            assert!(good.parse::<SandboxName>().is_ok(), "{good}");
        }
        for bad in ["", "A", "2b", "-a", "a-", "a b", "a_b", "ä", &"a".repeat(41), &"a".repeat(24)]
        {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_without_end_are_refused() {
        let labels = Labels::from([("k".to_owned(), "v".repeat(9000))]);
        let error = check_labels(&labels).unwrap_err().to_string();
        assert_eq!(error, "the labels take 9003 bytes: the most is 8192");
    }
}
