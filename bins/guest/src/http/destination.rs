//! Where an upload goes.
//!
//! A file that is there already is replaced as a whole: the content goes to a temporary file
//! beside it, with the same mode and owner, which takes its place at the end, so nobody ever sees
//! half of it. A new file is made, given to the user and written, in this order and in place:
//! whoever watches the folder sees it made, changed and written, as with E2B's agent. What is not
//! finished is removed, whatever the reason, when the [`Destination`] is dropped.
//!
//! All names are resolved once, to a descriptor of the folder and a name in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use super::download::not_a_file;
use crate::files::metadata::{self, Metadata};
use crate::files::{FileError, blocking, folders, memory, temporary_name};
use crate::users::User;

/// Bytes that are collected for one write.
const CHUNK: usize = 256 << 10;

/// Pieces that are collected for one write, however small; the kernel takes 1024.
const MOST_PIECES: usize = 512;

/// As many links one after the other as the kernel follows.
const MOST_LINKS: usize = 40;

const OPEN_FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const CREATE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Destination {
    /// The path as the caller knows it.
    path: PathBuf,
    file: Arc<File>,
    /// It lies in memory.
    in_memory: bool,
    place: Place,
    collected: Vec<Bytes>,
    collected_bytes: usize,
    writing: Option<JoinHandle<io::Result<()>>>,
}

/// The folder and the name, and what has to be undone.
#[derive(Debug)]
struct Place {
    folder: OwnedFd,
    name: OsString,
    /// The name under which the content is written, where that is not the name itself.
    temporary: Option<OsString>,
    /// Device and number of the file that was made.
    identity: (u64, u64),
    is_finished: bool,
}

impl Destination {
    /// Makes the file and its folders. Blocks.
    ///
    /// With a mode the file has exactly that; without, a new one has the usual mode and one that
    /// is replaced keeps its own.
    pub(super) fn open(
        path: &Path,
        user: &User,
        set: &Metadata,
        mode: Option<u32>,
    ) -> Result<Self, FileError> {
        let text = path.as_os_str().as_bytes();
        let Some(name) = path.file_name().filter(|_| !ends_as_folder(text)) else {
            return Err(FileError::from_errno(Errno::ISDIR, path));
        };
        let folder = folders::open_or_create(path.parent().unwrap_or(Path::new("/")), user)?;
        let (file, place) = find_place(folder, name.to_owned(), path, user)?;
        metadata::write(&file, set, path)?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
                .map_err(|errno| FileError::from_errno(errno, path))?;
        }
        let in_memory = memory::holds(&file);
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            in_memory,
            place,
            collected: Vec::new(),
            collected_bytes: 0,
            writing: None,
        })
    }

    /// Adds content. It is on the disk after [`Self::finish`].
    pub(super) async fn write(&mut self, data: Bytes) -> Result<(), FileError> {
        self.collected_bytes += data.len();
        self.collected.push(data);
        if self.collected_bytes >= CHUNK || self.collected.len() >= MOST_PIECES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes the rest and puts the file in place.
    pub(super) async fn finish(mut self) -> Result<PathBuf, FileError> {
        self.flush().await?;
        self.written().await?;
        blocking::short(move || {
            // All of it moves here, so that the end of an error removes the file.
            let mut done = self;
            let Place { folder, name, temporary, is_finished, .. } = &mut done.place;
            if let Some(temporary) = temporary {
                rustix::fs::renameat(&*folder, &*temporary, &*folder, &*name)
                    .map_err(|errno| FileError::from_errno(errno, &done.path))?;
            }
            *is_finished = true;
            Ok(std::mem::take(&mut done.path))
        })
        .await
    }

    /// Begins to write what was collected, once what was begun before is written.
    async fn flush(&mut self) -> Result<(), FileError> {
        self.written().await?;
        let pieces = std::mem::take(&mut self.collected);
        let length = std::mem::take(&mut self.collected_bytes);
        if self.in_memory {
            memory::take(&self.file, length as u64, &self.path)?;
        }
        if length > 0 {
            let file = Arc::clone(&self.file);
            self.writing = Some(blocking::start_short(move || write_all(&file, &pieces)).await);
        }
        Ok(())
    }

    async fn written(&mut self) -> Result<(), FileError> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let written = writing.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| FileError::from_io(&error, &self.path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let name = self.temporary.as_ref().unwrap_or(&self.name);
        // Somebody else's file may have the name by now.
        let found = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity) {
            // There is nobody to tell, and nothing else to try.
            let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

/// Whether a path can only mean a folder.
fn ends_as_folder(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..")
}

/// Follows links from `name` in `folder` to where the content goes, and makes the file there.
fn find_place(
    mut folder: OwnedFd,
    mut name: OsString,
    path: &Path,
    user: &User,
) -> Result<(File, Place), FileError> {
    let failed = |errno| FileError::from_errno(errno, path);
    for _ in 0..MOST_LINKS {
        let stat = match rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                let mode = Mode::from_raw_mode(0o666);
                match rustix::fs::openat(&folder, &name, CREATE | OFlags::NOFOLLOW, mode) {
                    Ok(new) => return new_file(new, folder, name, user).map_err(failed),
                    // Somebody else was faster: look again what is there.
                    Err(Errno::EXIST) => continue,
                    Err(errno) => return Err(failed(errno)),
                }
            }
            Err(errno) => return Err(failed(errno)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return beside(folder, name, &stat).map_err(failed),
            FileType::Symlink => (folder, name) = follow(&folder, &name).map_err(failed)?,
            FileType::Directory => return Err(failed(Errno::ISDIR)),
            _ => return Err(not_a_file(path)),
        }
    }
    Err(failed(Errno::LOOP))
}

/// The folder and the name to which a link leads.
fn follow(folder: &OwnedFd, link: &OsStr) -> Result<(OwnedFd, OsString), Errno> {
    let text = rustix::fs::readlinkat(folder, link, Vec::new())?;
    let target = PathBuf::from(OsString::from_vec(text.into_bytes()));
    let name = match target.file_name() {
        Some(name) if !ends_as_folder(target.as_os_str().as_bytes()) => name.to_owned(),
        _ => return Err(Errno::ISDIR),
    };
    let above = match target.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    Ok((rustix::fs::openat(folder, above, OPEN_FOLDER, Mode::empty())?, name))
}

/// Takes a new file over and gives it to the user.
fn new_file(
    made: OwnedFd,
    folder: OwnedFd,
    name: OsString,
    user: &User,
) -> Result<(File, Place), Errno> {
    let place = Place::new(folder, name, None, &made)?;
    folders::give(&made, user)?;
    Ok((File::from(made), place))
}

/// Makes a temporary file beside the one that it will replace, with the same owner and mode.
fn beside(folder: OwnedFd, name: OsString, old: &Stat) -> Result<(File, Place), Errno> {
    let temporary = temporary_name(OsStr::new("upload"));
    let made = rustix::fs::openat(&folder, &temporary, CREATE, Mode::from_raw_mode(0o600))?;
    let place = Place::new(folder, name, Some(temporary), &made)?;
    // In this order: a change of owner takes the set-user-id bit away.
    rustix::fs::fchown(&made, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(old.st_mode & 0o7777))?;
    Ok((File::from(made), place))
}

impl Place {
    fn new(
        folder: OwnedFd,
        name: OsString,
        temporary: Option<OsString>,
        made: &OwnedFd,
    ) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(made)?;
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Self { folder, name, temporary, identity, is_finished: false })
    }
}

/// Writes all pieces with as few calls as possible.
fn write_all(mut file: &File, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = slices.as_mut_slice();
    // Empty slices at the front would look like an end of the file.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;
    use crate::files::FileErrorKind;
    use crate::files::tests::myself;

    async fn upload(path: &Path, content: &[u8]) -> Result<PathBuf, FileError> {
        let mut destination = Destination::open(path, &myself(), &Metadata::new(), None)?;
        for piece in content.chunks(1000) {
            destination.write(Bytes::copy_from_slice(piece)).await?;
        }
        destination.write(Bytes::new()).await?;
        destination.finish().await
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_new_file_is_made_with_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        let content = vec![7; 3 * CHUNK + 5];
        assert_eq!(upload(&path, &content).await.unwrap(), path);
        assert!(fs::read(&path).unwrap() == content);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
        upload(&folder.path().join("empty"), b"").await.unwrap();
        assert_eq!(names(folder.path()), ["a", "empty"]);
    }

    #[tokio::test]
    async fn an_existing_file_keeps_its_mode_and_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old and longer").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4750)).unwrap();
        let reader = File::open(&path).unwrap();
        upload(&path, b"new").await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4750);
        assert_eq!(reader.metadata().unwrap().len(), 14);
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[tokio::test]
    async fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&old, "old").unwrap();
        for path in [&new, &old] {
            let mut destination =
                Destination::open(path, &myself(), &Metadata::new(), None).unwrap();
            destination.write(Bytes::from(vec![1; 2 * CHUNK])).await.unwrap();
            assert_eq!(names(folder.path()).len(), 2);
            drop(destination);
        }
        assert_eq!(names(folder.path()), ["old"]);
        assert_eq!(fs::read(&old).unwrap(), b"old");
    }

    #[tokio::test]
    async fn a_file_that_took_the_name_meanwhile_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let destination = Destination::open(&path, &myself(), &Metadata::new(), None).unwrap();
        fs::write(folder.path().join("other"), "other").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        drop(destination);
        assert_eq!(fs::read(&path).unwrap(), b"other");
    }

    #[tokio::test]
    async fn links_are_followed_to_files_that_are_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        fs::write(at("deep/there"), "old").unwrap();
        symlink("deep/there", at("one")).unwrap();
        symlink(at("one"), at("two")).unwrap();
        symlink("deep/missing", at("three")).unwrap();
        upload(&at("two"), b"new").await.unwrap();
        upload(&at("three"), b"made").await.unwrap();
        assert_eq!(fs::read(at("deep/there")).unwrap(), b"new");
        assert_eq!(fs::read(at("deep/missing")).unwrap(), b"made");
        assert!(at("two").is_symlink() && at("one").is_symlink());
        assert_eq!(names(&at("deep")), ["missing", "there"]);
    }

    #[tokio::test]
    async fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("..", at("up")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        for (name, kind) in [
            ("pipe", FileErrorKind::Invalid),
            ("socket", FileErrorKind::Invalid),
            ("loop", FileErrorKind::Invalid),
            ("device", FileErrorKind::Invalid),
            ("up", FileErrorKind::IsADirectory),
            ("", FileErrorKind::IsADirectory),
            ("new/", FileErrorKind::IsADirectory),
            ("new/.", FileErrorKind::IsADirectory),
            ("file/below", FileErrorKind::NotADirectory),
        ] {
            let error = upload(&at(name), b"x").await.unwrap_err();
            assert_eq!(error.kind, kind, "{name}: {error}");
        }
        for name in ["n".repeat(256), "n/".repeat(3000) + "n"] {
            let error = upload(&at(&name), b"x").await.unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{error}");
        }
        assert_eq!(names(folder.path()), ["device", "file", "loop", "pipe", "socket", "up"]);
    }

    #[tokio::test]
    async fn strange_names_are_kept_exactly() {
        let folder = tempfile::tempdir().unwrap();
        let long = "n".repeat(255);
        for name in ["a b", "new\nline", "😀", "\u{202e}rtl", "e\u{301}", "é", "C:\\x", &long] {
            upload(&folder.path().join(name), name.as_bytes()).await.unwrap();
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), name.as_bytes());
        }
        assert_eq!(names(folder.path()).len(), 8);
    }
}
