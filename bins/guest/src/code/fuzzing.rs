//! The door for `fuzz/` to what kernels say.

use super::bundle::{Shown, failure};
use super::frame::{Frame, Parser};
use super::text::{Decoder, ascii};

/// Reads frames, in pieces of a length that the first byte says, and all that may be in them.
pub(crate) fn frames(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let mut parser = Parser::default();
    let mut decoder = Decoder::default();
    for piece in bytes.chunks(usize::from(*piece).max(1)) {
        parser.buffer.extend_from_slice(piece);
        loop {
            match parser.next() {
                Ok(Some(Frame::Output(_, output))) => drop(decoder.decode(&output)),
                Ok(Some(Frame::Result(payload) | Frame::Display(payload))) => {
                    let Some(shown) = Shown::parse(&payload) else { continue };
                    for form in shown.bundle(Some(10)).0.values() {
                        let line = ascii(form.get().as_bytes().to_vec());
                        assert!(line.iter().all(|byte| (0x20..0x80).contains(byte)), "{line:?}");
                    }
                }
                Ok(Some(Frame::Error(payload))) => drop(failure(&payload, Some(10))),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
