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
//! the tables themselves (`migrations/`), the pragmas and what looks at the file (`file.rs`,
//! `inspect.rs`).

mod failure;
mod file;
mod inspect;
mod migrations;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Sqlite, Transaction};

use crate::StoreError;
use crate::sql::{self, Database, Row, Statement, failed};
use inspect::Found;

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
    writer: SqlitePool,
    readers: SqlitePool,
}

/// What was met while opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Where a damaged database was moved, when there was one. The store is empty then, and
    /// whoever opened it should tell: keys must be made anew.
    pub set_aside: Option<PathBuf>,
}

impl SqliteStore {
    /// Opens the store in this file, which is made when it is not there, for its owner only.
    ///
    /// A damaged file is moved aside to `NAME.damaged-SECONDS` and an empty one takes its place.
    /// A file that belongs to a later Soma or to another program is an error and stays as it is,
    /// and so does one that cannot be reached.
    ///
    /// Two processes must not open the same file at once; the daemon's own lock sees to that.
    pub async fn open(path: &Path) -> Result<(Self, Opened), StoreError> {
        let named = || path.display().to_string();
        let mut opened = Opened::default();
        let found = match file::prepare(path).map_err(failed("open the file"))? {
            file::Prepared::Ready => inspect::inspect(path, connection(path)).await?,
            file::Prepared::LogWithoutDatabase => Found::Broken,
        };
        match found {
            Found::Usable => {}
            Found::Later => return Err(StoreError::Later { name: named() }),
            Found::Foreign => {
                let reason = "it is another program's: move it away".to_owned();
                return Err(StoreError::Damaged { name: named(), reason });
            }
            Found::Broken => {
                let moved = file::set_aside(path);
                opened.set_aside = Some(moved.map_err(failed("set a damaged file aside"))?);
                file::prepare(path).map_err(failed("make a new file"))?;
            }
        }
        let store = Self::connect(path).await?;
        migrations::run(&store.writer, path).await?;
        Ok((store, opened))
    }

    /// Closes the file, after what is under way. Nothing is lost without it; the write-ahead log
    /// is folded into the database, so that the one file is all there is.
    pub async fn close(&self) {
        // The last connection to leave folds the log, which one that only reads cannot.
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn connect(path: &Path) -> Result<Self, StoreError> {
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
        let writer = pool().max_connections(1).connect_with(writing).await;
        let writer = writer.map_err(|error| failure::in_file(path, "connect", error))?;
        let reading = connection(path).read_only(true);
        let readers = pool().max_connections(READERS).connect_lazy_with(reading);
        Ok(Self { path: path.to_owned(), writer, readers })
    }
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
        let mut connection = self.writer.acquire().await?;
        let written = match connection.begin_with(WRITING).await {
            Ok(transaction) => run(transaction, statements).await,
            Err(error) => Err(error),
        };
        if written.as_ref().is_err_and(ends_transactions) {
            connection.close_on_drop();
        }
        written
    }

    /// How hard a connection syncs cannot be changed for one transaction, so a connection is made
    /// for it. Keys are made by people, and it takes a millisecond.
    async fn write_for_good(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error> {
        let options = connection(&self.path).synchronous(SqliteSynchronous::Full);
        let mut connection = options.connect().await?;
        run(connection.begin_with(WRITING).await?, statements).await?;
        // It is written, whatever becomes of the connection.
        let _ = connection.close().await;
        Ok(())
    }

    async fn read(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>, sqlx::Error> {
        let mut connection = self.readers.acquire().await?;
        let read = match connection.begin().await {
            Ok(transaction) => look(transaction, statements).await,
            Err(error) => Err(error),
        };
        if read.as_ref().is_err_and(ends_transactions) {
            connection.close_on_drop();
        }
        read
    }

    fn failure(&self, step: &'static str, error: sqlx::Error) -> StoreError {
        failure::in_file(&self.path, step, error)
    }

    fn damaged(&self, reason: String) -> StoreError {
        failure::damaged(&self.path, reason)
    }
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
