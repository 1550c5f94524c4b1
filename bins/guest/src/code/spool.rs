//! The full text of output that is over its limit, in files of the sandbox.
//!
//! The folder is root's and is entered step by step without following links, because a sandbox
//! whose user is root can put anything there. Only the last few executions' files are kept. A full
//! disk ends a file and nothing else.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::frame::Stream;
use crate::files::{FileError, FileErrorKind, blocking};

/// Where the files are.
pub(crate) const PLACE: &str = "/var/lib/soma/code";

/// As many executions' files as are kept.
const MOST: usize = 16;

/// As large as a file may become.
const LARGEST: u64 = 2 << 30;

/// The folder with the files.
#[derive(Debug)]
pub(super) struct Spools {
    place: PathBuf,
    /// The executions that have files, the oldest first; unset until the folder was looked at.
    kept: Mutex<Option<VecDeque<String>>>,
}

impl Spools {
    /// The files in a folder, which need not be there.
    pub(super) fn new(place: PathBuf) -> Self {
        Self { place, kept: Mutex::new(None) }
    }

    /// Where a stream's text lies.
    pub(super) fn path(&self, execution: &str, stream: Stream) -> PathBuf {
        self.place.join(execution).join(name(stream))
    }

    /// Opens the file of a stream. Blocks.
    fn open(&self, execution: &str, stream: Stream) -> io::Result<OwnedFd> {
        let place = enter(&self.place)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.get_or_insert_with(|| found(&place));
        if !kept.iter().any(|one| one == execution) {
            kept.push_back(execution.to_owned());
        }
        while kept.len() > MOST {
            let Some(oldest) = kept.pop_front() else { break };
            // What somebody else put there stays, and so does the folder then.
            remove(&place, &oldest);
        }
        let folder = step(&place, OsStr::new(execution))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o644);
        Ok(openat(&folder, name(stream), flags | OFlags::CLOEXEC, mode)?)
    }

    /// Removes the file of a stream, which was not needed after all.
    fn remove(&self, execution: &str, stream: Stream) {
        let Ok(place) = enter(&self.place) else { return };
        let Ok(folder) = step(&place, OsStr::new(execution)) else { return };
        let _ = unlinkat(&folder, name(stream), AtFlags::empty());
        // It stays while there is another in it.
        let _ = unlinkat(&place, execution, AtFlags::REMOVEDIR);
    }
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout.txt",
        Stream::Stderr => "stderr.txt",
    }
}

/// One file that is being written.
#[derive(Debug)]
pub(super) struct Spool {
    spools: Arc<Spools>,
    execution: String,
    stream: Stream,
    file: Option<Arc<File>>,
    written: u64,
}

impl Spool {
    /// Begins a file.
    pub(super) async fn begin(
        spools: Arc<Spools>,
        execution: String,
        stream: Stream,
    ) -> Result<Self, String> {
        let (opener, named) = (Arc::clone(&spools), execution.clone());
        let file =
            blocking::short(move || opener.open(&named, stream).map_err(|error| told(&error)));
        let file = file.await.map_err(|error| error.message)?;
        let file = Some(Arc::new(File::from(file)));
        Ok(Self { spools, execution, stream, file, written: 0 })
    }

    /// Writes on; an error is told once and ends the file.
    pub(super) async fn write(&mut self, text: String) -> Result<(), String> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        self.written += text.len() as u64;
        if self.written > LARGEST {
            self.file = None;
            return Err("the file has reached its largest size".to_owned());
        }
        let written = blocking::short(move || {
            (&*file).write_all(text.as_bytes()).map_err(|error| told(&error))
        });
        written.await.map_err(|error| {
            self.file = None;
            error.message
        })
    }

    /// Where it lies.
    pub(super) fn path(&self) -> PathBuf {
        self.spools.path(&self.execution, self.stream)
    }

    /// It is not needed.
    pub(super) async fn discard(self) {
        let Self { spools, execution, stream, .. } = self;
        let _ = blocking::short(move || {
            spools.remove(&execution, stream);
            Ok(())
        })
        .await;
    }
}

fn told(error: &io::Error) -> FileError {
    let problem = match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "the disk is full".to_owned(),
        _ => error.to_string(),
    };
    FileError::new(FileErrorKind::Internal, problem)
}

/// Enters a folder from the root, making what is not there.
fn enter(path: &Path) -> io::Result<OwnedFd> {
    let mut folder = openat(CWD, "/", folder_flags(), Mode::empty())?;
    for part in path.components() {
        if let Component::Normal(name) = part {
            folder = step(&folder, name)?;
        }
    }
    Ok(folder)
}

fn step(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match openat(folder, name, folder_flags(), Mode::empty()) {
        Err(Errno::NOENT) => {}
        other => return Ok(other?),
    }
    match mkdirat(folder, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(openat(folder, name, folder_flags(), Mode::empty())?)
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// What an earlier guest left, in the order of its age.
fn found(place: &OwnedFd) -> VecDeque<String> {
    let Ok(entries) = Dir::read_from(place) else { return VecDeque::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?.to_owned();
            let looks =
                |name: &str| name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let changed = rustix::fs::statat(place, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            looks(&name).then_some((changed.st_mtime, name))
        })
        .take(4096)
        .collect();
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

fn remove(place: &OwnedFd, execution: &str) {
    if let Ok(folder) = openat(place, execution, folder_flags(), Mode::empty()) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let _ = unlinkat(&folder, name(stream), AtFlags::empty());
        }
    }
    let _ = unlinkat(place, execution, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_files_are_kept_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/code");
        let spools = Arc::new(Spools::new(place.clone()));
        for number in 0..20 {
            let begun = Spool::begin(Arc::clone(&spools), format!("{number:02}"), Stream::Stdout);
            begun.await.unwrap().write("text".to_owned()).await.unwrap();
        }
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), MOST);
        assert_eq!(std::fs::read(place.join("19/stdout.txt")).unwrap(), b"text");
        assert!(!place.join("03").exists() && place.join("04").exists());
        std::os::unix::fs::symlink(folder.path(), place.join("20")).unwrap();
        let refused = Spool::begin(spools, "20".to_owned(), Stream::Stdout).await;
        assert!(refused.is_err());
        assert!(!folder.path().join("stdout.txt").exists());
    }
}
