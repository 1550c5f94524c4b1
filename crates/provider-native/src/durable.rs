//! Small files that are there whole or not at all, also after the host's death.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a file into a folder, for our own user alone. An earlier one of that name is replaced.
///
/// That it is there is certain only once the folder is [settled](settle).
pub(crate) fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))
}

/// Makes sure that what was put into a folder stays there.
pub(crate) fn settle(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
