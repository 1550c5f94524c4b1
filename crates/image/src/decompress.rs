//! Streams that may be compressed, told by how they begin.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Frames that begin with any of 16 numbers like this hold nothing of the stream.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Other ways to compress, which are told from damage.
const OTHERS: [(&[u8], &str); 4] =
    [(b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04", "zip"), (b"hsqs", "squashfs")];

/// The bytes of a stream as they were before it was compressed.
pub(crate) fn decompress<'stream>(
    stream: impl Read + 'stream,
) -> io::Result<Box<dyn Read + 'stream>> {
    let mut stream = stream;
    let start = beginning(&mut stream)?;
    let stream = Cursor::new(start.clone()).chain(stream);
    let stream = BufReader::with_capacity(64 << 10, stream);
    if start.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(stream)));
    }
    if start.starts_with(&ZSTD) || start.get(1..4) == Some(&ZSTD_SKIPPED[..]) {
        return Ok(Box::new(Zstd::new(stream)));
    }
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| start.starts_with(magic)) {
        let text = format!("it is compressed with {name}: send it plain, or with gzip or zstd");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Box::new(stream))
}

/// The first bytes; fewer than eight only when the stream has no more.
fn beginning(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    stream.take(8).read_to_end(&mut start)?;
    Ok(start)
}

/// All frames of a zstd stream.
struct Zstd<R> {
    stream: R,
    decoder: FrameDecoder,
    /// Whether a frame is being read.
    within: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(stream: R) -> Self {
        Self { stream, decoder: FrameDecoder::new(), within: false }
    }

    /// Begins the next frame; `false` at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.stream.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.stream) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut (&mut self.stream).take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(into);
            }
            if !self.within || self.decoder.is_finished() {
                self.within = self.begin()?;
                if !self.within {
                    return Ok(0);
                }
            }
            self.decoder
                .decode_blocks(&mut self.stream, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}
