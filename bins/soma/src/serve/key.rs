//! The API key: made at the first start, kept in a file that only its owner reads.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use domain::{Owner, Timestamp, Token};
use store::{ApiKey, KeyHash, Store, StoreError};

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
    let failed = |source| KeyError::File { path: path.clone(), source };
    let key = match std::fs::read_to_string(&path) {
        Ok(text) => check(&text, &format!("`{}`", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    remember("first", &key, store).await?;
    Ok((key, path))
}

/// A new key. Its shape is what E2B's clients check for.
fn make(path: &Path) -> io::Result<Token> {
    let mut bytes = [0; 20];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(io::Error::other("there are no random numbers"));
    }
    let key = Token::new(format!("e2b_{}", Token::from_random(&bytes).reveal()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", key.reveal())?;
    file.sync_all()?;
    Ok(key)
}

fn check(word: &str, place: &str) -> Result<Token, KeyError> {
    let word = word.trim();
    let is_good = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good { Ok(Token::new(word)) } else { Err(KeyError::Weak { place: place.to_owned() }) }
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
