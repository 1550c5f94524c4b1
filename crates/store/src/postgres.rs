//! The store in a PostgreSQL server, for whoever has one that is looked after anyway.
//!
//! A few connections do everything, made when they are needed and looked at before they are used:
//! a server that went away and came back is used again by the next call. Every call is bounded,
//! by the server and by the clock here, so one that never answers is an error and no silence.
//!
//! What survives what is the server's affair: with its usual settings, everything that was
//! answered survives the end of its host. Where it is set to answer sooner, keys still wait.
//!
//! Start at [`PostgresStore::open`]. The statements are those of every database (`sql.rs`); here
//! are the tables (`migrations/`), whose the database is (`claim.rs`), where it is (`address.rs`)
//! and how texts are spelled that PostgreSQL does not take (`spelling.rs`).

mod address;
mod claim;
mod failure;
mod spelling;

use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, Postgres};
use sqlx::{ConnectOptions, Transaction};

pub use address::{Address, InvalidAddress};

use crate::StoreError;
use crate::sql::{self, Database, Row, Statement, Value};

/// How many connections there are at the most.
const CONNECTIONS: u32 = 8;

/// How long a connection is waited for.
const ACQUIRE: Duration = Duration::from_secs(5);

/// How long the server tries one statement.
const STATEMENT: Duration = Duration::from_secs(10);

/// How long a call takes at the most, also when the server says nothing more.
const CALL: Duration = Duration::from_secs(30);

/// How many prepared statements each connection keeps.
const STATEMENTS: usize = 24;

/// A store in one database of a PostgreSQL server.
pub struct PostgresStore {
    name: String,
    pool: PgPool,
}

impl PostgresStore {
    /// Opens the store of the home with this id.
    ///
    /// An empty database is taken for this home. One that belongs to another home, to a later
    /// Soma or to another program is an error and stays as it is.
    pub async fn open(address: &Address, home: &str) -> Result<Self, StoreError> {
        let name = address.to_string();
        let options = connection(address.options().clone());
        let claimed = bounded(async { Ok(claim::claim(&options, &name, home).await) });
        claimed.await.map_err(|error| failure::of(&name, "connect", error))??;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE)
            .connect_lazy_with(options);
        Ok(Self { name, pool })
    }

    /// Closes its connections, after what is under way. Nothing is lost without it.
    pub async fn close(&self) {
        // A server that says nothing more holds nobody up.
        let _ = tokio::time::timeout(ACQUIRE, self.pool.close()).await;
    }
}

impl fmt::Debug for PostgresStore {
    /// Without the pool, which knows the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PostgresStore").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl Database for PostgresStore {
    async fn write(&self, statements: Vec<Statement>) -> Result<(), sqlx::Error> {
        bounded(async { run(self.pool.begin().await?, statements).await }).await
    }

    async fn write_for_good(&self, mut statements: Vec<Statement>) -> Result<(), sqlx::Error> {
        // Two that write the same key come one after the other.
        let first = ["SET LOCAL synchronous_commit = on", "LOCK TABLE api_keys IN EXCLUSIVE MODE"];
        statements.splice(..0, first.map(Statement::new));
        self.write(statements).await
    }

    async fn read(&self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>, sqlx::Error> {
        bounded(async {
            // What one statement sees is of one moment anyway.
            let begin = match statements.len() {
                1 => "BEGIN READ ONLY",
                _ => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            };
            let mut transaction = self.pool.begin_with(begin).await?;
            let mut answers = Vec::with_capacity(statements.len());
            for statement in statements {
                let columns = statement.columns();
                let query = sql::bind::<Postgres>(statement.spelled(spelling::write));
                let mut rows = Vec::new();
                for row in query.fetch_all(&mut *transaction).await? {
                    rows.push(sql::cells(&row, columns)?.into_iter().map(read).collect());
                }
                answers.push(rows);
            }
            transaction.commit().await?;
            Ok(answers)
        })
        .await
    }

    fn failure(&self, step: &'static str, error: sqlx::Error) -> StoreError {
        failure::of(&self.name, step, error)
    }
}

/// What all connections have in common.
fn connection(options: PgConnectOptions) -> PgConnectOptions {
    let milliseconds = STATEMENT.as_millis().to_string();
    options
        .options([
            ("statement_timeout", milliseconds.as_str()),
            ("idle_in_transaction_session_timeout", "60000"),
        ])
        .application_name("soma")
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging()
}

async fn run(
    mut transaction: Transaction<'static, Postgres>,
    statements: Vec<Statement>,
) -> Result<(), sqlx::Error> {
    for statement in statements {
        let query = sql::bind::<Postgres>(statement.spelled(spelling::write));
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

fn read(value: Value) -> Value {
    match value {
        Value::Text(text) => Value::Text(spelling::read(text)),
        value => value,
    }
}

/// Ends what takes too long, with its connection: nobody knows what that would say next.
async fn bounded<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = |_| sqlx::Error::Io(io::Error::from(io::ErrorKind::TimedOut));
    tokio::time::timeout(CALL, call).await.map_err(late)?
}
