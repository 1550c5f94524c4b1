//! What whoever made a sandbox wrote down with it: a file in its folder, which is theirs to read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use provider::LARGEST_RECORD;

use crate::durable;

const NAME: &str = "record.json";

/// Puts the record of a sandbox that is being made into its folder, which is not settled yet.
/// One who has nothing to say gets no file.
pub(crate) fn put(folder: &Path, text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { durable::put(folder, NAME, text.as_bytes()) }
}

/// Writes it whole or not at all, and so that it survives the host's death.
pub(crate) fn write(folder: &Path, text: &str) -> io::Result<()> {
    durable::put(folder, NAME, text.as_bytes())?;
    durable::settle(folder)
}

/// Reads it. A sandbox of an earlier Soma has none, which is an empty one.
pub(crate) fn read(folder: &Path) -> io::Result<String> {
    let file = match File::open(folder.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        other => other?,
    };
    let mut text = String::new();
    file.take(LARGEST_RECORD as u64 + 1).read_to_string(&mut text)?;
    if text.len() > LARGEST_RECORD {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large to be ours"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_record_comes_back_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "first").unwrap();
        assert_eq!(read(folder.path()).unwrap(), "first");
        write(folder.path(), "").unwrap();
        assert_eq!(read(folder.path()).unwrap(), "");
        let largest = "x".repeat(LARGEST_RECORD);
        write(folder.path(), &largest).unwrap();
        assert_eq!(read(folder.path()).unwrap(), largest);
        let mode = fs::metadata(folder.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "something else is left");
    }

    #[test]
    fn a_sandbox_without_a_record_has_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "").unwrap();
        assert_eq!(read(folder.path()).unwrap(), "");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_record_that_was_never_ours_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), "x".repeat(LARGEST_RECORD + 1)).unwrap();
        assert!(read(folder.path()).is_err());
        fs::write(folder.path().join(NAME), [0xff]).unwrap();
        assert!(read(folder.path()).is_err());
    }
}
