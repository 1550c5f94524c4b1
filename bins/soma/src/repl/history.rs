//! What was typed before, in a file of the home that nobody else reads.
//!
//! The file is opened once, before root's powers are given up; from then on its descriptor is
//! used. Each cell is a line of JSON, `["python", "x = 1"]`, appended as a whole, so that several
//! programs may write at a time. It is cut when it is opened.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use guest_proto::code::Language;
use rustix::fs::{FlockOperation, OFlags, flock};

/// The file, in the home.
const NAME: &str = "repl_history";

/// The most that is read of it, and kept when it is cut.
const LARGEST: u64 = 1 << 20;

/// As many cells of one language are offered.
const OFFERED: usize = 1000;

/// The largest cell that is kept.
const LARGEST_CELL: usize = 64 << 10;

/// What was typed before. Without a file it remembers nothing, which harms nobody.
#[derive(Debug, Default)]
pub(super) struct History {
    file: Option<File>,
    lines: Vec<(Language, String)>,
}

impl History {
    /// Reads that of this home.
    pub(super) fn open(home: &Path) -> Self {
        Self::read(home).unwrap_or_default()
    }

    fn read(home: &Path) -> std::io::Result<Self> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
        let mut file = options.open(home.join(NAME))?;
        if !file.metadata()?.is_file() {
            return Ok(Self::default());
        }
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        // Two that cut at once would lose more than they have to.
        flock(&file, FlockOperation::LockExclusive)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LARGEST)))?;
        let mut bytes = Vec::new();
        (&file).take(LARGEST).read_to_end(&mut bytes)?;
        if size > LARGEST {
            // Twice as much fits before the next cut.
            let half = bytes.len() / 2;
            let at = bytes[half..].iter().position(|byte| *byte == b'\n');
            bytes.drain(..at.map_or(bytes.len(), |at| half + at + 1));
            file.set_len(0)?;
            file.write_all(&bytes)?;
        }
        flock(&file, FlockOperation::Unlock)?;
        let lines = bytes.split(|byte| *byte == b'\n');
        // A line of another version, or half a line, is no reason to lose the others.
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        Ok(Self { file: Some(file), lines })
    }

    /// What was typed in this language, the newest last.
    pub(super) fn of(&self, language: Language) -> Vec<String> {
        let same = self.lines.iter().filter(|(other, _)| *other == language);
        let mut cells: Vec<String> =
            same.rev().take(OFFERED).map(|(_, cell)| cell.clone()).collect();
        cells.reverse();
        cells
    }

    /// Remembers a cell. One that begins with a space is not meant to be.
    pub(super) fn add(&mut self, language: Language, cell: &str) {
        let Some(file) = &mut self.file else { return };
        if cell.starts_with(' ') || cell.trim().is_empty() || cell.len() > LARGEST_CELL {
            return;
        }
        if let Ok(mut line) = serde_json::to_vec(&(language, cell)) {
            line.push(b'\n');
            // A full disk is no reason to stop.
            let _ = file.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_there_again_for_its_language_alone() {
        let home = tempfile::tempdir().unwrap();
        let mut history = History::open(home.path());
        history.add(Language::Python, "def f():\n    pass\n");
        history.add(Language::R, "x <- 1");
        history.add(Language::Python, " secret = 1");
        history.add(Language::Python, "f()");
        let history = History::open(home.path());
        assert_eq!(history.of(Language::Python), ["def f():\n    pass\n", "f()"]);
        assert_eq!(history.of(Language::R), ["x <- 1"]);
        let mode = home.path().join(NAME).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn it_does_not_grow_without_end_and_survives_damage() {
        let home = tempfile::tempdir().unwrap();
        let cell = "x".repeat(10_000);
        for _ in 0..3 {
            let mut history = History::open(home.path());
            for _ in 0..100 {
                history.add(Language::Bash, &cell);
            }
        }
        OpenOptions::new()
            .append(true)
            .open(home.path().join(NAME))
            .unwrap()
            .write_all(b"\x00\xff[\n")
            .unwrap();
        let mut history = History::open(home.path());
        history.add(Language::Bash, "the last");
        let history = History::open(home.path());
        assert_eq!(history.of(Language::Bash).last().unwrap(), "the last");
        assert!(home.path().join(NAME).metadata().unwrap().len() <= LARGEST);
    }

    #[test]
    fn a_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let other = home.path().join("other");
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, home.path().join(NAME)).unwrap();
        History::open(home.path()).add(Language::Bash, "ls");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }
}
