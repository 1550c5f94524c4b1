//! Undoes the compression of an upload while it arrives.
//!
//! What comes out of one step has a bound, however much a byte of input stands for, so a small
//! upload that grows without end fills the disk that it is written to and nothing else. Steps run
//! off the runtime's thread.

use std::io::{self, Write as _};

use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;

use super::HttpError;
use crate::files::blocking;

/// What comes out of one step, about.
const STEP: usize = 256 << 10;

/// A compressed body on its way in.
#[derive(Debug)]
pub(super) struct Gunzip {
    decoder: Option<Box<MultiGzDecoder<Vec<u8>>>>,
    /// What arrived and was not looked at yet.
    input: Bytes,
    has_input: bool,
}

impl Gunzip {
    pub(super) fn new() -> Self {
        let decoder = Box::new(MultiGzDecoder::new(Vec::new()));
        Self { decoder: Some(decoder), input: Bytes::new(), has_input: false }
    }

    /// Whether more has to arrive before anything can come out.
    pub(super) fn is_hungry(&self) -> bool {
        self.input.is_empty()
    }

    /// Takes what arrived. Only for a hungry one.
    pub(super) fn feed(&mut self, data: Bytes) {
        self.has_input |= !data.is_empty();
        self.input = data;
    }

    /// The next piece that came out, which may be empty.
    pub(super) async fn step(&mut self) -> Result<Bytes, HttpError> {
        let mut input = std::mem::take(&mut self.input);
        self.run(move |decoder| {
            while !input.is_empty() && decoder.get_ref().len() < STEP {
                let taken = decoder.write(&input)?;
                if taken == 0 {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                input.advance(taken);
            }
            Ok(input)
        })
        .await
    }

    /// The last piece, once everything has arrived.
    pub(super) async fn finish(&mut self) -> Result<Bytes, HttpError> {
        if !self.has_input {
            return Err(broken(&io::ErrorKind::UnexpectedEof.into()));
        }
        self.run(|decoder| decoder.try_finish().map(|()| Bytes::new())).await
    }

    async fn run(
        &mut self,
        work: impl FnOnce(&mut MultiGzDecoder<Vec<u8>>) -> io::Result<Bytes> + Send + 'static,
    ) -> Result<Bytes, HttpError> {
        let Some(mut decoder) = self.decoder.take() else {
            return Err(broken(&io::ErrorKind::InvalidData.into()));
        };
        let (decoder, rest, output) = blocking::short(move || {
            let rest = work(&mut decoder);
            let output = std::mem::take(decoder.get_mut());
            Ok((decoder, rest, output))
        })
        .await?;
        self.input = rest.map_err(|error| broken(&error))?;
        self.decoder = Some(decoder);
        Ok(Bytes::from(output))
    }
}

fn broken(error: &io::Error) -> HttpError {
    HttpError::bad_request(format!("the upload is not whole gzip: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    /// What comes out, and the largest piece of it.
    async fn expanded(body: &[u8], piece: usize) -> Result<(Vec<u8>, usize), HttpError> {
        let mut gunzip = Gunzip::new();
        let (mut all, mut largest) = (Vec::new(), 0);
        for piece in body.chunks(piece) {
            gunzip.feed(Bytes::copy_from_slice(piece));
            while !gunzip.is_hungry() {
                let out = gunzip.step().await?;
                largest = largest.max(out.len());
                all.extend(out);
            }
        }
        all.extend(gunzip.finish().await?);
        Ok((all, largest))
    }

    #[tokio::test]
    async fn pieces_of_any_size_and_several_members_are_one_content() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let (one, other) = content.split_at(70_000);
        let body = [compressed(one), compressed(b""), compressed(other)].concat();
        for piece in [1, 7, 4096, body.len()] {
            assert!(expanded(&body, piece).await.unwrap().0 == content, "{piece}");
        }
        assert!(expanded(&compressed(b""), 5).await.unwrap().0.is_empty());
    }

    #[tokio::test]
    async fn what_grows_a_thousandfold_comes_out_in_small_pieces() {
        let (all, largest) = expanded(&compressed(&vec![0; 64 << 20]), 1 << 20).await.unwrap();
        assert_eq!(all.len(), 64 << 20);
        assert!(largest < STEP + (128 << 10), "{largest}");
    }

    #[tokio::test]
    async fn a_broken_stream_is_refused_wherever_it_breaks() {
        let whole = compressed(&vec![9; 5000]);
        for length in [0, 1, 5, 12, whole.len() / 2, whole.len() - 1] {
            expanded(&whole[..length], 3).await.unwrap_err();
        }
        for at in [0, whole.len() - 6] {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            expanded(&changed, 100).await.unwrap_err();
        }
        let trailing = [whole, b"garbage".to_vec()].concat();
        let error = expanded(&trailing, 100).await.unwrap_err();
        assert_eq!(error.status, http::StatusCode::BAD_REQUEST);
    }
}
