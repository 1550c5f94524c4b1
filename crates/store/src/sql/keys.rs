//! Keys. They have no other place, so they outlive also a host that stops without warning.

use std::fmt::Write;

use domain::{Owner, Timestamp};

use super::{Database, Kind, Row, Statement, Value};
use crate::{ApiKey, KeyHash, StoreError};

pub(crate) async fn put(database: &impl Database, key: &ApiKey) -> Result<(), StoreError> {
    let written = database.write_for_good(keeping(key)).await;
    written.map_err(|error| database.failure(KEEP, error))
}

/// What is tried with a key, for errors.
pub(crate) const KEEP: &str = "keep a key";

/// What keeps a key.
pub(crate) fn keeping(key: &ApiKey) -> Vec<Statement> {
    let hash = spell(&key.hash);
    // A key that comes back under another name is that one from now on.
    let forget =
        Statement::new("DELETE FROM api_keys WHERE name = $1 OR hash = $2").with(&key.name);
    let keep = "INSERT INTO api_keys (name, owner, hash, created_at) VALUES ($1, $2, $3, $4)";
    let keep =
        Statement::new(keep).with(&key.name).with(&key.owner.0).with(&hash).with(key.created_at.0);
    vec![forget.with(&hash), keep]
}

pub(super) async fn find(
    database: &impl Database,
    hash: &KeyHash,
) -> Result<Option<ApiKey>, StoreError> {
    let statement = || {
        let sql = "SELECT name, owner, created_at FROM api_keys WHERE hash = $1";
        Statement::asking(sql, &[Kind::Text, Kind::Text, Kind::Number])
    };
    let asking = || vec![statement().with(spell(hash))];
    let answers = match database.read(asking()).await {
        // Keys outlive a database that is replaced.
        Err(error) if database.is_over(&error) => database.read(asking()).await,
        answers => answers,
    };
    let answers = answers.map_err(|error| database.failure("look for a key", error))?;
    let row = answers.into_iter().flatten().next().and_then(|row| <[_; 3]>::try_from(row).ok());
    Ok(match row {
        // Whose it is must be known: one that cannot be read opens nothing.
        Some([Value::Text(name), Value::Text(owner), Value::Number(created_at)]) => {
            let (owner, created_at) = (Owner(owner), Timestamp(created_at));
            Some(ApiKey { name, owner, hash: *hash, created_at })
        }
        _ => None,
    })
}

/// Every key that can be read.
pub(crate) async fn all(database: &impl Database) -> Result<Vec<ApiKey>, sqlx::Error> {
    let statement = Statement::asking(
        "SELECT name, owner, created_at, hash FROM api_keys",
        &[Kind::Text, Kind::Text, Kind::Number, Kind::Text],
    );
    let answers = database.read(vec![statement]).await?;
    Ok(answers.into_iter().flatten().filter_map(from_row).collect())
}

/// A key of which name, owner, moment and hash were read, if all of it makes sense.
pub(crate) fn from_row(row: Row) -> Option<ApiKey> {
    let Ok([Value::Text(name), Value::Text(owner), Value::Number(created_at), Value::Text(hash)]) =
        <[_; 4]>::try_from(row)
    else {
        return None;
    };
    let hash = parse(&hash)?;
    Some(ApiKey { name, owner: Owner(owner), hash, created_at: Timestamp(created_at) })
}

fn parse(text: &str) -> Option<KeyHash> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(KeyHash(hash))
}

fn spell(hash: &KeyHash) -> String {
    hash.0.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
