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
        Err(error) if failure::is_damage(&error) => Ok(Found::Broken),
        outcome => outcome.map_err(|error| failure::in_file(path, "look at what is there", error)),
    }
}

async fn look(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await?;
    if tables.iter().any(|table| table == migrations::TABLE) {
        let newest = "SELECT MAX(version) FROM _sqlx_migrations";
        let newest: Option<i64> = sqlx::query_scalar(newest).fetch_one(&mut *connection).await?;
        // Its tables may be as they will, so the rest is not asked of it.
        if newest > Some(migrations::NEWEST) {
            return Ok(Found::Later);
        }
    }
    // It reads every page, which a garbled one in the middle of the file does not pass.
    let verdict: String =
        sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut *connection).await?;
    if verdict != "ok" {
        return Ok(Found::Broken);
    }
    let is_ours = tables.is_empty() || tables.iter().any(|table| table == migrations::TABLE);
    Ok(if is_ours { Found::Usable } else { Found::Foreign })
}
