//! What a failure of SQLite is to the caller.

use std::path::Path;

use crate::StoreError;
use crate::sql::failed;

/// `SQLITE_CORRUPT` and `SQLITE_NOTADB`. Everything else, a full disk and a refused permission
/// among them, says nothing about what is in the file.
const DAMAGE: [i32; 2] = [11, 26];

/// Whether the file is damaged, as opposed to out of reach.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    // The low byte is the kind; the rest says where it was met.
    code.is_some_and(|code| DAMAGE.contains(&(code & 0xff)))
}

/// A failure of a step with the file.
pub(super) fn in_file(path: &Path, step: &'static str, error: sqlx::Error) -> StoreError {
    if is_damage(&error) {
        damaged(path, format!("{error}; it is set aside at the next start"))
    } else {
        failed(step)(error)
    }
}

/// What is in the file makes no sense.
pub(super) fn damaged(path: &Path, reason: String) -> StoreError {
    StoreError::Damaged { name: path.display().to_string(), reason }
}
