//! A secret word that opens something.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A secret word. It can be compared and sent, and no log or error shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Spells random bytes in lowercase hexadecimal.
    pub fn from_random(bytes: &[u8]) -> Self {
        use fmt::Write;
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// A word that came from elsewhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The word itself, for whoever it is meant for.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a word is this one. Takes as long for a near miss as for a far one.
    pub fn matches(&self, word: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), word.as_bytes());
        let difference = own.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
        own.len() == other.len() && difference == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_shown_and_matches_itself_alone() {
        let token = Token::from_random(&[0xab, 1]);
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert!(token.matches("ab01"));
        for other in ["", "ab0", "ab02", "ab011"] {
            assert!(!token.matches(other), "{other}");
        }
    }
}
