//! Watchers that are asked from time to time, by their id.
//!
//! A client that forgets its watcher leaves nothing behind: a watcher that nobody asked for an
//! hour is ended.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use guest_proto::filesystem::FilesystemEvent;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Request, Watcher, lock, unknown};
use crate::files::error::FileError;

/// How long a watcher lives without being asked.
const IDLE: Duration = Duration::from_hours(1);

/// Events that are described in one go.
const BATCH: usize = 1024;

/// What one answer may take, about. The rest comes with the next one.
const LARGEST_ANSWER: usize = 8 << 20;

/// What an event takes in an answer besides its name, without and with what is there.
const EVENT_BYTES: usize = 64;
const ENTRY_BYTES: usize = 512;

/// The watchers that are asked.
#[derive(Debug)]
pub(crate) struct Polled {
    by_id: Mutex<HashMap<String, Arc<One>>>,
    idle: Duration,
}

#[derive(Debug)]
struct One {
    watcher: Watcher,
    asked: Mutex<Instant>,
    expiry: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Polled {
    fn default() -> Self {
        Self { by_id: Mutex::default(), idle: IDLE }
    }
}

impl Polled {
    /// Begins to watch, and tells the id to ask with.
    pub(crate) async fn create(self: &Arc<Self>, request: Request) -> Result<String, FileError> {
        let watcher = Watcher::open(request).await?;
        let id = format!("w{:016x}", RandomState::new().hash_one(Instant::now()));
        let one =
            Arc::new(One { watcher, asked: Mutex::new(Instant::now()), expiry: Mutex::default() });
        let expiry =
            crate::spawn(expire(Arc::downgrade(self), Arc::downgrade(&one), id.clone(), self.idle));
        *lock(&one.expiry) = Some(expiry);
        lock(&self.by_id).insert(id.clone(), one);
        Ok(id)
    }

    /// What happened since the last question.
    pub(crate) async fn events(&self, id: &str) -> Result<Vec<FilesystemEvent>, FileError> {
        let one = lock(&self.by_id).get(id).cloned().ok_or_else(|| unknown(id))?;
        *lock(&one.asked) = Instant::now();
        one.watcher.drain().await?;
        let mut events = Vec::new();
        let mut bytes = 0;
        while bytes < LARGEST_ANSWER {
            let batch = one.watcher.take(BATCH).await?;
            if batch.is_empty() {
                break;
            }
            bytes += batch.iter().map(size_of_event).sum::<usize>();
            events.extend(batch);
        }
        Ok(events)
    }

    /// Ends a watcher.
    pub(crate) fn remove(&self, id: &str) -> Result<(), FileError> {
        lock(&self.by_id).remove(id).map(drop).ok_or_else(|| unknown(id))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        if let Some(expiry) = lock(&self.expiry).take() {
            expiry.abort();
        }
    }
}

fn size_of_event(event: &FilesystemEvent) -> usize {
    let entry = event.entry.as_option().map_or(0, |entry| ENTRY_BYTES + entry.path.len());
    event.name.len() + EVENT_BYTES + entry
}

/// Ends the watcher once nobody asked it for so long.
async fn expire(watchers: Weak<Polled>, one: Weak<One>, id: String, idle: Duration) {
    loop {
        let Some(asked) = one.upgrade().map(|one| *lock(&one.asked)) else { return };
        let left = (asked + idle).saturating_duration_since(Instant::now());
        if left.is_zero() {
            if let Some(watchers) = watchers.upgrade() {
                // Somebody may have ended it at this moment, which is as good.
                let _ = watchers.remove(&id);
            }
            return;
        }
        tokio::time::sleep(left).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watcher_that_nobody_asks_ends_and_one_that_is_asked_stays() {
        let folder = tempfile::tempdir().unwrap();
        let idle = Duration::from_millis(200);
        let watchers = Arc::new(Polled { by_id: Mutex::default(), idle });
        let request = Request {
            path: folder.path().to_path_buf(),
            recursive: false,
            include_entry: false,
            allow_network_mounts: false,
        };
        let forgotten = watchers.create(request.clone()).await.unwrap();
        let asked = watchers.create(request).await.unwrap();
        let begin = Instant::now();
        while begin.elapsed() < idle * 3 {
            watchers.events(&asked).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let error = watchers.events(&forgotten).await.unwrap_err();
        assert_eq!(error.message, format!("watcher with id '{forgotten}' not found"));
        watchers.remove(&asked).unwrap();
        watchers.remove(&asked).unwrap_err();
    }
}
