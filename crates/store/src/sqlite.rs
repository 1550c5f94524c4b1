//! The store that needs nothing but a file.
//!
//! One connection writes and two read, so a long list holds nobody up and a writer never finds
//! the file busy because of us. Each has a small page cache: an open store is to cost the daemon
//! a megabyte or two, not what SQLite would take when let.
//!
//! What survives what: in WAL mode with `synchronous = NORMAL`, everything that was answered
//! survives the end of this process. When the host itself stops without warning, the last writes
//! may be missing, though never half of one. For sandboxes that is no loss, because their folders
//! say it again; keys are written with `synchronous = FULL` and stay.
//!
//! Start at [`SqliteStore::open`]. The statements are those of every database (`sql.rs`); here are
//! the tables themselves (`migrations/`), the connections (`pools.rs`) and what looks at the file
//! (`file.rs`, `inspect.rs`).
//!
//! A damaged file is set aside, at the start or whenever it shows, and an empty one takes its place
//! (`salvage.rs`). Sandboxes are indexed anew by whoever hears of it. Keys are carried over: those
//! that can be read in the damaged file, or those that we had read when it was whole.

mod failure;
mod file;
mod inspect;
mod migrations;
mod pools;
mod salvage;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Sqlite, Transaction};

use crate::sql::{self, Database, Row, Statement, failed, keys};
use crate::{ApiKey, StoreError};
use failure::SetAside;
use inspect::Found;
use pools::{Pools, Trouble};

/// How long a write waits for another process that has the file: a backup, or a curious person.
const BUSY: Duration = Duration::from_secs(5);

/// How many connections read at once.
const READERS: u32 = 2;

/// What each connection may keep of the file, in KiB.
const CACHE: u32 = 512;

/// How many prepared statements each connection keeps.
const STATEMENTS: usize = 24;

/// What is kept of the write-ahead log between checkpoints, in bytes.
const LOG: u32 = 4 << 20;

/// How a transaction begins that may write from its first statement on.
const WRITING: &str = "BEGIN IMMEDIATE";

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    pools: Mutex<Arc<Pools>>,
    /// All that are in the file: they have no other place, and must not go with it.
    keys: Mutex<Vec<ApiKey>>,
    /// Where a damaged file went, until somebody who can fill the new one was told.
    untold: Mutex<Option<PathBuf>>,
    /// Held by whoever replaces a damaged file.
    replacing: tokio::sync::Mutex<()>,
}

/// What was met while opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Where a damaged database was moved, when there was one. The store has nothing but keys
    /// then, and whoever opened it should tell.
    pub set_aside: Option<PathBuf>,
    /// How many keys could be read in that one and are kept.
    pub keys: usize,
}

impl SqliteStore {
    /// Opens the store in this file, which is made when it is not there, for its owner only.
    ///
    /// A damaged file is moved aside to `NAME.damaged-SECONDS` and an empty one takes its place,
    /// with the keys that can still be read. A file that belongs to a later Soma or to another
    /// program is an error and stays as it is, and so does one that cannot be reached.
    ///
    /// Two processes must not open the same file at once; the daemon's own lock sees to that.
    pub async fn open(path: &Path) -> Result<(Self, Opened), StoreError> {
        let named = || path.display().to_string();
        let found = match file::prepare(path).map_err(failed("open the file"))? {
            file::Prepared::Ready => inspect::inspect(path, connection(path)).await?,
            file::Prepared::LogWithoutDatabase => Found::Broken,
        };
        let opened = match found {
            Found::Usable => Pools::open(path).await,
            Found::Broken => Err(Trouble::Broken),
            Found::Later => return Err(StoreError::Later { name: named() }),
            Found::Foreign => {
                let reason = "it is another program's: move it away".to_owned();
                return Err(StoreError::Damaged { name: named(), reason });
            }
        };
        let (pools, salvaged) = match opened {
            Ok(pools) => (pools, None),
            Err(Trouble::Broken) => {
                let salvaged = salvage::set_aside(path).await?;
                (open_new(path).await?, Some(salvaged))
            }
            Err(Trouble::Other(error)) => return Err(error),
        };
        let store = Self {
            path: path.to_owned(),
            pools: Mutex::new(Arc::new(pools)),
            keys: Mutex::default(),
            untold: Mutex::default(),
            replacing: tokio::sync::Mutex::default(),
        };
        let mut met = Opened::default();
        if let Some(salvaged) = salvaged {
            met = Opened { keys: salvaged.keys.len(), set_aside: Some(salvaged.aside) };
            for key in &salvaged.keys {
                keys::put(&store, key).await?;
            }
        }
        let known = keys::all(&store).await;
        *store.keys() = known.map_err(|error| store.failure("read the keys", error))?;
        Ok((store, met))
    }

    /// Closes the file, after what is under way. Nothing is lost without it; the write-ahead log
    /// is folded into the database, so that the one file is all there is.
    pub async fn close(&self) {
        self.pools().close().await;
    }

    fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.pools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keys(&self) -> MutexGuard<'_, Vec<ApiKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, Option<PathBuf>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a file that shows its damage only now went, and an empty one is in its place.
    async fn replace(&self, damaged: &Arc<Pools>) -> Result<PathBuf, StoreError> {
        let _turn = self.replacing.lock().await;
        if let Some(aside) = damaged.aside.get() {
            return Ok(aside.clone());
        }
        damaged.close().await;
        // The keys that were read from it while it was whole are better than what it has now.
        let salvaged = salvage::set_aside(&self.path).await?;
        let fresh = Arc::new(open_new(&self.path).await?);
        *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        let known = self.keys().clone();
        for key in &known {
            let kept = write_for_good(&self.path, keys::keeping(key)).await;
            kept.map_err(|error| self.failure(keys::KEEP, error))?;
        }
        *self.untold() = Some(salvaged.aside.clone());
        let _ = damaged.aside.set(salvaged.aside.clone());
        Ok(salvaged.aside)
    }

    /// What became of something that was done with these connections.
    async fn judged<T: Send>(
        &self,
        pools: &Arc<Pools>,
        outcome: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        match outcome {
            Err(error) if failure::is_damage(&error) => match self.replace(pools).await {
                Ok(aside) => Err(sqlx::Error::AnyDriverError(Box::new(SetAside(aside)))),
                // It stays as it is, and is met again.
                Err(_) => Err(error),
            },
            // Somebody else met it, and has closed what this one was about to use.
            Err(sqlx::Error::PoolClosed) => {
                let _turn = self.replacing.lock().await;
                let aside = pools.aside.get().cloned();
                Err(aside.map_or(sqlx::Error::PoolClosed, |aside| {
                    sqlx::Error::AnyDriverError(Box::new(SetAside(aside)))
                }))
            }
            outcome => outcome,
        }
    }
}

async fn open_new(path: &Path) -> Result<Pools, StoreError> {
    Pools::open(path).await.map_err(|trouble| match trouble {
        Trouble::Other(error) => error,
        Trouble::Broken => {
            let reason = "also a new one is damaged at once: look after the disk".to_owned();
            StoreError::Damaged { name: path.display().to_string(), reason }
        }
    })
}

/// What all connections have in common. The file is there: whoever removes it while it is open
/// is not given a new one without tables.
fn connection(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .foreign_keys(true)
        .busy_timeout(BUSY)
        .statement_cache_capacity(STATEMENTS)
        .pragma("cache_size", format!("-{CACHE}"))
        .disable_statement_logging()
}

#[async_trait]
impl Database for SqliteStore {
    async fn write(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error> {
        let pools = self.pools();
        let written = async {
            let mut connection = pools.writer.acquire().await?;
            let written = match connection.begin_with(WRITING).await {
                Ok(transaction) => run(transaction, statements).await,
                Err(error) => Err(error),
            };
            if written.as_ref().is_err_and(ends_transactions) {
                connection.close_on_drop();
            }
            written
        };
        let written = written.await;
        self.judged(&pools, written).await
    }

    async fn write_for_good(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error> {
        let pools = self.pools();
        let written = write_for_good(&self.path, statements).await;
        self.judged(&pools, written).await?;
        if let Ok(known) = keys::all(self).await {
            *self.keys() = known;
        }
        Ok(())
    }

    async fn read(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>, sqlx::Error> {
        let pools = self.pools();
        let read = async {
            let mut connection = pools.readers.acquire().await?;
            let read = match connection.begin().await {
                Ok(transaction) => look(transaction, statements).await,
                Err(error) => Err(error),
            };
            if read.as_ref().is_err_and(ends_transactions) {
                connection.close_on_drop();
            }
            read
        };
        let read = read.await;
        self.judged(&pools, read).await
    }

    fn lost(&self) -> Option<StoreError> {
        let aside = self.untold().take()?;
        Some(StoreError::Lost { name: self.path.display().to_string(), aside })
    }

    fn is_over(&self, error: &sqlx::Error) -> bool {
        failure::is_set_aside(error).is_some()
    }

    fn failure(&self, step: &'static str, error: sqlx::Error) -> StoreError {
        if self.is_over(&error) {
            // Whoever hears this is told.
            self.untold().take();
        }
        failure::in_file(&self.path, step, error)
    }
}

/// How hard a connection syncs cannot be changed for one transaction, so a connection is made for
/// it. Keys are made by people, and it takes a millisecond.
async fn write_for_good(path: &Path, statements: Vec<Statement>) -> Result<(), sqlx::Error> {
    let options = connection(path).synchronous(SqliteSynchronous::Full);
    let mut connection = options.connect().await?;
    run(connection.begin_with(WRITING).await?, statements).await?;
    // It is written, whatever becomes of the connection.
    let _ = connection.close().await;
    Ok(())
}

/// Whether SQLite may have ended the transaction by itself, as it does when the disk is full or
/// fails. Our driver does not notice: it would take the connection for one within a transaction
/// ever after, on which nothing can be written and all that is read is old.
fn ends_transactions(error: &sqlx::Error) -> bool {
    !error.as_database_error().is_some_and(DatabaseError::is_unique_violation)
}

async fn look(
    mut transaction: Transaction<'_, Sqlite>,
    statements: Vec<Statement>,
) -> Result<Vec<Vec<Row>>, sqlx::Error> {
    let mut answers = Vec::with_capacity(statements.len());
    for statement in statements {
        let columns = statement.columns();
        let rows = sql::bind::<Sqlite>(statement).fetch_all(&mut *transaction).await?;
        answers.push(rows.iter().map(|row| sql::cells(row, columns)).collect::<Result<_, _>>()?);
    }
    Ok(answers)
}

async fn run(
    mut transaction: Transaction<'_, Sqlite>,
    statements: Vec<Statement>,
) -> Result<(), sqlx::Error> {
    for statement in statements {
        sql::bind(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
