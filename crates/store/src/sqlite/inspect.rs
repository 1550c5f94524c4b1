//! What is in a file, found out before anything is written to it.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::{failure, migrations};
use crate::StoreError;

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet, or a database of ours.
    Usable,
    /// A database of a later Soma.
    Later,
    /// A whole database that we did not make.
    Foreign,
    /// No database, or one that is damaged.
    Broken,
}

/// Looks at a file.
pub(super) async fn inspect(
    path: &Path,
    options: SqliteConnectOptions,
) -> Result<Found, StoreError> {
    let outcome = match options.connect().await {
        Ok(mut connection) => {
            let outcome = look(&mut connection).await;
            // A file may be moved away next, so nobody may hold it any more.
            let closed = connection.close().await;
            outcome.and_then(|found| closed.map(|()| found))
        }
        Err(error) => Err(error),
    };
    match outcome {
        Err(error) if !failure::is_out_of_reach(&error) => Ok(Found::Broken),
        outcome => outcome.map_err(|error| failure::in_file(path, "look at what is there", error)),
    }
}

async fn look(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await?;
    let has_steps = tables.iter().any(|table| table == migrations::TABLE);
    if has_steps {
        let taken = "SELECT version FROM _sqlx_migrations";
        let taken: Vec<i64> = sqlx::query_scalar(taken).fetch_all(&mut *connection).await?;
        // Its tables may be as they will, so the rest is not asked of it.
        if migrations::is_later(&taken) {
            return Ok(Found::Later);
        }
    }
    // It reads every page and compares each index with its table, which a garbled byte in the
    // middle of either does not pass. For thousands of sandboxes it takes some ten milliseconds.
    let verdict: String =
        sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut *connection).await?;
    if verdict != "ok" {
        return Ok(Found::Broken);
    }
    let is_ours = tables.iter().any(|table| migrations::OWN.contains(&table.as_str()));
    Ok(match (has_steps, is_ours) {
        (true, _) => Found::Usable,
        // A name that is not what it was: nobody else has tables like these.
        (false, true) => Found::Broken,
        (false, false) if tables.is_empty() => Found::Usable,
        (false, false) => Found::Foreign,
    })
}
