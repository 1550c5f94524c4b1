//! The client's side of a connection of which something was read already, with what passes counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::egress::relay::Counts;

/// A stream that begins with what was read from it before.
#[derive(Debug)]
pub(crate) struct Client<S> {
    stream: S,
    said: Vec<u8>,
    read: usize,
    counts: Arc<Counts>,
}

impl<S> Client<S> {
    pub(crate) fn new(stream: S, said: Vec<u8>, counts: Arc<Counts>) -> Self {
        Self { stream, said, read: 0, counts }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Client<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.read < self.said.len() {
            let rest = &self.said[self.read..];
            let length = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..length]);
            self.read += length;
            if self.read == self.said.len() {
                self.said = Vec::new();
                self.read = 0;
            }
        } else {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        }
        add(&self.counts.sent, buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Client<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        add(&self.counts.received, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn add(count: &AtomicU64, length: usize) {
    count.fetch_add(u64::try_from(length).unwrap_or(0), Ordering::Relaxed);
}
