//! A folder on this machine that is written to with names from a sandbox.
//!
//! All is done below a descriptor, one level at a time, and no link is followed on the way: who
//! is inside chooses names and links, but not where on this machine they end up.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::here;
use crate::failure::{FAILED, Failure};

/// A folder that is open.
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: OwnedFd,
    /// For messages.
    path: PathBuf,
    /// The mode that it gets in the end, where its owner could not fill it otherwise.
    narrowed: Option<u32>,
}

impl Folder {
    /// A folder that the caller named, where links are the caller's own choice.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let descriptor = opened.map_err(|error| here(path, "opened", error))?;
        Ok(Self { descriptor, path: path.to_owned(), narrowed: None })
    }

    /// Makes a folder in it, or opens the one that is there.
    pub(super) fn folder(&self, name: &[u8], mode: u32) -> Result<Self, Failure> {
        let path = self.path.join(check(name)?);
        let mut narrowed = None;
        // Its owner has to be able to write into it while it is filled.
        match rustix::fs::mkdirat(&self.descriptor, name, permissions(mode) | Mode::RWXU) {
            Ok(()) => narrowed = Some(mode).filter(|mode| mode & 0o700 != 0o700),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(here(&path, "made", error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty());
        let descriptor = opened.map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => here(&path, "written", "it is there and no folder"),
            error => here(&path, "opened", error),
        })?;
        Ok(Self { descriptor, path, narrowed })
    }

    /// Gives it the mode that it was made for, once nothing more is written to it.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let Some(mode) = self.narrowed else { return Ok(()) };
        let failed = |error| here(&self.path, "finished", error);
        // What the kernel gave it has the caller's mask taken off already.
        let given = rustix::fs::fstat(&self.descriptor).map_err(failed)?.st_mode;
        rustix::fs::fchmod(&self.descriptor, permissions(given & mode)).map_err(failed)
    }

    /// Makes a file in it, or empties the one that is there.
    pub(super) fn file(&self, name: &[u8], mode: u32) -> Result<(File, PathBuf), Failure> {
        let path = self.path.join(check(name)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC
            // A pipe that is there would be waited for.
            | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(&self.descriptor, name, flags, permissions(mode));
        let descriptor = opened.map_err(|error| match error {
            Errno::LOOP => here(&path, "written", "it is a symbolic link"),
            error => here(&path, "written", error),
        })?;
        let is_file = rustix::fs::fstat(&descriptor)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            return Err(here(&path, "written", "it is there and no file"));
        }
        rustix::fs::ftruncate(&descriptor, 0).map_err(|error| here(&path, "written", error))?;
        Ok((File::from(descriptor), path))
    }

    /// Makes a link in it, in the place of one that is there. It is not followed here, wherever it
    /// leads.
    pub(super) fn link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        let path = self.path.join(check(name)?);
        let failed = |error| here(&path, "made", error);
        match rustix::fs::symlinkat(text, &self.descriptor, name) {
            Err(Errno::EXIST) => {}
            made => return made.map_err(failed),
        }
        let there = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link =
            there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if !is_link {
            return Err(here(&path, "made", "it is there and no symbolic link"));
        }
        rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()).map_err(failed)?;
        rustix::fs::symlinkat(text, &self.descriptor, name).map_err(failed)
    }
}

/// Bits that mean nothing but who may read, write and execute; the caller's mask is taken off by
/// the kernel.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

/// Refuses names that are not names.
fn check(name: &[u8]) -> Result<&OsStr, Failure> {
    let is_path = name.iter().any(|byte| matches!(byte, b'/' | 0));
    if name.is_empty() || name == b"." || name == b".." || is_path {
        let name = String::from_utf8_lossy(name);
        let message = format!("the sandbox has a file called `{name}`, which no file is called");
        return Err(Failure::new(FAILED, message));
    }
    Ok(OsStr::from_bytes(name))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn no_name_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let inner = outside.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let folder = Folder::open(&inner).unwrap();
        for name in [&b""[..], b".", b"..", b"../x", b"/etc/x", b"a/b", b"a\0b"] {
            assert!(folder.file(name, 0o644).is_err(), "{name:?}");
            assert!(folder.folder(name, 0o755).is_err(), "{name:?}");
            assert!(folder.link(name, b"x").is_err(), "{name:?}");
        }
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_link_is_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("precious"), "kept").unwrap();
        let inner = tempfile::tempdir().unwrap();
        symlink(outside.path(), inner.path().join("folder")).unwrap();
        symlink(outside.path().join("precious"), inner.path().join("file")).unwrap();
        let folder = Folder::open(inner.path()).unwrap();
        assert!(folder.folder(b"folder", 0o755).is_err());
        assert!(folder.file(b"file", 0o644).is_err());
        folder.link(b"file", b"elsewhere").unwrap();
        let text = std::fs::read_link(inner.path().join("file")).unwrap();
        assert_eq!(text, Path::new("elsewhere"));
        assert_eq!(std::fs::read(outside.path().join("precious")).unwrap(), b"kept");
    }

    #[test]
    fn what_is_there_is_replaced_and_what_is_special_is_not_waited_for() {
        let inner = tempfile::tempdir().unwrap();
        std::fs::write(inner.path().join("file"), "a long text").unwrap();
        let folder = Folder::open(inner.path()).unwrap();
        let (mut file, _) = folder.file(b"file", 0o4755).unwrap();
        file.write_all(b"short").unwrap();
        assert_eq!(std::fs::read(inner.path().join("file")).unwrap(), b"short");
        let pipe = inner.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert!(folder.file(b"pipe", 0o644).is_err());
        drop(folder.file(b"program", 0o4755).unwrap());
        let mode = std::fs::metadata(inner.path().join("program")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7100, 0o100);
    }
}
