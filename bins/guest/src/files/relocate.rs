//! Moves a file or a tree.
//!
//! Within a file system that is one `rename`. Across file systems, and for folders of a lower
//! layer of the root, the kernel answers that it cannot: then a copy is made beside the
//! destination, put in place by a `rename`, and the source removed, as `mv` does.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use super::copy::{self, Manner, Names};
use super::error::{FileError, FileErrorKind};
use super::{folders, remove};
use crate::users::User;

/// What becomes of something that is where a file or a tree is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and nothing is done.
    Stays,
    /// It is replaced where `rename` replaces it: a file by a file, an empty folder by a folder.
    Replaced,
}

/// Moves `source` to `destination`, whose missing parents are made and given to the user.
pub(crate) fn relocate(
    source: &Path,
    destination: &Path,
    user: &User,
    existing: Existing,
) -> Result<(), FileError> {
    let (from, name) = remove::open_parent(source)?;
    let stat = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| FileError::from_errno(errno, source))?;
    let names = Names { source, destination };
    let place = Place::open(names, user, existing)?;
    match place.put(&from, name) {
        Ok(()) => return Ok(()),
        Err(Errno::XDEV) => {}
        Err(errno) => return Err(place.failed(errno)),
    }

    place.refuse_existing()?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        remove::refuse_mounts(from.as_fd(), name, source)?;
    }
    place.put_copy(&from, name, Manner::Move)?;
    remove::remove_at(from.as_fd(), name).map_err(|errno| FileError::from_errno(errno, source))
}

/// Where something goes.
pub(crate) struct Place<'a> {
    names: Names<'a>,
    pub(crate) folder: OwnedFd,
    name: &'a OsStr,
    existing: Existing,
}

impl<'a> Place<'a> {
    /// Makes the folders above the destination, where they are missing.
    pub(crate) fn open(
        names: Names<'a>,
        user: &User,
        existing: Existing,
    ) -> Result<Self, FileError> {
        let destination = names.destination;
        let Some(name) = destination.file_name() else {
            return Err(FileError::invalid(format!(
                "nothing can be put in the place of '{}'",
                destination.display()
            )));
        };
        let parent = destination.parent().unwrap_or(Path::new("/"));
        Ok(Self { names, folder: folders::open_or_create(parent, user)?, name, existing })
    }

    /// Says no when something is there that stays. It is only for those who would otherwise work
    /// in vain: what counts is said by the end.
    pub(crate) fn refuse_existing(&self) -> Result<(), FileError> {
        let found = rustix::fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW);
        if self.existing == Existing::Stays && found.is_ok() {
            return Err(self.failed(Errno::EXIST));
        }
        Ok(())
    }

    /// Copies what `name` is in `from` to beside the place, and puts the copy into it.
    pub(crate) fn put_copy(
        &self,
        from: &OwnedFd,
        name: &OsStr,
        manner: Manner,
    ) -> Result<(), FileError> {
        let to = self.folder.as_fd();
        let temporary = temporary_name(OsStr::new("copy"));
        let copied = copy::copy((from.as_fd(), name), (to, &temporary), self.names, manner)
            .and_then(|()| self.put(&self.folder, &temporary).map_err(|errno| self.failed(errno)));
        if copied.is_err() {
            // The first error is the one to tell; a rest of the copy is named like one.
            let _ = remove::remove_made(to, &temporary);
        }
        copied
    }

    fn put(&self, from: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match self.existing {
            Existing::Replaced => rustix::fs::renameat(from, name, &self.folder, self.name),
            Existing::Stays => {
                let flags = RenameFlags::NOREPLACE;
                rustix::fs::renameat_with(from, name, &self.folder, self.name, flags)
            }
        }
    }

    /// A source that is gone by now is told as such; anything else is about the destination.
    fn failed(&self, errno: Errno) -> FileError {
        let Names { source, destination } = self.names;
        match errno {
            Errno::NOENT => FileError::from_errno(errno, source),
            Errno::INVAL => {
                FileError::invalid(format!("'{}' cannot be moved into itself", source.display()))
            }
            Errno::NOTDIR | Errno::ISDIR => FileError::new(
                match errno {
                    Errno::ISDIR => FileErrorKind::IsADirectory,
                    _ => FileErrorKind::NotADirectory,
                },
                format!(
                    "'{}' cannot take the place of '{}': one is a directory and the other is not",
                    source.display(),
                    destination.display()
                ),
            ),
            Errno::EXIST if self.existing == Existing::Replaced => {
                FileError::from_errno(Errno::NOTEMPTY, destination)
            }
            errno => FileError::from_errno(errno, destination),
        }
    }
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

    use super::super::tests::myself;
    use super::*;

    #[test]
    fn a_move_makes_the_parents_and_replaces_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("a/b/to"));
        fs::write(&from, "new").unwrap();
        relocate(&from, &to, &myself(), Existing::Replaced).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert!(!from.exists());
        fs::write(&from, "newer").unwrap();
        relocate(&from, &to, &myself(), Existing::Replaced).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"newer");
    }

    #[test]
    fn a_missing_source_makes_no_parents() {
        let folder = tempfile::tempdir().unwrap();
        let error = relocate(
            &folder.path().join("none"),
            &folder.path().join("a/b"),
            &myself(),
            Existing::Replaced,
        );
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
            ("other", "full", FileErrorKind::NotEmpty),
            ("file", "full", FileErrorKind::IsADirectory),
            ("full", "file", FileErrorKind::NotADirectory),
            ("full", "full/x/y", FileErrorKind::Invalid),
            ("file", "file/below", FileErrorKind::NotADirectory),
            ("file", "..", FileErrorKind::Invalid),
            (".", "x", FileErrorKind::Invalid),
        ] {
            let error = relocate(&at(from), &at(to), &myself(), Existing::Replaced).unwrap_err();
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
        relocate(&tree, &moved, &myself(), Existing::Replaced).unwrap();
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
        let error =
            relocate(&moved, &here.path().join("full"), &myself(), Existing::Replaced).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::NotEmpty);
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 1);
        assert!(moved.join("a/file").exists());
    }

    #[test]
    fn temporary_names_differ() {
        assert_ne!(temporary_name(OsStr::new("x")), temporary_name(OsStr::new("x")));
    }
}
