//! Keys, as far as they are kept: never the key itself.

use std::fmt;

use domain::{Owner, Timestamp, Token};
use sha2::{Digest, Sha256};

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// What it is called.
    pub name: String,
    /// Whose sandboxes it opens.
    pub owner: Owner,
    /// What tells the key when it is shown.
    pub hash: KeyHash,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The SHA-256 of a key. Keys are random, so nothing slower is needed against guessing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &Token) -> Self {
        Self(Sha256::digest(key.reveal().as_bytes()).into())
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyHash(..)")
    }
}
