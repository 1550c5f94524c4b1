//! The name of a sandbox.
//!
//! An id is also a host name label, and both `ID-PORT` and `PORT-ID` must parse, so it has
//! lowercase letters and digits only. Its 120 random bits make it unguessable.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Base 32 without `i`, `l`, `o` and `u`, which are misread or make words.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 120 bits are 24 characters of five bits each, with nothing left over.
const LENGTH: usize = 24;

/// The id of one sandbox: 24 characters of lowercase base 32.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(String);

impl SandboxId {
    /// Spells 120 random bits. Where they come from is the caller's affair: this crate does no I/O.
    pub fn from_random(bits: [u8; 15]) -> Self {
        let mut text = String::with_capacity(LENGTH);
        for chunk in bits.chunks_exact(5) {
            let word = chunk.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            for position in (0..8).rev() {
                let index = (word >> (position * 5)) & 31;
                text.push(ALPHABET[usize::try_from(index).unwrap_or(0)] as char);
            }
        }
        Self(text)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no sandbox id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a sandbox id: one has {LENGTH} lowercase letters and digits")]
pub struct InvalidSandboxId {
    text: String,
}

impl FromStr for SandboxId {
    type Err = InvalidSandboxId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte)) {
            Ok(Self(text.to_owned()))
        } else {
            // The text may be of any size and from anyone: show enough to recognise it.
            Err(InvalidSandboxId { text: text.chars().take(40).collect() })
        }
    }
}

impl TryFrom<String> for SandboxId {
    type Error = InvalidSandboxId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SandboxId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SandboxId({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_bit_counts_and_the_order_is_kept() {
        assert_eq!(SandboxId::from_random([0; 15]).as_str(), "000000000000000000000000");
        assert_eq!(SandboxId::from_random([255; 15]).as_str(), "zzzzzzzzzzzzzzzzzzzzzzzz");
        let mut one = [0; 15];
        one[14] = 1;
        assert_eq!(SandboxId::from_random(one).as_str(), "000000000000000000000001");
    }

    #[test]
    fn what_could_leave_a_folder_or_a_host_name_is_refused() {
        for text in [
            "",
            "..",
            "0000000000000000000000/.",
            "00000000000000000000000-",
            "00000000000000000000000A",
            "0000000000000000000000000",
            "00000000000000000000000\0",
        ] {
            assert!(text.parse::<SandboxId>().is_err(), "{text:?} was taken");
        }
    }

    proptest! {
        #[test]
        fn an_id_survives_being_written_and_read(bits: [u8; 15]) {
            let id = SandboxId::from_random(bits);
            prop_assert_eq!(id.as_str().parse::<SandboxId>().unwrap(), id);
        }
    }
}
