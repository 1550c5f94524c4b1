//! One file of events, and what is known of it.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use domain::Recorded;
use memchr::memmem;
use tracing::warn;

use crate::filter::Filter;
use crate::{Bounds, JournalError, LARGEST, Opened};

/// Nobody but the owner: who did what is nobody else's affair.
const MODE: u32 = 0o600;

/// What follows the number in a segment's name.
const ENDING: &str = ".jsonl";

/// How many digits the number in a name has, so that names sort as numbers do.
const DIGITS: usize = 20;

/// What every line begins with.
const BEGINNING: &[u8] = b"{\"sequence\":";

/// What comes before a sandbox's id in a line.
const SANDBOX: &[u8] = b"\"sandbox\":\"";

/// One file of events.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// The number of its first event.
    pub(crate) first: u64,
    /// Known once it was read to its end, after which nothing is added to it.
    pub(crate) filter: OnceLock<Filter>,
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) file: Arc<File>,
    /// Up to where there are whole lines.
    pub(crate) length: u64,
    /// Whether something follows them that could not be taken back.
    pub(crate) is_torn: bool,
}

impl Segment {
    pub(crate) fn new(folder: &Path, first: u64) -> Self {
        let path = folder.join(format!("{first:0DIGITS$}{ENDING}"));
        Self { path, first, filter: OnceLock::new() }
    }

    /// Those in a folder, the oldest first. Files with other names are none of ours.
    pub(crate) fn list(folder: &Path) -> io::Result<VecDeque<Arc<Self>>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_suffix(ENDING));
            let digits = digits.filter(|digits| digits.len() == DIGITS);
            // Numbers that come near the end of all numbers are nobody's either.
            let number = digits.and_then(|digits| digits.parse().ok());
            numbers.extend(number.filter(|number| (1..=u64::MAX >> 1).contains(number)));
        }
        numbers.sort_unstable();
        Ok(numbers.into_iter().map(|first| Arc::new(Self::new(folder, first))).collect())
    }

    /// Makes the file, for its owner only.
    pub(crate) fn create(&self) -> Result<Writing, JournalError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(MODE)
            .open(&self.path)
            .map_err(|source| self.failed(source))?;
        Ok(Writing { file: Arc::new(file), length: 0, is_torn: false })
    }

    /// Goes on with a segment of an earlier process: cuts off half a line at its end, and finds
    /// the number that comes next.
    pub(crate) fn reopen(&self, bounds: Bounds) -> Result<(u64, Writing, Opened), JournalError> {
        let failed = |source| self.failed(source);
        let file = OpenOptions::new().read(true).write(true).open(&self.path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o777 != MODE {
            file.set_permissions(Permissions::from_mode(MODE)).map_err(failed)?;
        }
        let mut text = Vec::new();
        read(&file, bounds, &mut text).map_err(failed)?;
        let whole = memchr::memrchr(b'\n', &text).map_or(0, |end| end + 1);
        let length = whole as u64;
        let mut opened = Opened::default();
        let there = file.metadata().map_err(failed)?.len();
        if there > length {
            opened.cut = there - length;
            file.set_len(length).map_err(failed)?;
        }
        let mut next = self.first;
        for line in lines(&text[..whole]) {
            match serde_json::from_slice::<Recorded>(line) {
                Ok(recorded) if recorded.sequence >= next && recorded.sequence < u64::MAX >> 1 => {
                    next = recorded.sequence + 1;
                }
                // It had a number, which somebody may have seen.
                _ => {
                    opened.damaged += 1;
                    next += 1;
                }
            }
        }
        Ok((next, Writing { file: Arc::new(file), length, is_torn: false }, opened))
    }

    /// Reads its whole lines into `text`; whether it is still there.
    pub(crate) fn read(&self, bounds: Bounds, text: &mut Vec<u8>) -> Result<bool, JournalError> {
        text.clear();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.failed(error)),
        };
        read(&file, bounds, text).map_err(|error| self.failed(error))?;
        text.truncate(memchr::memrchr(b'\n', text).map_or(0, |end| end + 1));
        Ok(true)
    }

    /// Notes which sandboxes are in it, and says what makes no sense in it.
    pub(crate) fn learn(&self, text: &[u8]) {
        self.filter.get_or_init(|| {
            let mut filter = Filter::new();
            let mut damaged = 0_u64;
            let finder = memmem::Finder::new(SANDBOX);
            for line in lines(text) {
                let id = finder.find(line).map(|found| &line[found + SANDBOX.len()..]);
                let id = id.and_then(|id| Some(&id[..memchr::memchr(b'"', id)?]));
                match (sequence(line), id) {
                    (Some(_), Some(id)) => filter.add(id),
                    _ => damaged += 1,
                }
            }
            if damaged > 0 {
                let path = self.path.display();
                warn!(%path, damaged, "lines of events make no sense and are passed over");
            }
            filter
        });
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError::Folder { path: self.path.clone(), source }
    }
}

/// The number that a line begins with.
pub(crate) fn sequence(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(BEGINNING)?;
    let digits = &rest[..memchr::memchr(b',', rest.get(..24).unwrap_or(rest))?];
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Its lines without their ends.
pub(crate) fn lines(text: &[u8]) -> Lines<'_> {
    Lines { rest: text }
}

/// Lines that are still to come, from either side.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest)?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(line)
    }
}

impl DoubleEndedIterator for Lines<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (_, before) = self.rest.split_last()?;
        let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        self.rest = &self.rest[..start];
        Some(&before[start..])
    }
}

/// Reads what a segment may have, whatever the file has.
fn read(file: &File, bounds: Bounds, text: &mut Vec<u8>) -> io::Result<()> {
    file.take(bounds.segment + LARGEST as u64).read_to_end(text).map(drop)
}
