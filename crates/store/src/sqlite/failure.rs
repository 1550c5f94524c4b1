//! What a failure of SQLite is to the caller.

use std::path::{Path, PathBuf};

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

/// Codes that say something of the host and nothing of what is in the file: permission, busy,
/// locked, memory, interrupted, input and output, full, cannot open, protocol, large files, access.
const HOST: [i32; 11] = [3, 5, 6, 7, 9, 10, 13, 14, 15, 22, 23];

/// `SQLITE_READONLY` with something behind it: a folder that cannot be written, for instance. Bare
/// it is what the file says of itself, because we could open it for writing.
const READ_ONLY: i32 = 8;

/// `SQLITE_IOERR_SHORT_READ`: a file that ends where it should not.
const SHORT_READ: i32 = 0x020a;

/// Whether a failure while opening says nothing about what is in the file.
pub(super) fn is_out_of_reach(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default();
            let is_hosts = HOST.contains(&(code & 0xff)) && code != SHORT_READ;
            is_hosts || (code & 0xff == READ_ONLY && code != READ_ONLY)
        }
        // What was read is not what was written.
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => {
            false
        }
        _ => true,
    }
}

/// An empty file has taken the place of this one. It travels as an error of the driver's.
#[derive(Debug, thiserror::Error)]
#[error("it was damaged")]
pub(super) struct SetAside(pub(super) PathBuf);

/// Where the file went over which something failed, if it did.
pub(super) fn is_set_aside(error: &sqlx::Error) -> Option<&Path> {
    let sqlx::Error::AnyDriverError(cause) = error else { return None };
    cause.downcast_ref().map(|SetAside(aside)| aside.as_path())
}

/// A failure of a step with the file.
pub(super) fn in_file(path: &Path, step: &'static str, error: sqlx::Error) -> StoreError {
    let name = || path.display().to_string();
    if let Some(aside) = is_set_aside(&error) {
        return StoreError::Lost { name: name(), aside: aside.to_owned() };
    }
    if is_damage(&error) {
        let reason = format!("{error}; it is set aside at the next start");
        StoreError::Damaged { name: name(), reason }
    } else {
        failed(step)(error)
    }
}
