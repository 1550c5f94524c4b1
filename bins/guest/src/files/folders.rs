//! Makes folders, step by step and each from the one before.
//!
//! Every part is opened relative to the descriptor of its parent, so that a folder which is
//! exchanged for a link while we work cannot send a later part elsewhere by name.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::error::FileError;
use crate::users::User;

const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens the folder `path`, and makes it and its parents where they are missing.
///
/// What is made has the mode 0755 and belongs to the user. The descriptor is good for calls
/// relative to it, not for reading.
pub(crate) fn open_or_create(path: &Path, user: &User) -> Result<OwnedFd, FileError> {
    match rustix::fs::open(path, OPEN, Mode::empty()) {
        Ok(folder) => return Ok(folder),
        Err(Errno::NOENT) => {}
        Err(Errno::NOTDIR) => return Err(FileError::not_a_directory(path)),
        Err(errno) => return Err(FileError::from_errno(errno, path)),
    }
    let failed = |errno| FileError::from_errno(errno, path);
    let mut folder = rustix::fs::open("/", OPEN, Mode::empty()).map_err(failed)?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => Path::new(name),
            Component::ParentDir => Path::new(".."),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        folder = step(&folder, name, user).map_err(failed)?;
    }
    Ok(folder)
}

/// Opens one folder in another, and makes it where it is missing.
fn step(parent: &OwnedFd, name: &Path, user: &User) -> Result<OwnedFd, Errno> {
    match rustix::fs::openat(parent, name, OPEN, Mode::empty()) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
            give(&made, user)?;
            Ok(made)
        }
        // Somebody else was faster, or a link that leads nowhere has the name.
        Err(Errno::EXIST) => rustix::fs::openat(parent, name, OPEN, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// Gives an open file or folder to the user.
pub(crate) fn give(descriptor: impl std::os::fd::AsFd, user: &User) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::fs::fchown(descriptor, Some(uid), Some(gid))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::super::tests::myself;
    use super::*;

    #[test]
    fn missing_parents_are_made_and_belong_to_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        open_or_create(&path, &myself()).unwrap();
        let made = fs::metadata(folder.path().join("a/b")).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o755);
        assert_eq!((made.uid(), made.gid()), (myself().uid, myself().gid));
        open_or_create(&path, &myself()).unwrap();
    }

    #[test]
    fn links_to_folders_are_followed_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        open_or_create(&folder.path().join("link/x/../y"), &myself()).unwrap();
        assert!(folder.path().join("real/y").is_dir());
        assert!(folder.path().join("real/x").is_dir());
    }

    #[test]
    fn a_file_or_a_link_to_nowhere_on_the_way_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        symlink("nowhere", folder.path().join("link")).unwrap();
        for name in ["file", "file/below", "link", "link/below"] {
            open_or_create(&folder.path().join(name), &myself()).unwrap_err();
        }
        assert!(!folder.path().join("nowhere").exists());
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = Path::new("/tmp").join("a/".repeat(2100));
        let error = open_or_create(&long, &myself()).unwrap_err();
        assert_eq!(error.kind, super::super::error::FileErrorKind::Invalid);
        let long = Path::new("/tmp").join("n".repeat(256));
        let error = open_or_create(&long, &myself()).unwrap_err();
        assert_eq!(error.kind, super::super::error::FileErrorKind::Invalid);
    }
}
