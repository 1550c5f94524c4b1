//! What happened to sandboxes, in files that are only appended to.
//!
//! ```text
//! append ──► one line of JSON at the end of the newest segment ──► whoever follows
//!                │ every second, and when closed: to the disk
//!                │ a full segment: the next one, and the oldest of too many is removed
//!                ▼
//! events/00000000000000000001.jsonl, events/00000000000000014212.jsonl, ...
//! ```
//!
//! These files are the truth: nothing else has the events, and nothing else is needed to read
//! them. Each has a number, one more than that of the one before; a segment is named by its first.
//!
//! What survives what: an event that was appended survives the end of this process at once. When
//! the host itself stops without warning, the events of about the last second may be missing. Half
//! a line at the end is cut off when the journal is opened, and a line that makes no sense is
//! passed over and said.
//!
//! Start at [`Journal`]. Searching is in `find.rs`, following in `follow.rs`.

mod error;
mod filter;
mod find;
mod follow;
mod segment;
mod sync;

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Event, Recorded};
use tokio::sync::{Semaphore, watch};
use tracing::warn;

pub use error::JournalError;
pub use find::{Page, Query};
pub use follow::{Follower, Told};
use segment::{Segment, Writing};
use sync::Syncing;

/// The most that one line may have: reasons come from outside.
const LARGEST: usize = 16 << 10;

/// How many of the newest events are also in memory, for those who follow.
const RECENT: usize = 256;

/// How many search in files at one time: each holds a segment in memory.
const SEARCHES: usize = 2;

/// How many may follow at one time.
const FOLLOWERS: usize = 256;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most bytes of one segment.
    pub segment: u64,
    /// The most segments; beyond that the oldest is removed.
    pub segments: usize,
}

impl Default for Bounds {
    /// 64 MiB in all.
    fn default() -> Self {
        Self { segment: 4 << 20, segments: 16 }
    }
}

/// What was met while opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opened {
    /// How many bytes of an unfinished last line were cut off.
    pub cut: u64,
    /// How many lines of the newest segment make no sense and are passed over.
    pub damaged: u64,
}

/// The journal of a daemon. Clones are the same.
#[derive(Debug, Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    bounds: Bounds,
    inner: Mutex<Inner>,
    /// The number of the newest event; dropped when nobody shall follow any more.
    newest: Mutex<Option<watch::Sender<u64>>>,
    searches: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    syncing: Syncing,
}

#[derive(Debug)]
struct Inner {
    /// The oldest first; the last is written to.
    segments: VecDeque<Arc<Segment>>,
    writing: Writing,
    /// The number of the next event.
    next: u64,
    recent: VecDeque<Arc<Recorded>>,
}

impl Journal {
    /// Opens the journal in this folder, which is made when it is not there, for its owner only.
    ///
    /// Two processes must not open the same folder at once; the daemon's own lock sees to that.
    pub fn open(folder: &Path, bounds: Bounds) -> Result<(Self, Opened), JournalError> {
        let failed = |source| JournalError::Folder { path: folder.to_owned(), source };
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(failed)?;
        let mut segments = Segment::list(folder).map_err(failed)?;
        let (next, writing, opened) = if let Some(newest) = segments.back() {
            newest.reopen(bounds)?
        } else {
            let first = Segment::new(folder, 1);
            let writing = first.create()?;
            segments.push_back(Arc::new(first));
            (1, writing, Opened::default())
        };
        let syncing = Syncing::start(folder, Arc::clone(&writing.file))?;
        let inner = Inner { segments, writing, next, recent: VecDeque::new() };
        let shared = Shared {
            folder: folder.to_owned(),
            bounds,
            inner: Mutex::new(inner),
            newest: Mutex::new(Some(watch::Sender::new(next - 1))),
            searches: Arc::new(Semaphore::new(SEARCHES)),
            followers: Arc::new(Semaphore::new(FOLLOWERS)),
            syncing,
        };
        shared.drop_oldest(&mut shared.lock());
        Ok((Self { shared: Arc::new(shared) }, opened))
    }

    /// Writes down what happened, and tells whoever follows. What cannot be written is not told.
    ///
    /// It waits for no disk: one short write to memory of the kernel.
    pub fn append(&self, event: Event) -> Result<Arc<Recorded>, JournalError> {
        let shared = &self.shared;
        let mut inner = shared.lock();
        let recorded = Arc::new(Recorded { sequence: inner.next, event });
        let mut line = serde_json::to_vec(&*recorded).map_err(JournalError::Unwritable)?;
        line.push(b'\n');
        if line.len() > LARGEST {
            return Err(JournalError::TooLarge { bytes: line.len(), most: LARGEST });
        }
        let length = line.len() as u64;
        if inner.writing.length > 0 && inner.writing.length + length > shared.bounds.segment {
            shared.rotate(&mut inner)?;
        }
        shared.write(&mut inner, &line)?;
        inner.writing.length += length;
        inner.next += 1;
        if inner.recent.len() == RECENT {
            inner.recent.pop_front();
        }
        inner.recent.push_back(Arc::clone(&recorded));
        // Beside the lock, a later event could be announced before an earlier one.
        if let Some(newest) = &*shared.newest() {
            newest.send_replace(recorded.sequence);
        }
        drop(inner);
        shared.syncing.note();
        Ok(recorded)
    }

    /// The number of the newest event; zero when there was none.
    pub fn newest(&self) -> u64 {
        self.shared.lock().next - 1
    }

    /// Nobody follows any more: whoever does is told that it is over.
    pub fn end_following(&self) {
        self.shared.newest().take();
    }

    /// Waits until everything is on the disk. Events may still be appended.
    pub fn close(&self) {
        self.end_following();
        self.shared.syncing.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line where the last whole one ended, so that half of one is never in the way.
    fn write(&self, inner: &mut Inner, line: &[u8]) -> Result<(), JournalError> {
        let writing = &mut inner.writing;
        let failed = |source| JournalError::Write { path: self.folder.clone(), source };
        if writing.is_torn {
            writing.file.set_len(writing.length).map_err(failed)?;
            writing.is_torn = false;
        }
        writing.file.write_all_at(line, writing.length).map_err(|error| {
            writing.is_torn = writing.file.set_len(writing.length).is_err();
            failed(error)
        })
    }

    /// Goes on in a new segment.
    fn rotate(&self, inner: &mut Inner) -> Result<(), JournalError> {
        let segment = Segment::new(&self.folder, inner.next);
        inner.writing = segment.create()?;
        inner.segments.push_back(Arc::new(segment));
        self.syncing.went_on(Arc::clone(&inner.writing.file));
        self.drop_oldest(inner);
        Ok(())
    }

    fn drop_oldest(&self, inner: &mut Inner) {
        while inner.segments.len() > self.bounds.segments.max(1) {
            let Some(oldest) = inner.segments.pop_front() else { return };
            if let Err(error) = oldest.remove() {
                warn!(path = %oldest.path.display(), %error, "old events could not be removed");
            }
        }
    }
}
