//! File work off the runtime's thread, on few threads.
//!
//! The guest has one thread for everything that talks, so whatever may wait for a disk runs
//! beside it. Short work (one chunk, one `stat`) and long work (walks over trees) have places of
//! their own: four people who remove large trees hold up nobody's download, and neither holds up
//! the processes, which need none of these places. Watchers have places of their own as well,
//! because what happens in the sandbox decides how much they have to do.

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::error::{FileError, FileErrorKind};

/// Walks at the same time.
static LONG: Semaphore = Semaphore::const_new(2);

/// Chunks and single calls at the same time.
static SHORT: Semaphore = Semaphore::const_new(4);

/// Watchers that read what happened at the same time.
static WATCH: Semaphore = Semaphore::const_new(2);

/// Runs a walk, once there is a place for it.
///
/// Work that was begun is finished also when the caller goes away.
pub(crate) async fn long<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    finished(start(&LONG, work).await).await
}

/// Runs a single call, once there is a place for it.
pub(crate) async fn short<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    finished(start(&SHORT, work).await).await
}

/// Runs the work of a watcher, once there is a place for it.
pub(crate) async fn watch<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    finished(start(&WATCH, work).await).await
}

/// Starts a single call, once there is a place for it, and does not wait for its end.
pub(crate) async fn start_short<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    start(&SHORT, work).await
}

async fn start<T: Send + 'static>(
    places: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    // The places are never closed, so there is always a permit in the end; it travels with the
    // work, because the work outlives a caller that went away.
    let permit = places.acquire().await.ok();
    tokio::task::spawn_blocking(move || {
        let result = work();
        drop(permit);
        result
    })
}

async fn finished<T>(work: JoinHandle<Result<T, FileError>>) -> Result<T, FileError> {
    work.await.unwrap_or_else(|_| {
        Err(FileError::new(FileErrorKind::Internal, "the file work was cut short"))
    })
}
