//! Brings what was written to the disk, about once a second, beside everything else.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::warn;

use crate::JournalError;

/// How long an event may be in memory only.
const DELAY: Duration = Duration::from_secs(1);

/// A thread that syncs, which ends with this.
#[derive(Debug)]
pub(crate) struct Syncing {
    work: Arc<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Work {
    folder: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    current: Arc<File>,
    /// Segments that are full, and not yet on the disk.
    full: Vec<Arc<File>>,
    is_dirty: bool,
    /// Whether there is a name in the folder that is not on the disk yet.
    has_new_name: bool,
    is_closed: bool,
}

impl Syncing {
    pub(crate) fn start(folder: &Path, current: Arc<File>) -> Result<Self, JournalError> {
        let state = State {
            current,
            full: Vec::new(),
            is_dirty: false,
            // The folder or its first segment may have been made just now.
            has_new_name: true,
            is_closed: false,
        };
        let (folder, state) = (folder.to_owned(), Mutex::new(state));
        let work = Arc::new(Work { folder, state, changed: Condvar::new() });
        let own = Arc::clone(&work);
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .stack_size(128 << 10)
            .spawn(move || own.run())
            .map_err(|source| JournalError::Folder { path: work.folder.clone(), source })?;
        Ok(Self { work, thread: Mutex::new(Some(thread)) })
    }

    /// Something was written.
    pub(crate) fn note(&self) {
        let mut state = self.work.lock();
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.work.changed.notify_one();
        }
    }

    /// A new segment is written to from now on.
    pub(crate) fn went_on(&self, next: Arc<File>) {
        let mut state = self.work.lock();
        let full = std::mem::replace(&mut state.current, next);
        state.full.push(full);
        (state.is_dirty, state.has_new_name) = (true, true);
        self.work.changed.notify_one();
    }

    /// Brings everything to the disk and ends.
    pub(crate) fn close(&self) {
        self.work.lock().is_closed = true;
        self.work.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It only ends early when it panicked, which was said then.
            let _ = thread.join();
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.close();
    }
}

impl Work {
    fn run(&self) {
        loop {
            let state = self.lock();
            let waited =
                self.changed.wait_while(state, |state| !state.is_dirty && !state.is_closed);
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            // Events come in groups, and one sync does for all of a second.
            let waited = self.changed.wait_timeout_while(state, DELAY, |state| !state.is_closed);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let full = std::mem::take(&mut state.full);
            let current = Arc::clone(&state.current);
            let (is_dirty, is_closed) = (std::mem::take(&mut state.is_dirty), state.is_closed);
            let has_new_name = is_dirty && std::mem::take(&mut state.has_new_name);
            drop(state);
            if is_dirty {
                self.sync(&full, &current, has_new_name);
            }
            if is_closed {
                return;
            }
        }
    }

    fn sync(&self, full: &[Arc<File>], current: &File, has_new_name: bool) {
        let mut outcome = Ok(());
        for file in full {
            outcome = outcome.and(file.sync_data());
        }
        outcome = outcome.and(current.sync_data());
        if has_new_name {
            outcome = outcome.and_then(|()| File::open(&self.folder)?.sync_all());
        }
        if let Err(error) = outcome {
            let path = self.folder.display();
            warn!(%path, %error, "events may not be on the disk");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
