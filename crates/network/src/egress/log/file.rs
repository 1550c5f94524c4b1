//! The file of one sandbox's log: lines of JSON, and the file before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::{NetworkEntry, SandboxId};

/// A file of this size makes room for the next; two are kept.
const LARGEST: u64 = 1024 * 1024;

/// What is read of a file to go on where it ends.
const TAIL: u64 = 64 * 1024;

/// Where one sandbox's entries are.
#[derive(Debug)]
pub(super) struct LogFile {
    current: PathBuf,
    earlier: PathBuf,
}

impl LogFile {
    pub(super) fn new(folder: &Path, sandbox: &SandboxId) -> Self {
        Self {
            current: folder.join(format!("{}.jsonl", sandbox.as_str())),
            earlier: folder.join(format!("{}.jsonl.1", sandbox.as_str())),
        }
    }

    pub(super) fn append(&self, entries: &[Arc<NetworkEntry>]) -> io::Result<()> {
        let mut text = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut text, entry.as_ref())?;
            text.push(b'\n');
        }
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).open(&self.current)?;
        file.write_all(&text)?;
        if file.metadata()?.len() >= LARGEST {
            fs::rename(&self.current, &self.earlier)?;
        }
        Ok(())
    }

    /// What has a higher number, oldest first and no more than so many.
    pub(super) fn read(&self, after: u64, most: usize) -> Vec<NetworkEntry> {
        let both = lines(&self.earlier).chain(lines(&self.current));
        both.filter(|entry| entry.sequence > after).take(most).collect()
    }

    /// The last so many.
    pub(super) fn last(&self, most: usize) -> Vec<NetworkEntry> {
        let mut entries = tail(&self.current);
        if entries.is_empty() {
            entries = tail(&self.earlier);
        }
        entries.drain(..entries.len().saturating_sub(most));
        entries.shrink_to_fit();
        entries
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.current);
        let _ = fs::remove_file(&self.earlier);
    }
}

/// The entries at the end of a file.
fn tail(path: &Path) -> Vec<NetworkEntry> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut text = Vec::new();
        file.take(TAIL).read_to_end(&mut text)?;
        io::Result::Ok(text)
    };
    let text = read().unwrap_or_default();
    // The first line is most often a part of one, and no entry.
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The entries of a file. Lines that a crash cut short are left out.
fn lines(path: &Path) -> impl Iterator<Item = NetworkEntry> {
    let file = File::open(path).ok();
    let text = file.map(|file| BufReader::new(file.take(2 * LARGEST)));
    let lines = text.into_iter().flat_map(|text| text.split(b'\n').map_while(Result::ok));
    lines.filter_map(|line| serde_json::from_slice(&line).ok())
}
