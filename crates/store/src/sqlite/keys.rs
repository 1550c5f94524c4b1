//! Keys. They have no other place, so they outlive also a host that stops without warning.

use std::fmt::Write;

use domain::{Owner, Timestamp};
use sqlx::sqlite::SqliteSynchronous;
use sqlx::{ConnectOptions, Connection};

use super::{SqliteStore, connection};
use crate::{ApiKey, KeyHash, StoreError};

impl SqliteStore {
    pub(super) async fn write_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.try_write_key(key).await.map_err(self.failure("keep a key"))
    }

    /// How hard a connection syncs cannot be changed for one transaction, so a connection is made
    /// for it. Keys are made by people, and it takes a millisecond.
    async fn try_write_key(&self, key: &ApiKey) -> Result<(), sqlx::Error> {
        let options = connection(&self.path).synchronous(SqliteSynchronous::Full);
        let mut connection = options.connect().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let hash = spell(&key.hash);
        // A key that comes back under another name is that one from now on.
        sqlx::query("DELETE FROM api_keys WHERE name = $1 OR hash = $2")
            .bind(&key.name)
            .bind(&hash)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO api_keys (name, owner, hash, created_at) VALUES ($1, $2, $3, $4)")
            .bind(&key.name)
            .bind(&key.owner.0)
            .bind(&hash)
            .bind(key.created_at.0)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        // It is written, whatever becomes of the connection.
        let _ = connection.close().await;
        Ok(())
    }

    pub(super) async fn find_key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let row: Option<(String, String, i64)> =
            sqlx::query_as("SELECT name, owner, created_at FROM api_keys WHERE hash = $1")
                .bind(spell(hash))
                .fetch_optional(&self.readers)
                .await
                .map_err(self.failure("look for a key"))?;
        Ok(row.map(|(name, owner, created_at)| ApiKey {
            name,
            owner: Owner(owner),
            hash: *hash,
            created_at: Timestamp(created_at),
        }))
    }
}

fn spell(hash: &KeyHash) -> String {
    hash.0.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
