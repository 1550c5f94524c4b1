//! Passes on what a command writes, byte for byte.
//!
//! Writing to a terminal or a pipe may block for as long as nobody reads, and Ctrl-C must work
//! meanwhile. So a thread of its own writes, and is handed pieces through a short queue: whoever
//! hands them over waits when it is full, which slows down the command itself in the end.
//! The thread is not waited for when the program leaves in a hurry.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

/// Pieces that may wait: enough to keep the thread busy, little enough to be no memory.
const WAITING: usize = 8;

/// Which of the two outputs is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Why nothing more can be written.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The reader went away.
    Closed,
    /// Anything else, such as a full disk.
    Failed(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// What the thread is handed.
enum Piece {
    Output(Stream, Bytes),
    /// Answered when all before it is written.
    Mark(oneshot::Sender<()>),
}

/// Where a command's output goes.
pub(crate) struct Console {
    queue: mpsc::Sender<Piece>,
    finished: oneshot::Receiver<()>,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Console {
    /// Writes to these two, from a thread that lives as long as there is something to write.
    pub(crate) fn new(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        let (queue, mut pieces) = mpsc::channel::<Piece>(WAITING);
        let (finish, finished) = oneshot::channel();
        let failure = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failure);
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some(piece) = pieces.blocking_recv() {
                let (stream, bytes) = match piece {
                    Piece::Output(stream, bytes) => (stream, bytes),
                    Piece::Mark(reached) => {
                        let _ = reached.send(());
                        continue;
                    }
                };
                let target = match stream {
                    Stream::Stdout => &stdout,
                    Stream::Stderr => &stderr,
                };
                if let Err(error) = write_all(target, &bytes) {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    break;
                }
            }
            // Whoever waits for this may be gone, and that is fine.
            let _ = finish.send(());
        })?;
        Ok(Self { queue, finished, failure })
    }

    /// Hands over a piece, and waits while the reader is slow.
    pub(crate) async fn write(&self, stream: Stream, bytes: Bytes) -> Result<(), Broken> {
        self.queue.send(Piece::Output(stream, bytes)).await.map_err(|_| self.why())
    }

    /// Waits until all that was handed over so far is written, or nothing can be.
    pub(crate) async fn flush(&self) {
        let (mark, reached) = oneshot::channel();
        if self.queue.send(Piece::Mark(mark)).await.is_ok() {
            let _ = reached.await;
        }
    }

    /// Waits until all of it is written.
    pub(crate) async fn finish(self) -> Result<(), Broken> {
        let Self { queue, finished, failure } = self;
        drop(queue);
        let _ = finished.await;
        match failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn why(&self) -> Broken {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Broken::Closed, Broken::from)
    }
}

/// Writes all of it, also to a pipe that somebody set to not block.
pub(super) fn write_all(target: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&target, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&target, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
