//! The API key: made at the first start, kept in a file that only its owner reads.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use domain::{Owner, Timestamp, Token};
use store::{ApiKey, KeyHash, Store, StoreError};

use super::private;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    /// The file cannot be read or written.
    #[error("the API key in `{}` cannot be used", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What is in the file, or in the environment, is no key.
    #[error(
        "{place} has no API key in it: write one of at least 16 letters and digits, or remove it"
    )]
    Weak { place: String },
    /// Its hash cannot be kept.
    #[error("the API key cannot be kept")]
    Store(#[from] StoreError),
}

/// The key that opens this daemon, and where it is kept.
pub(super) async fn prepare(
    folder: &Path,
    store: &dyn Store,
) -> Result<(Token, PathBuf), KeyError> {
    let path = folder.join("api-key");
    if let Ok(word) = std::env::var("SOMA_API_KEY") {
        let key = check(&word, "SOMA_API_KEY")?;
        remember("environment", &key, store).await?;
    }
    // The shape of a new one is what E2B's clients check for.
    let make = || Ok(format!("e2b_{}", private::random::<20>()?));
    let key = private::read_or_make(&path, is_good, make)
        .map(Token::new)
        .map_err(|source| KeyError::File { path: path.clone(), source })?;
    remember("first", &key, store).await?;
    Ok((key, path))
}

fn check(word: &str, place: &str) -> Result<Token, KeyError> {
    let word = word.trim();
    if is_good(word) {
        Ok(Token::new(word))
    } else {
        Err(KeyError::Weak { place: place.to_owned() })
    }
}

fn is_good(word: &str) -> bool {
    word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Only its hash is kept.
async fn remember(name: &str, key: &Token, store: &dyn Store) -> Result<(), StoreError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let key = ApiKey {
        name: name.to_owned(),
        owner: Owner::default(),
        hash: KeyHash::of(key),
        created_at: Timestamp(0).after(since),
    };
    store.put_key(&key).await
}
