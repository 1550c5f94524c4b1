//! One connection to the engine, shared by any number of callers.
//!
//! Requests carry numbers, so answers may come in any order: a create takes milliseconds, and
//! nobody else's question waits for it. A thread reads the answers, because a packet with
//! descriptors is read by a call that tokio does not have.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{RecvFlags, SendFlags, Shutdown, shutdown};
use tokio::sync::{oneshot, watch};

use crate::verbs::{Answer, Refusal, Reply, Request, Verb};

pub(super) type Answered = (Result<Answer, Refusal>, Option<OwnedFd>);

#[derive(Debug)]
pub(super) struct Connection {
    socket: Arc<OwnedFd>,
    waiting: Arc<Mutex<Waiting>>,
    closed: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// `None` once the engine is gone.
    callers: Option<HashMap<u64, oneshot::Sender<Answered>>>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let waiting = Waiting { next: 0, callers: Some(HashMap::new()) };
        let waiting = Arc::new(Mutex::new(waiting));
        let (close, closed) = watch::channel(false);
        let (reader, callers) = (Arc::clone(&socket), Arc::clone(&waiting));
        std::thread::Builder::new().name("engine's answers".into()).spawn(move || {
            read_answers(&reader, &callers);
            // Whoever waits hears that no answer comes: their senders are dropped here.
            lock(&callers).callers = None;
            let _ = close.send(true);
        })?;
        Ok(Self { socket, waiting, closed })
    }

    /// Asks and waits for the answer. An answer to a caller that went away is dropped.
    pub(super) async fn ask(&self, verb: Verb) -> io::Result<Answered> {
        self.ask_with(verb, Vec::new()).await
    }

    /// The same, with descriptors that go along.
    pub(super) async fn ask_with(
        &self,
        verb: Verb,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<Answered> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut waiting = lock(&self.waiting);
            let number = waiting.next;
            waiting.next += 1;
            waiting.callers.as_mut().ok_or_else(gone)?.insert(number, sender);
            number
        };
        let is_watch = matches!(verb, Verb::Ended { .. } | Verb::Import);
        let _asking = Asking { connection: self, number, is_watch };
        let request = Request { number, verb };
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let sent = link::send(self.socket.as_fd(), &request, &borrowed, SendFlags::empty());
        drop(borrowed);
        // The engine has them now, and no end of ours may keep a pipe open.
        drop(descriptors);
        match sent {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(gone()),
            sent => sent?,
        }
        receiver.await.map_err(|_| gone())
    }

    /// Whether the engine is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the engine has left.
    pub(super) async fn closed(&self) {
        // An error means that the thread ended, which is the same.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Ends the thread, and tells the engine that its client is gone.
        let _ = shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}

/// A question without an answer yet.
struct Asking<'a> {
    connection: &'a Connection,
    number: u64,
    /// It may stay one for as long as a sandbox lives, or an image takes to arrive.
    is_watch: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Self { connection, number, is_watch } = *self;
        let waited =
            lock(&connection.waiting).callers.as_mut().and_then(|callers| callers.remove(&number));
        if waited.is_some() && is_watch {
            // Otherwise whoever asks again and again would be remembered as often. If the engine
            // cannot be told now, it forgets us with the sandbox.
            let forget = Request { number, verb: Verb::Forget };
            let _ = link::send(connection.socket.as_fd(), &forget, &[], SendFlags::DONTWAIT);
        }
    }
}

/// What is said when a connection broke, and only then.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the engine is gone")
}

fn read_answers(socket: &OwnedFd, waiting: &Mutex<Waiting>) {
    while let Ok(Some((reply, mut descriptors))) =
        link::receive::<Reply>(socket, RecvFlags::empty())
    {
        let caller =
            lock(waiting).callers.as_mut().and_then(|callers| callers.remove(&reply.number));
        if let Some(caller) = caller {
            let _ = caller.send((reply.answer, descriptors.pop()));
        }
    }
}

/// What it guards is whole between any two statements, so a panic elsewhere does not spoil it.
fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
