//! Whose a database is, found out before anything is written to it, and its tables.
//!
//! One daemon at a time does this to a database: it holds an advisory lock, which the server takes
//! back when the connection ends.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};

use super::failure;
use crate::StoreError;
use crate::sql::migrations::{self, Step};

/// Where it is written down which steps were taken. The usual name is that of many programs.
const TABLE: &str = "soma_migrations";

/// The number of the lock: `soma` in ASCII.
const LOCK: i64 = 0x73_6f_6d_61;

const STEPS: &[Step] = &[
    (
        1,
        "leases keys events",
        include_str!("../../migrations/postgres/0001_leases_keys_events.sql"),
    ),
    (2, "no events", include_str!("../../migrations/postgres/0002_no_events.sql")),
];

/// What is being done, for errors.
const STEP: &str = "look at what is there";

/// Makes the database that of a home, unless it is anybody else's.
pub(super) async fn claim(
    options: &PgConnectOptions,
    name: &str,
    home: &str,
) -> Result<(), StoreError> {
    let failed = |error| failure::of(name, STEP, error);
    let mut connection =
        options.connect().await.map_err(|error| failure::of(name, "connect", error))?;
    let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK);
    lock.execute(&mut connection).await.map_err(failed)?;
    let claimed = claim_alone(&mut connection, name, home).await;
    // The lock goes with it.
    let _ = connection.close().await;
    claimed
}

async fn claim_alone(
    connection: &mut PgConnection,
    name: &str,
    home: &str,
) -> Result<(), StoreError> {
    let failed = |error| failure::of(name, STEP, error);
    if let Some(refusal) = refusal(connection).await.map_err(failed)? {
        return Err(refusal(name.to_owned()));
    }
    let mut migrator = migrations::migrator(STEPS);
    migrator.dangerous_set_table_name(TABLE);
    migrator.run_direct(None, connection, false).await.map_err(|error| {
        migrations::failure(error, name, STEPS, |step, error| failure::of(name, step, error))
    })?;
    let owner = take(connection, home).await.map_err(failed)?;
    if owner == home { Ok(()) } else { Err(StoreError::Taken { name: name.to_owned() }) }
}

/// Why the database cannot be used, which is a matter of what is in it.
async fn refusal(
    connection: &mut PgConnection,
) -> Result<Option<fn(String) -> StoreError>, sqlx::Error> {
    let encoding: String =
        sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut *connection).await?;
    if encoding != "UTF8" {
        return Ok(Some(|name| {
            let reason = "its encoding is not UTF8: create one with ENCODING 'UTF8'".to_owned();
            StoreError::Damaged { name, reason }
        }));
    }
    let tables = "SELECT tablename::TEXT FROM pg_catalog.pg_tables \
                  WHERE schemaname = current_schema()";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await?;
    if tables.is_empty() {
        return Ok(None);
    }
    if !tables.iter().any(|table| table == TABLE) {
        return Ok(Some(|name| {
            let reason = "it is another program's: give soma a database of its own".to_owned();
            StoreError::Damaged { name, reason }
        }));
    }
    let newest = "SELECT MAX(version) FROM soma_migrations";
    let newest: Option<i64> = sqlx::query_scalar(newest).fetch_one(&mut *connection).await?;
    let known = STEPS.last().map(|(version, ..)| *version);
    Ok((newest > known).then_some(|name| StoreError::Later { name }))
}

/// Writes down whose it is, unless that is written already, and says whose.
async fn take(connection: &mut PgConnection, home: &str) -> Result<String, sqlx::Error> {
    sqlx::query("INSERT INTO soma_home (id) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(home)
        .execute(&mut *connection)
        .await?;
    sqlx::query_scalar("SELECT id FROM soma_home").fetch_one(connection).await
}
