//! The content of a file as the body of an answer, compressed on the way.
//!
//! Each step reads a piece and compresses it, off the runtime's thread, when the client has
//! taken what came before.

use std::fs::File;
use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use http_body::Frame;
use http_body_util::StreamBody;
use rustix::buffer::spare_capacity;

use super::file_body::CHUNK;
use crate::files::blocking;

/// Whether the client would rather have gzip.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let (mut gzip, mut plain) = (0.0, None);
    for value in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for part in value.split(',') {
            let (name, weight) = part.split_once(';').unwrap_or((part, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match name.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => gzip = weight,
                "identity" => plain = Some(weight),
                _ => {}
            }
        }
    }
    gzip > 0.0 && plain.is_none_or(|plain| gzip >= plain)
}

/// The whole file, compressed.
pub(super) fn compressed(
    file: File,
) -> impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static {
    let encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let work = Some(Work { file, encoder, buffer: Vec::with_capacity(CHUNK), offset: 0 });
    StreamBody::new(stream::unfold(work, |work| async move {
        let work = work?;
        let done = blocking::start_short(move || work.step()).await.await;
        match done.unwrap_or_else(|_| Err(io::Error::other("the read was cut short"))) {
            Ok((bytes, work)) => Some((Ok(Frame::data(bytes)), work)),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

struct Work {
    file: File,
    encoder: GzEncoder<Vec<u8>>,
    buffer: Vec<u8>,
    offset: u64,
}

impl Work {
    /// Compresses until something comes out; there is no more work after the end of the file.
    fn step(mut self) -> io::Result<(Bytes, Option<Self>)> {
        loop {
            self.buffer.clear();
            match rustix::io::pread(&self.file, spare_capacity(&mut self.buffer), self.offset) {
                Ok(0) => return Ok((Bytes::from(self.encoder.finish()?), None)),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            self.offset += self.buffer.len() as u64;
            self.encoder.write_all(&self.buffer)?;
            let output = std::mem::take(self.encoder.get_mut());
            if !output.is_empty() {
                return Ok((Bytes::from(output), Some(self)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn gzip_is_sent_to_who_would_rather_have_it() {
        for (value, is_so) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("GZIP;q=1.0, identity; q=0.5", true),
            ("identity, gzip;q=0.5", false),
            ("gzip;q=0", false),
            ("gzip;q=x", false),
            ("identity", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(is_wanted(&headers), is_so, "{value}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_file_comes_out_as_it_went_in() {
        for length in [0, 1, CHUNK, 3 * CHUNK + 5] {
            let content: Vec<u8> =
                (0..length).map(|at| u8::try_from(at * at % 251).unwrap()).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let body = compressed(file).collect().await.unwrap().to_bytes();
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut read).unwrap();
            assert!(read == content, "{length}");
        }
    }
}
