//! Reading and writing a kernel's pipes.

use std::collections::VecDeque;
use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use rustix::io::ioctl_fionread;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

/// As much as is read at once.
pub(super) const CHUNK: usize = 128 << 10;

/// The size of a pipe through which much flows.
pub(super) const LARGE_PIPE: usize = 1 << 20;

/// Reads what is there, or waits for it.
pub(super) async fn read(
    pipe: &mut Option<pipe::Receiver>,
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    buffer.reserve(CHUNK);
    let read = pipe.read_buf(&mut buffer.limit(CHUNK)).await?;
    enlarge(pipe, read);
    Ok(read)
}

/// Makes a pipe larger that was full. It may be refused when the user's pipes are large already.
fn enlarge(pipe: &pipe::Receiver, read: usize) {
    if read == 64 << 10 {
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGE_PIPE);
    }
}

/// Waits until a pipe has something, or its end; for ever where there is none.
pub(super) async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        Some(pipe) => drop(pipe.readable().await),
        None => std::future::pending().await,
    }
}

/// As much as lies in a pipe.
pub(super) fn waiting(pipe: &pipe::Receiver) -> usize {
    ioctl_fionread(pipe).ok().and_then(|there| usize::try_from(there).ok()).unwrap_or(0)
}

/// A piece of what is there, empty at the end; none where nothing is there after all.
pub(super) fn chunk(pipe: &pipe::Receiver) -> io::Result<Option<Bytes>> {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    match pipe.try_read_buf(&mut (&mut buffer).limit(CHUNK)) {
        Ok(read) => {
            enlarge(pipe, read);
            Ok(Some(buffer.freeze()))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what is there, without waiting; false where there is nothing.
pub(super) fn take_now(pipe: &pipe::Receiver, buffer: &mut BytesMut, most: usize) -> bool {
    let before = buffer.len();
    buffer.resize(before + most, 0);
    let read = rustix::io::read(pipe, &mut buffer[before..]).unwrap_or(0);
    buffer.truncate(before + read);
    read > 0
}

/// Writes as much as there is room for.
pub(super) fn write(pipe: &pipe::Sender, outgoing: &mut VecDeque<Bytes>) -> io::Result<()> {
    while let Some(frame) = outgoing.front_mut() {
        match pipe.try_write(frame) {
            Ok(written) => {
                let _ = frame.split_to(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if frame.is_empty() {
            outgoing.pop_front();
        }
    }
    Ok(())
}
