//! Passes bytes between two connections until both have said all.
//!
//! They go from socket to socket through a pipe by `splice`, without being copied to this program.
//! Pipes are borrowed while bytes flow, so that idle connections hold none; where there is none to
//! be had, bytes are copied.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe holds, where the kernel lets it.
const PIPE: usize = 512 * 1024;
/// Pipes that wait to be borrowed.
const MOST_PIPES: usize = 32;
/// A connection on which nothing passes for as long is ended. Peers that are gone are found out
/// much sooner.
const IDLE: Duration = Duration::from_hours(6);

static PIPES: Mutex<Vec<Pipe>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// What has passed.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// From the sandbox.
    pub(crate) sent: AtomicU64,
    /// To it.
    pub(crate) received: AtomicU64,
}

impl Counts {
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }

    /// Comes back when nothing has passed for very long.
    pub(crate) async fn idle(&self) {
        let mut last = self.get();
        loop {
            tokio::time::sleep(IDLE).await;
            let now = self.get();
            if now == last {
                return;
            }
            last = now;
        }
    }
}

/// Passes everything both ways. When one side ends its half, the other is told, and goes on.
pub(crate) async fn relay(
    client: &TcpStream,
    server: &TcpStream,
    counts: &Counts,
) -> io::Result<()> {
    let up = one_way(client, server, &counts.sent);
    let down = one_way(server, client, &counts.received);
    tokio::try_join!(up, down)?;
    Ok(())
}

async fn one_way(from: &TcpStream, to: &TcpStream, count: &AtomicU64) -> io::Result<()> {
    loop {
        from.readable().await?;
        let Some(pipe) = Pipe::borrow() else { return copy(from, to, count).await };
        let is_over = splice_all(from, to, count, &pipe).await?;
        // It is empty; one that is not is dropped by the failure above.
        pipe.give_back();
        if is_over {
            // The peer may be gone already.
            let _ = rustix::net::shutdown(to, Shutdown::Write);
            return Ok(());
        }
    }
}

/// Passes what there is. Says whether there will be no more.
async fn splice_all(
    from: &TcpStream,
    to: &TcpStream,
    count: &AtomicU64,
    pipe: &Pipe,
) -> io::Result<bool> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        let taken = from.try_io(Interest::READABLE, || {
            Ok(splice(from, None, &pipe.writer, None, PIPE, flags)?)
        });
        let mut held = match taken {
            Ok(0) => return Ok(true),
            Ok(held) => held,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        while held > 0 {
            let passed = to.try_io(Interest::WRITABLE, || {
                Ok(splice(&pipe.reader, None, to, None, held, flags)?)
            });
            match passed {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(passed) => {
                    held -= passed;
                    count.fetch_add(passed as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
                Err(error) => return Err(error),
            }
        }
        // Others want to run too, however much there is.
        tokio::task::consume_budget().await;
    }
}

async fn copy(from: &TcpStream, to: &TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        from.readable().await?;
        let length = match from.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
    let _ = rustix::net::shutdown(to, Shutdown::Write);
    Ok(())
}

impl Pipe {
    fn borrow() -> Option<Self> {
        if let Some(pipe) = PIPES.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Some(pipe);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A user has only so much for pipes; a small one does as well, more slowly.
        let _ = fcntl_setpipe_size(&writer, PIPE);
        Some(Self { reader, writer })
    }

    fn give_back(self) {
        let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
        if pipes.len() < MOST_PIPES {
            pipes.push(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (here, there) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (here.unwrap(), there.unwrap().0)
    }

    #[tokio::test]
    async fn each_half_is_closed_by_itself() {
        let ((mut client, inside), (mut server, outside)) = (pair().await, pair().await);
        let counts = Counts::default();
        let talk = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut text = Vec::new();
            server.read_to_end(&mut text).await.unwrap();
            assert_eq!(text, b"question");
            let answer = async {
                server.write_all(&vec![7; 3_000_000]).await.unwrap();
                server.shutdown().await.unwrap();
            };
            let mut answered = Vec::new();
            let (read, ()) = tokio::join!(client.read_to_end(&mut answered), answer);
            assert_eq!(read.unwrap(), 3_000_000);
        };
        let ((), relayed) = tokio::join!(talk, relay(&inside, &outside, &counts));
        relayed.unwrap();
        assert_eq!(counts.get(), (8, 3_000_000));
    }

    #[tokio::test]
    async fn copying_does_the_same() {
        let ((mut client, inside), (mut server, outside)) = (pair().await, pair().await);
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let count = AtomicU64::new(0);
        copy(&inside, &outside, &count).await.unwrap();
        let mut text = Vec::new();
        server.read_to_end(&mut text).await.unwrap();
        assert_eq!(text, b"question");
    }
}
