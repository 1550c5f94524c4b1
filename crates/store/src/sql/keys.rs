//! Keys. They have no other place, so they outlive also a host that stops without warning.

use std::fmt::Write;

use domain::{Owner, Timestamp};

use super::{Database, Kind, Statement};
use crate::{ApiKey, KeyHash, StoreError};

pub(super) async fn put(database: &impl Database, key: &ApiKey) -> Result<(), StoreError> {
    let hash = spell(&key.hash);
    // A key that comes back under another name is that one from now on.
    let forget =
        Statement::new("DELETE FROM api_keys WHERE name = $1 OR hash = $2").with(&key.name);
    let keep = "INSERT INTO api_keys (name, owner, hash, created_at) VALUES ($1, $2, $3, $4)";
    let keep =
        Statement::new(keep).with(&key.name).with(&key.owner.0).with(&hash).with(key.created_at.0);
    let written = database.write_for_good(vec![forget.with(&hash), keep]).await;
    written.map_err(|error| database.failure("keep a key", error))
}

pub(super) async fn find(
    database: &impl Database,
    hash: &KeyHash,
) -> Result<Option<ApiKey>, StoreError> {
    let statement = Statement::asking(
        "SELECT name, owner, created_at FROM api_keys WHERE hash = $1",
        &[Kind::Text, Kind::Text, Kind::Number],
    );
    let answers = database.read(vec![statement.with(spell(hash))]).await;
    let answers = answers.map_err(|error| database.failure("look for a key", error))?;
    let row = answers.into_iter().flatten().next().and_then(|row| <[_; 3]>::try_from(row).ok());
    Ok(row.map(|[name, owner, created_at]| ApiKey {
        name: name.into_text(),
        owner: Owner(owner.into_text()),
        hash: *hash,
        created_at: Timestamp(created_at.number()),
    }))
}

fn spell(hash: &KeyHash) -> String {
    hash.0.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
