//! The connections to guests that this process has, so that they can be cut.
//!
//! A sandbox that is put on the disk must not have a connection to the outside, and one that stands
//! still lets whoever waits for it wait for ever. So before a sandbox is paused its connections are
//! cut: who was speaking with it hears the end, and asks again.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use domain::SandboxId;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

type Open = HashMap<SandboxId, Vec<Weak<OwnedFd>>>;

#[derive(Debug, Clone, Default)]
pub(super) struct Streams {
    open: Arc<Mutex<Open>>,
}

impl Streams {
    /// A stream on this descriptor, which is cut with the others of its sandbox.
    pub(super) fn keep(&self, id: &SandboxId, descriptor: OwnedFd) -> io::Result<Stream> {
        let held = Arc::new(descriptor.try_clone()?);
        let stream = UnixStream::from_std(Socket::from(descriptor))?;
        let mut open = self.lock();
        let streams = open.entry(id.clone()).or_default();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&held));
        Ok(Stream { stream, _held: held })
    }

    /// Ends all streams of a sandbox.
    pub(super) fn cut(&self, id: &SandboxId) {
        let streams = self.lock().remove(id).unwrap_or_default();
        for stream in streams.iter().filter_map(Weak::upgrade) {
            // The other side may have ended it in this moment.
            let _ = shutdown(stream.as_fd(), Shutdown::Both);
        }
    }

    /// What it guards is whole between any two statements, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to a guest.
#[derive(Debug)]
pub(super) struct Stream {
    stream: UnixStream,
    _held: Arc<OwnedFd>,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
