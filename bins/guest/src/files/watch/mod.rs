//! Watching folders.
//!
//! A [`Watcher`] is a [`tree::Tree`] of folders, a task that empties the kernel's queue as soon
//! as something is in it, and a [`queue::Queue`] with bounds of what was not told yet. It is
//! followed by a stream ([`stream`]) or asked from time to time ([`polled`]). Whoever asks has the
//! kernel's queue emptied before the answer, so what was done before is in it.
//!
//! Nothing here grows without bound: there are so many watchers, folders and waiting changes and
//! no more. When changes are lost, by the kernel or by us, an event says so in their place.

mod kinds;
mod known;
mod polled;
mod queue;
mod stream;
mod tree;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guest_proto::filesystem::filesystem_event::Overflow;
use guest_proto::filesystem::{EventType, FilesystemEvent};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;

pub(crate) use polled::Polled;
pub(crate) use stream::follow;

use super::error::{FileError, FileErrorKind};
use super::{blocking, entry};
use crate::users::Names;
use queue::{Change, Queue};
use tree::{Tree, Wish};

/// The most watchers at a time.
const MOST_WATCHERS: usize = 64;

static WATCHERS: Semaphore = Semaphore::const_new(MOST_WATCHERS);

/// How often the kernel's queue is emptied for one question, at most: who writes faster than we
/// read must not hold the answer up for ever.
const MOST_ROUNDS: usize = 4;

/// What a client wants to watch.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The folder, as an absolute path.
    pub(crate) path: PathBuf,
    /// Whether all folders below it are watched as well.
    pub(crate) recursive: bool,
    /// Whether events tell what is there.
    pub(crate) include_entry: bool,
    /// Whether a network file system may be watched.
    pub(crate) allow_network_mounts: bool,
}

/// A folder that is being watched, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    _place: SemaphorePermit<'static>,
}

#[derive(Debug)]
struct Shared {
    /// Held while a disk may be waited for: never lock it on the runtime's thread.
    tree: Mutex<Tree>,
    queue: Arc<Mutex<Queue>>,
    /// There may be something in the queue.
    changed: Notify,
    root: PathBuf,
    include_entry: bool,
}

impl Watcher {
    /// Begins to watch. What happens after this returned is told.
    pub(crate) async fn open(request: Request) -> Result<Self, FileError> {
        let place = WATCHERS.try_acquire().map_err(|_| {
            FileError::in_the_way(format!(
                "there are {MOST_WATCHERS} watchers already; end one that is not needed"
            ))
        })?;
        let wish = Wish {
            root: request.path.clone(),
            recursive: request.recursive,
            allow_network: request.allow_network_mounts,
        };
        let queue = Arc::new(Mutex::new(Queue::default()));
        let filled = Arc::clone(&queue);
        let tree = blocking::long(move || Tree::open(wish, &filled)).await?;
        #[expect(
            deprecated,
            reason = "unsound for descriptors that change; ours is held and does not"
        )]
        let kernel = AsyncFd::with_interest(tree.kernel(), Interest::READABLE)
            .map_err(|error| FileError::from_io(&error, &request.path))?;
        let shared = Arc::new(Shared {
            tree: Mutex::new(tree),
            queue,
            changed: Notify::new(),
            root: request.path,
            include_entry: request.include_entry,
        });
        let task = crate::spawn(listen(kernel, Arc::clone(&shared)));
        Ok(Self { shared, task, _place: place })
    }

    /// Returns when there may be changes to take.
    async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Takes the first changes that wait, as the protocol tells them.
    async fn take(&self, most: usize) -> Result<Vec<FilesystemEvent>, FileError> {
        let changes = lock(&self.shared.queue).take(most);
        if changes.is_empty() || !self.shared.include_entry {
            return Ok(changes.into_iter().map(event).collect());
        }
        let shared = Arc::clone(&self.shared);
        blocking::watch(move || Ok(shared.described(changes))).await
    }

    /// Takes what the kernel has, so that nothing that was done before is missing.
    async fn drain(&self) -> Result<(), FileError> {
        let shared = Arc::clone(&self.shared);
        blocking::watch(move || {
            let mut rounds = 1;
            while shared.drain() && rounds < MOST_ROUNDS {
                rounds += 1;
            }
            Ok(())
        })
        .await
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn drain(&self) -> bool {
        let more = lock(&self.tree).drain(&self.queue);
        self.changed.notify_one();
        more
    }

    /// The changes with what is there now, where something is.
    fn described(&self, changes: Vec<Change>) -> Vec<FilesystemEvent> {
        let names = Names::read();
        let events = changes.into_iter().map(|change| {
            let mut event = event(change);
            let stays = event.r#type != EventType::EVENT_TYPE_REMOVE
                && event.r#type != EventType::EVENT_TYPE_RENAME;
            if stays && !event.name.is_empty() {
                let path = self.root.join(&event.name);
                if let Ok(entry) = entry::describe(&path, &names) {
                    event.entry = entry.into();
                }
            }
            event
        });
        events.collect()
    }
}

/// Empties the kernel's queue whenever there is something in it.
async fn listen(kernel: AsyncFd<Arc<OwnedFd>>, shared: Arc<Shared>) {
    while let Ok(mut ready) = kernel.readable().await {
        // Before it is emptied: what comes afterwards makes it ready again.
        ready.clear_ready();
        loop {
            let shared = Arc::clone(&shared);
            match blocking::watch(move || Ok(shared.drain())).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return,
            }
        }
    }
}

fn event(change: Change) -> FilesystemEvent {
    match change {
        Change::Happened { name, kind } => FilesystemEvent {
            name: name.into_string(),
            r#type: kind.into(),
            ..FilesystemEvent::default()
        },
        Change::Lost { count } => FilesystemEvent {
            overflow: Overflow { lost: count, ..Overflow::default() }.into(),
            ..FilesystemEvent::default()
        },
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A watcher of this name is not there.
fn unknown(id: &str) -> FileError {
    FileError::new(FileErrorKind::NotFound, format!("watcher with id '{id}' not found"))
}
