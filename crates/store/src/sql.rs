//! What the stores that keep everything in an SQL database have in common: the statements.
//!
//! A store is a [`Database`] here: it runs [`Statement`]s and says what a failure of its own kind
//! is to the caller. Which statements, and what their rows mean, is the same for all of them:
//! `leases.rs` and `keys.rs`.

pub(crate) mod keys;
mod leases;
pub(crate) mod migrations;
mod statement;

use async_trait::async_trait;
use domain::{Lease, SandboxId};

pub(crate) use statement::{Kind, Row, Statement, Value, bind, cells};

use crate::{ApiKey, KeyHash, LeaseQuery, Page, Store, StoreError};

/// What runs statements.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    /// Runs all of them or none.
    async fn write(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error>;

    /// The same for what has no other place: it outlives also a host that stops without warning.
    async fn write_for_good(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error>;

    /// The rows of each of them, as they were at one moment.
    async fn read(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>, sqlx::Error>;

    /// Says once that everything but keys was lost, if it was and nobody was told.
    fn lost(&self) -> Option<StoreError> {
        None
    }

    /// Whether a failure is over by now, so that what failed may be tried again.
    fn is_over(&self, _error: &sqlx::Error) -> bool {
        false
    }

    /// What a failure of a step is to the caller.
    fn failure(&self, step: &'static str, error: sqlx::Error) -> StoreError;
}

/// A failure of a step, whatever it was.
pub(crate) fn failed<E>(step: &'static str) -> impl Fn(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |error| StoreError::Backend { step, source: error.into() }
}

#[async_trait]
impl<D: Database> Store for D {
    async fn put_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.lost().map_or(Ok(()), Err)?;
        leases::put(self, lease).await
    }

    async fn remove_lease(&self, id: &SandboxId) -> Result<(), StoreError> {
        self.lost().map_or(Ok(()), Err)?;
        leases::remove(self, id).await
    }

    async fn leases(&self, query: &LeaseQuery) -> Result<Page<Lease>, StoreError> {
        self.lost().map_or(Ok(()), Err)?;
        leases::find(self, query).await
    }

    async fn put_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        keys::put(self, key).await
    }

    async fn key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        keys::find(self, hash).await
    }
}
