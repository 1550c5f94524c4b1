//! What whoever made a sandbox wrote down with it, which is theirs to read, and what it may reach,
//! which is the egress program's.
//!
//! As it was when the sandbox was made it is in the manifest, so that a create waits for the disk
//! once; every later one is a file beside it, which counts instead.

use std::io;
use std::path::Path;

use provider::LARGEST_RECORD;

use crate::durable;
use crate::manifest::Manifest;
use crate::verbs::Record;

/// A text that is kept unread in a sandbox's folder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// What whoever made it wrote down.
    Record,
    /// What it may reach.
    Network,
}

impl Kept {
    fn name(self) -> &'static str {
        match self {
            Self::Record => "record.json",
            Self::Network => "network.json",
        }
    }

    fn first(self, manifest: Manifest) -> Record {
        match self {
            Self::Record => manifest.into_record(),
            Self::Network => manifest.into_network(),
        }
    }
}

/// Writes it whole or not at all, and so that it survives the host's death.
pub(crate) fn write(folder: &Path, kept: Kept, Record(text): &Record) -> io::Result<()> {
    durable::put(folder, kept.name(), text.as_bytes())?;
    durable::settle(folder)
}

/// Reads it. A sandbox of the first Soma has none, which is an empty one.
pub(crate) fn read(folder: &Path, kept: Kept) -> io::Result<Record> {
    let bytes = match durable::read(folder, kept.name()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Manifest::read(folder).map(|manifest| kept.first(manifest));
        }
        other => other?,
    };
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    if bytes.len() > LARGEST_RECORD {
        return Err(invalid("it is too large to be ours"));
    }
    String::from_utf8(bytes).map(Record).map_err(|_| invalid("it is no text"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_record_comes_back_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let write_and_read = |text: &str| {
            write(folder.path(), Kept::Record, &Record(text.to_owned())).unwrap();
            read(folder.path(), Kept::Record).unwrap().0
        };
        let largest = "x".repeat(LARGEST_RECORD);
        for text in ["first", "", &largest] {
            assert!(write_and_read(text) == text);
        }
        let mode = fs::metadata(folder.path().join("record.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "something else than it and its copy is left");
    }

    #[test]
    fn a_record_that_was_never_ours_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("record.json"), "x".repeat(LARGEST_RECORD + 1)).unwrap();
        assert!(read(folder.path(), Kept::Record).is_err());
        fs::write(folder.path().join("record.json"), [0xff]).unwrap();
        assert!(read(folder.path(), Kept::Record).is_err());
    }
}
