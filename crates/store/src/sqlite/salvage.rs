//! A damaged file makes place for a new one, and what has no other place is carried over.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection};

use super::file;
use crate::sql::{self, Kind, Statement, keys};
use crate::{ApiKey, StoreError};

/// The next key behind one, in the order in which they lie.
const NEXT: &str = "SELECT name, owner, created_at, hash, rowid FROM api_keys \
                    WHERE rowid > $1 ORDER BY rowid LIMIT 1";
const COLUMNS: &[Kind] = &[Kind::Text, Kind::Text, Kind::Number, Kind::Text, Kind::Number];

/// What was saved of a damaged file.
pub(super) struct Salvaged {
    pub(super) aside: PathBuf,
    pub(super) keys: Vec<ApiKey>,
}

/// Moves a damaged file aside, makes an empty one, and reads the keys that can still be read.
pub(super) async fn set_aside(path: &Path) -> Result<Salvaged, StoreError> {
    let aside = file::set_aside(path).map_err(sql::failed("set a damaged file aside"))?;
    file::prepare(path).map_err(sql::failed("make a new file"))?;
    let keys = read_keys(&aside).await;
    Ok(Salvaged { aside, keys })
}

/// The keys that can be reached: whatever is wrong, it is no reason to fail. They are read in a copy,
/// because SQLite would fold a log into what was set aside, or remove it.
async fn read_keys(aside: &Path) -> Vec<ApiKey> {
    let Ok(copy) = file::copy(aside) else { return Vec::new() };
    let options = SqliteConnectOptions::new().filename(copy.path()).disable_statement_logging();
    let Ok(mut connection) = options.connect().await else {
        return Vec::new();
    };
    let keys = readable(&mut connection).await;
    let _ = connection.close().await;
    keys
}

/// One after the other, so that those before a damaged page are found.
async fn readable(connection: &mut SqliteConnection) -> Vec<ApiKey> {
    let mut found = Vec::new();
    let mut last = i64::MIN;
    loop {
        let next = Statement::asking(NEXT, COLUMNS).with(last);
        let row = sql::bind::<Sqlite>(next).fetch_optional(&mut *connection).await;
        let Some(mut cells) = row.ok().flatten().and_then(|row| sql::cells(&row, COLUMNS).ok())
        else {
            return found;
        };
        let number = cells.pop().map_or(last, |cell| cell.number());
        found.extend(keys::from_row(cells));
        if number <= last {
            // A damaged table may tell the same row for ever.
            return found;
        }
        last = number;
    }
}
