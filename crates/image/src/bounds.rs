//! How much of everything is taken.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::error::ImageError;

/// How much of everything is taken of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes, unpacked: of the archive, and once more of the layers within it.
    pub bytes: u64,
    /// Files, folders, links and all else: of the archive, and once more of the layers within it.
    pub entries: u64,
    /// Folders within folders.
    pub depth: usize,
    /// Bytes of one header, and of one document that describes an image.
    pub metadata: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: 20 << 30, entries: 2_000_000, depth: 128, metadata: 1 << 20 }
    }
}

/// Counts what is taken against the bounds.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    pub(crate) bounds: Bounds,
    bytes: Rc<Cell<u64>>,
    entries: Rc<Cell<u64>>,
}

impl Meter {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, bytes: Rc::default(), entries: Rc::default() }
    }

    /// One more entry.
    pub(crate) fn entry(&self) -> Result<(), ImageError> {
        let most = self.bounds.entries;
        if self.entries.get() >= most {
            return Err(ImageError::TooMuch { what: "entries", most });
        }
        self.entries.set(self.entries.get() + 1);
        Ok(())
    }

    /// What is read through the result is counted, and ends with [`io::ErrorKind::QuotaExceeded`]
    /// at the bound.
    pub(crate) fn read<R: Read>(&self, stream: R) -> Metered<R> {
        Metered { stream, meter: self.clone() }
    }

    /// The error of a stream: one of ours that came through as an error of the stream's, or
    /// another.
    pub(crate) fn explain(&self, error: &io::Error) -> ImageError {
        match error.kind() {
            io::ErrorKind::QuotaExceeded => {
                ImageError::TooMuch { what: "bytes", most: self.bounds.bytes }
            }
            io::ErrorKind::UnexpectedEof => ImageError::damaged("it ends in the middle"),
            _ => ImageError::damaged(error.to_string()),
        }
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub(crate) struct Metered<R> {
    stream: R,
    meter: Meter,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        let total = self.meter.bytes.get().saturating_add(read as u64);
        self.meter.bytes.set(total);
        if total > self.meter.bounds.bytes {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(read)
    }
}
