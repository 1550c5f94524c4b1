//! The content of a file as the body of an answer.
//!
//! The next chunk is read while the one before is being sent. A reader who is slow holds two
//! chunks and no thread. Buffers are used again: a fresh one costs the kernel more than the read,
//! because it has to empty every page of it first.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::buffer::spare_capacity;

use crate::files::blocking;

/// Bytes of one chunk: large enough that the way between the threads does not count.
pub(super) const CHUNK: usize = 256 << 10;

type Reading = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// A part of a file, on its way out.
pub(super) struct FileBody {
    file: Arc<File>,
    spare: Spare,
    /// Where the next read begins.
    offset: u64,
    /// Bytes still to be read; none when the file does not tell its length.
    unread: Option<u64>,
    /// Bytes still to be sent.
    unsent: Option<u64>,
    next: Next,
}

enum Next {
    Reading(Reading),
    Read(io::Result<Bytes>),
    Nothing,
}

impl FileBody {
    /// `length` bytes of the file from `start` on; without a length, up to its end.
    pub(super) fn new(file: File, start: u64, length: Option<u64>) -> Self {
        Self {
            file: Arc::new(file),
            spare: Spare::default(),
            offset: start,
            unread: length,
            unsent: length,
            next: Next::Nothing,
        }
    }

    /// Begins to read the next chunk, unless there is none.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        let wanted =
            self.unread.map_or(CHUNK, |unread| usize::try_from(unread).unwrap_or(CHUNK).min(CHUNK));
        if wanted == 0 {
            self.next = Next::Nothing;
            return;
        }
        let (file, spare, offset) = (Arc::clone(&self.file), self.spare.clone(), self.offset);
        let mut reading: Reading = Box::pin(async move {
            let chunk =
                blocking::start_short(move || read_chunk(&file, spare, offset, wanted)).await;
            chunk.await.unwrap_or_else(|_| Err(io::Error::other("the read was cut short")))
        });
        self.offset += wanted as u64;
        self.unread = self.unread.map(|unread| unread - wanted as u64);
        // Asked once now, so that it is under way while the chunk before is being sent.
        self.next = match reading.as_mut().poll(context) {
            Poll::Ready(chunk) => Next::Read(chunk),
            Poll::Pending => Next::Reading(reading),
        };
    }
}

/// Reads `wanted` bytes, or less at the end of the file.
pub(super) fn read_chunk(
    file: &File,
    spare: Spare,
    offset: u64,
    wanted: usize,
) -> io::Result<Bytes> {
    let mut chunk = spare.take(wanted);
    while chunk.len() < wanted {
        let at = offset + chunk.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut chunk), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // A buffer that is used again may have had room for more.
    chunk.truncate(wanted);
    Ok(Bytes::from_owner(Lent { chunk, home: spare }))
}

/// Buffers that were sent and can be filled again.
#[derive(Clone, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    /// An empty buffer for so many bytes.
    fn take(&self, wanted: usize) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut chunk = spare.unwrap_or_default();
        chunk.clear();
        chunk.reserve_exact(wanted);
        chunk
    }
}

/// A buffer on its way out, which comes home when it was sent.
struct Lent {
    chunk: Vec<u8>,
    home: Spare,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.unsent == Some(0) {
            return Poll::Ready(None);
        }
        if matches!(self.next, Next::Nothing) {
            self.read_ahead(context);
        }
        if let Next::Reading(reading) = &mut self.next {
            self.next = Next::Read(ready!(reading.as_mut().poll(context)));
        }
        let Next::Read(chunk) = std::mem::replace(&mut self.next, Next::Nothing) else {
            return Poll::Ready(None);
        };
        let chunk = chunk?;
        match self.unsent {
            // The file became shorter. Its length was announced, so the answer has to break.
            Some(unsent) if (chunk.len() as u64) < unsent.min(CHUNK as u64) => {
                self.unsent = Some(0);
                return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
            }
            Some(unsent) => self.unsent = Some(unsent - chunk.len() as u64),
            None if chunk.is_empty() => {
                self.unsent = Some(0);
                return Poll::Ready(None);
            }
            None => {}
        }
        if self.unsent != Some(0) {
            self.read_ahead(context);
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.unsent.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn collected(file: File, start: u64, length: Option<u64>) -> io::Result<Bytes> {
        Ok(FileBody::new(file, start, length).collect().await?.to_bytes())
    }

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[tokio::test]
    async fn a_part_of_a_file_of_many_chunks_is_exact() {
        let content: Vec<u8> = (0..=250).cycle().take(3 * CHUNK + 17).collect();
        for (start, length) in
            [(0, content.len()), (5, CHUNK), (CHUNK - 1, CHUNK + 2), (3, 0), (content.len() - 1, 1)]
        {
            let part = collected(file(&content), start as u64, Some(length as u64)).await.unwrap();
            assert!(part == content[start..start + length], "{start} {length}");
        }
        assert!(collected(file(&content), 0, None).await.unwrap() == content);
    }

    #[tokio::test]
    async fn a_file_without_a_length_is_read_to_its_end() {
        let version = collected(File::open("/proc/version").unwrap(), 0, None).await.unwrap();
        assert!(version.starts_with(b"Linux"));
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_breaks_the_answer() {
        let error = collected(file(b"short"), 0, Some(10)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
