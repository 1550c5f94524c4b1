//! The file of a notebook: read within bounds, and written as a whole or not at all.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::{FAILED, Failure};
use crate::output;

/// The largest notebook.
const LARGEST: u64 = 64 << 20;

/// How often a free name beside the file is tried.
const ATTEMPTS: u32 = 16;

/// Where a notebook is written.
#[derive(Debug)]
pub(super) enum Destination {
    /// To this file, with what was there before, if anything was.
    File { path: PathBuf, before: Option<Metadata> },
    /// To standard output.
    Output,
}

/// Reads a notebook, and says where it is, through all links.
pub(super) fn read(path: &Path) -> Result<(String, Destination), Failure> {
    let unread = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("`{}` cannot be read: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| unread(&error))?;
    let before = file.metadata().map_err(|error| unread(&error))?;
    if !before.is_file() {
        return Err(unread(&"it is no file"));
    }
    let mut bytes = Vec::new();
    (&file).take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() as u64 > LARGEST {
        return Err(unread(&format!("it has more than {} MiB", LARGEST >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| unread(&"it is not UTF-8"))?;
    // A link stays a link, and what it leads to is written.
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = real.unwrap_or_else(|_| path.to_owned());
    Ok((text, Destination::File { path, before: Some(before) }))
}

impl Destination {
    /// A place that was typed.
    pub(super) fn at(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            return Self::Output;
        }
        match File::open(&path).and_then(|file| Ok((file.metadata()?, file))) {
            Ok((before, file)) if before.is_file() => {
                let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
                Self::File { path: real.unwrap_or(path), before: Some(before) }
            }
            _ => Self::File { path, before: None },
        }
    }

    /// Writes it. Whoever reads the file meanwhile sees all of the old or all of the new one.
    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        let Self::File { path, before } = self else {
            return output::words(text).map(drop);
        };
        replace(path, before.as_ref(), text.as_bytes()).map_err(|error| {
            Failure::new(FAILED, format!("`{}` cannot be written: {error}", path.display()))
        })
    }
}

fn replace(path: &Path, before: Option<&Metadata>, bytes: &[u8]) -> std::io::Result<()> {
    let (mut file, beside) = beside(path, before.is_some())?;
    let written = (|| {
        if let Some(before) = before {
            // Only root can give a file to somebody else; for all others it is theirs already.
            let _ = std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()));
            let mode = before.permissions().mode() & 0o777;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// A new file in the same folder.
fn beside(path: &Path, is_private: bool) -> std::io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(std::io::ErrorKind::IsADirectory)?;
    let mut attempt = 0;
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.soma", std::process::id()));
        let beside = path.with_file_name(hidden);
        let mut options = OpenOptions::new();
        // What has been private is private at every moment.
        options.write(true).create_new(true).mode(if is_private { 0o600 } else { 0o666 });
        match options.open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error)
                if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_mode_and_the_link_stay_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.ipynb"), folder.path().join("b.ipynb"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("a.ipynb", &link).unwrap();
        let (text, destination) = read(&link).unwrap();
        assert_eq!(text, "old");
        destination.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["a.ipynb", "b.ipynb"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let destination = Destination::at(folder.path().join("none/a.ipynb"));
        assert_eq!(destination.write("new").unwrap_err().code, 1);
        assert_eq!(Destination::at(folder.path().to_owned()).write("x").unwrap_err().code, 1);
        assert_eq!(names(folder.path()), [] as [&str; 0]);
    }

    #[test]
    fn what_is_no_file_or_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.ipynb");
        File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        for (path, words) in [
            (path.as_path(), "more than 64 MiB"),
            (folder.path(), "no file"),
            (&folder.path().join("none"), "No such file"),
        ] {
            let failure = read(path).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains(words), "{}", failure.message);
        }
    }
}
