//! Removes files and whole trees.
//!
//! A tree is emptied from the inside by descriptors, never by path: a folder that is exchanged
//! for a link while we work leads nowhere else, and a tree that is deeper than the longest path
//! is removed like any other. Down to [`KEPT_OPEN`] levels a descriptor is kept for each folder;
//! below that the way back is `..`, which is only taken when it is the folder we came from.
//!
//! Mount points are looked for before anything is removed, because the kernel would refuse the
//! mount point itself only after all that is in it had gone.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::{FileError, FileErrorKind};
use super::{attributes, entry};

/// Levels for which a descriptor is kept.
const KEPT_OPEN: usize = 64;

/// How often a folder that others fill while we empty it is gone through again.
const MOST_ROUNDS: u32 = 16;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes what `path` names, with all that is in it. What is not there is removed already.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match remove_existing(path, true) {
        Err(error) if error.kind == FileErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Removes what `path` names; a folder that holds something only if `recursive`.
pub(crate) fn remove_existing(path: &Path, recursive: bool) -> Result<(), FileError> {
    let (parent, name) = open_parent(path)?;
    let failed = |errno| FileError::from_errno(errno, path);
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed);
    }
    if recursive {
        refuse_mounts(parent.as_fd(), name, path)?;
        return remove_at(parent.as_fd(), name).map_err(failed);
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(|errno| match errno {
        Errno::NOTEMPTY | Errno::EXIST => FileError::new(
            FileErrorKind::NotEmpty,
            format!(
                "directory '{}' is not empty; remove it recursively to remove all in it",
                path.display()
            ),
        ),
        errno => failed(errno),
    })
}

/// Opens the folder in which the last part of `path` lies, and gives that last part.
///
/// The root, `.` and `..` have no such part: they cannot be removed, moved or written.
pub(crate) fn open_parent(path: &Path) -> Result<(OwnedFd, &OsStr), FileError> {
    let text = path.as_os_str().as_bytes();
    let end = text.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let last = text[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if last.is_empty() || last == b"." || last == b".." {
        return Err(FileError::invalid(format!("'{}' cannot be used here", path.display())));
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => Ok((parent, OsStr::from_bytes(last))),
        // Below a file there is nothing, as there is below a folder that is missing.
        Err(Errno::NOENT | Errno::NOTDIR) => Err(FileError::from_errno(Errno::NOENT, path)),
        Err(errno) => Err(FileError::from_errno(errno, path)),
    }
}

/// Refuses a folder that is a mount point or has one in it.
pub(crate) fn refuse_mounts(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
) -> Result<(), FileError> {
    let failed = |message: String| FileError::new(FileErrorKind::Internal, message);
    let folder = entry::path_of(parent)
        .map_err(|errno| failed(format!("could not find '{}': {errno}", path.display())))?
        .join(name);
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| failed(format!("could not read the mount table: {error}")))?;
    match table
        .split(|byte| *byte == b'\n')
        .filter_map(mount_point)
        .find(|mount| mount.starts_with(&folder))
    {
        None => Ok(()),
        Some(mount) if mount == folder => {
            Err(FileError::in_the_way(format!("'{}' is a mount point", path.display())))
        }
        Some(mount) => Err(FileError::in_the_way(format!(
            "'{}' holds the mount point '{}'",
            path.display(),
            mount.display()
        ))),
    }
}

/// The mount point in a line of `mountinfo`, where blanks and backslashes are written in octal.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let code = std::str::from_utf8(after.get(..3).unwrap_or_default())
            .ok()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if *first == b'\\' => {
                bytes.push(code);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Removes the entry `name` of a folder, with all that is in it.
pub(crate) fn remove_at(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    remove_tree(parent, name, Level::open)
}

/// As [`remove_at`], for what we made ourselves: folders that forbid it are opened up first.
pub(crate) fn remove_made(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    remove_tree(parent, name, |parent, name| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        // What cannot be opened up tells so when it is opened.
        let _ = attributes::change_mode(&folder, 0o700);
        Level::open(parent, name)
    })
}

fn remove_tree(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    open: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<Level, Errno>,
) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    let first = open(parent, name)?;
    let device = first.identity.0;
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        let Some(folder) = &mut level.folder else { return Err(Errno::BADF) };
        match folder.read() {
            Some(entry) => {
                let entry = entry?;
                let name = entry.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                match rustix::fs::unlinkat(folder.fd()?, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(Errno::ISDIR) => {}
                    Err(errno) => return Err(errno),
                }
                let below = open(folder.fd()?, OsStr::from_bytes(name.to_bytes()))?;
                // Something was mounted there since we looked.
                if below.identity.0 != device {
                    return Err(Errno::BUSY);
                }
                if levels.len() > KEPT_OPEN
                    && let Some(level) = levels.last_mut()
                {
                    level.folder = None;
                }
                levels.push(below);
            }
            None => leave(parent, &mut levels)?,
        }
    }
    Ok(())
}

/// Goes from an emptied folder back to its parent, and removes it there.
fn leave(top: BorrowedFd<'_>, levels: &mut Vec<Level>) -> Result<(), Errno> {
    let Some(mut emptied) = levels.pop() else { return Ok(()) };
    let parent = match levels.last_mut() {
        None => top,
        Some(parent) => {
            if parent.folder.is_none() {
                let below = emptied.folder.as_ref().ok_or(Errno::BADF)?;
                let above = Level::open(below.fd()?, OsStr::new(".."))?;
                // The folder was moved away while we were in it: up there is not our tree.
                if above.identity != parent.identity {
                    return Err(Errno::BUSY);
                }
                parent.folder = above.folder;
            }
            parent.folder.as_ref().ok_or(Errno::BADF)?.fd()?
        }
    };
    match rustix::fs::unlinkat(parent, &emptied.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) if emptied.rounds < MOST_ROUNDS => {
            emptied.rounds += 1;
            if let Some(folder) = &mut emptied.folder {
                folder.rewind();
            }
            levels.push(emptied);
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// A folder that is being emptied.
struct Level {
    name: OsString,
    /// Device and number, by which the folder is known again.
    identity: (u64, u64),
    folder: Option<Dir>,
    rounds: u32,
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Self, Errno> {
        let folder = rustix::fs::openat(parent, name, OPEN, Mode::empty())?;
        let stat = rustix::fs::fstat(&folder)?;
        Ok(Self {
            name: name.to_owned(),
            identity: (stat.st_dev, stat.st_ino),
            folder: Some(Dir::new(folder)?),
            rounds: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_goes_and_what_its_links_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        fs::write(tree.join("a/file"), "").unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        symlink("nowhere", tree.join("dangling")).unwrap();
        remove(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn a_link_is_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("link")).unwrap();
        remove(&folder.path().join("link/")).unwrap();
        assert!(folder.path().join("real").exists());
        assert!(folder.path().join("link").symlink_metadata().is_err());
    }

    #[test]
    fn what_is_not_there_is_removed_already() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["none", "none/below", "file/below"] {
            remove(&folder.path().join(name)).unwrap();
        }
        assert!(folder.path().join("file").exists());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::open(folder.path(), OPEN, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).unwrap();
            let file = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&at, "z", file, Mode::from_raw_mode(0o600)).unwrap();
            at = rustix::fs::openat(&at, "d", OPEN, Mode::empty()).unwrap();
        }
        drop(at);
        remove(&folder.path().join("d")).unwrap();
        assert!(!folder.path().join("d").exists());
        assert!(folder.path().join("z").exists());
    }

    #[test]
    fn the_root_and_dots_are_refused() {
        // Not by `remove` itself: a test of a broken program must not take the machine with it.
        for path in ["/", "//", "/tmp/.", "/tmp/..", "/tmp/./", "/.."] {
            let error = open_parent(Path::new(path)).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        let error = remove(&folder.path().join(".")).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::Invalid);
    }

    #[test]
    fn mount_points_and_what_holds_them_are_refused_before_anything_goes() {
        let error = remove(Path::new("/proc")).unwrap_err();
        assert_eq!(error.message, "'/proc' is a mount point");
        // A link on the way does not hide it.
        let folder = tempfile::tempdir().unwrap();
        symlink("/", folder.path().join("root")).unwrap();
        let error = remove(&folder.path().join("root/proc")).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::InTheWay);
    }

    #[test]
    fn octal_in_the_mount_table_is_read() {
        let line = br"36 35 98:0 / /mnt/a\040b\134c rw - ext4 /dev/root rw";
        assert_eq!(mount_point(line).unwrap(), Path::new("/mnt/a b\\c"));
        let line = br"36 35 98:0 / /mnt/a\9 rw - ext4 /dev/root rw";
        assert_eq!(mount_point(line).unwrap(), Path::new("/mnt/a\\9"));
        assert_eq!(mount_point(b""), None);
    }

    #[test]
    fn pipes_and_sockets_are_removed_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        remove(&pipe).unwrap();
        assert!(!pipe.exists());
    }
}
