//! Folders of `/usr` that belong to the sandbox.
//!
//! For a user's engine the host's `/usr` belongs to nobody inside, and an overlay cannot take a
//! folder of nobody's over to its writable half. So the folders in which things are added or
//! replaced are there a second time, empty, with an owner inside: merged with the host's, they
//! show the host's files. A file of the host's can then be removed or replaced, as package
//! managers do, but not changed in place.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::tree::make_folder;

/// How far below `/usr` folders are made. Deeper ones, thousands of them, are read-only.
const DEPTH: usize = 2;

/// Where more is added than elsewhere, and how far below: by hand, manuals, and by Python's own
/// packages.
const DEEPER: [(&str, usize); 3] =
    [("local", usize::MAX), ("share/man", DEPTH - 1), ("lib/python3", DEPTH - 1)];

/// Makes them below `to`, which is there, after those of `from`.
pub(super) fn make_folders(from: &Path, to: &Path) -> io::Result<()> {
    below(from, to, DEPTH)?;
    for (name, depth) in DEEPER {
        if to.join(name).exists() {
            below(&from.join(name), &to.join(name), depth)?;
        }
    }
    Ok(())
}

fn below(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    if depth == 0 {
        return Ok(());
    }
    // What this user may not read is of no use to its sandboxes either.
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let target = to.join(entry.file_name());
        match make_folder(&target, entry.metadata()?.permissions().mode() & 0o1777) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => below(&entry.path(), &target, depth - 1)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_to_a_depth_and_deeper_where_things_are_added() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("lib/a/b")).unwrap();
        fs::create_dir_all(from.path().join("share/man/man1/deep")).unwrap();
        fs::create_dir_all(from.path().join("local/a/b/c/d")).unwrap();
        fs::write(from.path().join("lib/file"), "").unwrap();
        make_folders(from.path(), to.path()).unwrap();
        let there = |name: &str| to.path().join(name).exists();
        assert!(there("lib/a") && there("share/man/man1") && there("local/a/b/c/d"));
        assert!(!there("lib/a/b") && !there("share/man/man1/deep") && !there("lib/file"));
    }
}
