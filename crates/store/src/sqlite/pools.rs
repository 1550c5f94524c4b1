//! The connections to one file, which was found whole.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sqlx::ConnectOptions;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::{LOG, READERS, connection, failure, migrations};
use crate::StoreError;

/// One connection that writes and some that read.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
    /// Where the file is that they led to, once it was found damaged.
    pub(super) aside: OnceLock<PathBuf>,
}

/// Why there are no connections.
pub(super) enum Trouble {
    /// What is in the file is damaged.
    Broken,
    /// The file is out of reach, or not ours.
    Other(StoreError),
}

impl Pools {
    /// Connects to a file, and makes its tables what they should be.
    pub(super) async fn open(path: &Path) -> Result<Self, Trouble> {
        let pools = Self::connect(path).await.map_err(|error| trouble(path, "connect", error))?;
        let checked = pools.check(path).await;
        if checked.is_err() {
            // It may be moved away next, so nobody may hold it any more.
            pools.close().await;
        }
        checked.map(|()| pools)
    }

    /// Lets go of the file, after what is under way.
    pub(super) async fn close(&self) {
        // The last connection to leave folds the log, which one that only reads cannot.
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn connect(path: &Path) -> Result<Self, sqlx::Error> {
        let pool = || {
            SqlitePoolOptions::new()
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
        };
        let writing = connection(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("journal_size_limit", LOG.to_string());
        let writer = pool().max_connections(1).connect_with(writing).await?;
        let reading = connection(path).read_only(true);
        let readers = pool().max_connections(READERS).connect_lazy_with(reading);
        Ok(Self { writer, readers, aside: OnceLock::new() })
    }

    async fn check(&self, path: &Path) -> Result<(), Trouble> {
        migrations::run(&self.writer).await.map_err(|error| match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                trouble(path, "make the tables", error)
            }
            // That it is nobody else's was seen before. So what it says of its steps is wrong.
            _ => Trouble::Broken,
        })?;
        let is_as_made = is_as_made(&self.writer).await;
        let is_as_made = is_as_made.map_err(|error| trouble(path, "look at the tables", error))?;
        if is_as_made { Ok(()) } else { Err(Trouble::Broken) }
    }
}

/// Whether the tables are those that the steps make: a bit that flipped in the name of one would
/// be met by whoever uses it.
async fn is_as_made(pool: &SqlitePool) -> Result<bool, sqlx::Error> {
    let memory = SqliteConnectOptions::new().filename(":memory:").disable_statement_logging();
    let model = SqlitePoolOptions::new().max_connections(1).connect_with(memory).await?;
    if migrations::run(&model).await.is_err() {
        // Then nothing can be said against what is there.
        return Ok(true);
    }
    let wanted = schema(&model).await?;
    model.close().await;
    let there = schema(pool).await?;
    Ok(wanted.iter().all(|part| there.contains(part)))
}

async fn schema(pool: &SqlitePool) -> Result<Vec<(String, String, Option<String>)>, sqlx::Error> {
    let parts = "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name <> $1";
    sqlx::query_as(parts).bind(migrations::TABLE).fetch_all(pool).await
}

fn trouble(path: &Path, step: &'static str, error: sqlx::Error) -> Trouble {
    if failure::is_out_of_reach(&error) {
        Trouble::Other(failure::in_file(path, step, error))
    } else {
        Trouble::Broken
    }
}
