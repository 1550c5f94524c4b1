//! What a failure of PostgreSQL is to the caller.

use crate::StoreError;
use crate::sql::failed;

/// The beginnings of the server's codes that say it is out of reach: no connection, refused
/// credentials, no such database, too many connections, and a server that ends or begins.
const OUT_OF_REACH: [&str; 7] = ["08", "28", "3D", "53300", "57P01", "57P02", "57P03"];

/// A failure of a step with the database of this name.
pub(super) fn of(name: &str, step: &'static str, error: sqlx::Error) -> StoreError {
    let is_out_of_reach = match &error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| OUT_OF_REACH.iter().any(|beginning| code.starts_with(beginning))),
        _ => false,
    };
    if is_out_of_reach {
        StoreError::Unreachable { name: name.to_owned(), source: error.into() }
    } else {
        failed(step)(error)
    }
}
