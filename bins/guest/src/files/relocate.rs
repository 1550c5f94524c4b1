//! Moves a file or a tree.
//!
//! Within a file system that is one `rename`. Across file systems, and for folders of a lower
//! layer of the root, the kernel answers that it cannot: then a copy is made beside the
//! destination, put in place by a `rename`, and the source removed, as `mv` does.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::error::FileError;
use super::{copy, folders, remove};
use crate::users::User;

/// Moves `source` to `destination`, whose missing parents are made and given to the user.
///
/// Replaces what `rename` replaces: a file by a file, an empty folder by a folder.
pub(crate) fn relocate(source: &Path, destination: &Path, user: &User) -> Result<(), FileError> {
    let (from, name) = remove::open_parent(source)?;
    let stat = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| FileError::from_errno(errno, source))?;
    let Some(new_name) = destination.file_name() else {
        return Err(FileError::invalid(format!(
            "nothing can be moved to '{}'",
            destination.display()
        )));
    };
    let parent = destination.parent().unwrap_or(Path::new("/"));
    let to = folders::open_or_create(parent, user)?;

    // A source that is gone by now is told as such; anything else is about the destination.
    let failed = |errno| match errno {
        Errno::NOENT => FileError::from_errno(errno, source),
        Errno::INVAL => {
            FileError::invalid(format!("'{}' cannot be moved into itself", source.display()))
        }
        Errno::NOTDIR | Errno::ISDIR => FileError::invalid(format!(
            "'{}' cannot take the place of '{}': one is a directory and the other is not",
            source.display(),
            destination.display()
        )),
        Errno::EXIST => FileError::from_errno(Errno::NOTEMPTY, destination),
        errno => FileError::from_errno(errno, destination),
    };
    match rustix::fs::renameat(&from, name, &to, new_name) {
        Ok(()) => return Ok(()),
        Err(Errno::XDEV) => {}
        Err(errno) => return Err(failed(errno)),
    }

    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        remove::refuse_mounts(from.as_fd(), name, source)?;
    }
    let temporary = temporary_name(OsStr::new("move"));
    let copied = copy::copy(from.as_fd(), name, to.as_fd(), &temporary)
        .and_then(|()| rustix::fs::renameat(&to, &temporary, &to, new_name));
    if let Err(errno) = copied {
        // The first error is the one to tell; a rest of the copy is named like one.
        let _ = remove::remove_at(to.as_fd(), &temporary);
        return Err(failed(errno));
    }
    remove::remove_at(from.as_fd(), name).map_err(|errno| FileError::from_errno(errno, source))
}

/// A name for something that is about to get another one. It starts with a dot, so that a
/// listing by `ls` in between does not show it.
pub(crate) fn temporary_name(purpose: &OsStr) -> OsString {
    use std::hash::{BuildHasher as _, RandomState};

    let mut name = OsString::from(".soma-");
    name.push(purpose);
    // `RandomState` is seeded by the kernel and differs for every value, which is all that a
    // name needs that is then created exclusively.
    name.push(format!("-{:016x}", RandomState::new().hash_one(std::time::Instant::now())));
    name
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::super::error::FileErrorKind;
    use super::super::tests::myself;
    use super::*;

    #[test]
    fn a_move_makes_the_parents_and_replaces_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("a/b/to"));
        fs::write(&from, "new").unwrap();
        relocate(&from, &to, &myself()).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert!(!from.exists());
        fs::write(&from, "newer").unwrap();
        relocate(&from, &to, &myself()).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"newer");
    }

    #[test]
    fn a_missing_source_makes_no_parents() {
        let folder = tempfile::tempdir().unwrap();
        let error = relocate(&folder.path().join("none"), &folder.path().join("a/b"), &myself());
        assert_eq!(error.unwrap_err().kind, FileErrorKind::NotFound);
        assert!(!folder.path().join("a").exists());
    }

    #[test]
    fn moves_that_cannot_be_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("full/x")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (from, to, kind) in [
            ("other", "full", FileErrorKind::InTheWay),
            ("file", "full", FileErrorKind::Invalid),
            ("full", "file", FileErrorKind::Invalid),
            ("full", "full/x/y", FileErrorKind::Invalid),
            ("file", "file/below", FileErrorKind::Invalid),
            ("file", "..", FileErrorKind::Invalid),
            (".", "x", FileErrorKind::Invalid),
        ] {
            let error = relocate(&at(from), &at(to), &myself()).unwrap_err();
            assert_eq!(error.kind, kind, "{from} to {to}: {error}");
        }
    }

    #[test]
    fn a_tree_moves_to_another_file_system_with_all_it_has() {
        let here = tempfile::tempdir().unwrap();
        let Ok(there) = tempfile::tempdir_in("/dev/shm") else { return };
        if here.path().metadata().unwrap().dev() == there.path().metadata().unwrap().dev() {
            return;
        }
        let tree = here.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), "content").unwrap();
        fs::set_permissions(tree.join("a/file"), fs::Permissions::from_mode(0o4711)).unwrap();
        fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("../nowhere", tree.join("a/link")).unwrap();
        let pipe = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, tree.join("pipe"), FileType::Fifo, pipe, 0).unwrap();
        let time = fs::metadata(tree.join("a/file")).unwrap().modified().unwrap();

        let moved = there.path().join("below/moved");
        relocate(&tree, &moved, &myself()).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read(moved.join("a/file")).unwrap(), b"content");
        let file = fs::metadata(moved.join("a/file")).unwrap();
        assert_eq!(file.mode() & 0o7777, 0o4711);
        assert_eq!(file.modified().unwrap(), time);
        assert_eq!(fs::metadata(moved.join("a")).unwrap().mode() & 0o7777, 0o750);
        assert_eq!(fs::read_link(moved.join("a/link")).unwrap(), Path::new("../nowhere"));
        assert!(moved.join("pipe").exists());

        // What is in the way stops it, and nothing is left beside it.
        fs::create_dir_all(here.path().join("full/x")).unwrap();
        let error = relocate(&moved, &here.path().join("full"), &myself()).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::InTheWay);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
        assert!(moved.join("a/file").exists());
    }

    #[test]
    fn temporary_names_differ() {
        assert_ne!(temporary_name(OsStr::new("x")), temporary_name(OsStr::new("x")));
    }
}
