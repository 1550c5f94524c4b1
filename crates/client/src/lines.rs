//! Lines out of pieces that end anywhere.

use bytes::{Bytes, BytesMut};

/// The most that one line may have. A value of an execution may be a picture, or a film.
pub(crate) const LARGEST: usize = 64 << 20;

/// What came so far and was not taken.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    waiting: BytesMut,
    /// As much of it is known to have no end of a line, so that nothing is searched twice.
    searched: usize,
}

/// A line that has no end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {LARGEST} bytes")]
pub(crate) struct TooLong;

impl Lines {
    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.waiting.extend_from_slice(piece);
    }

    /// Takes the next line, without its end. `None` when there is none yet.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let found = self.waiting[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(found) = found else {
                self.searched = self.waiting.len();
                return if self.searched > LARGEST { Err(TooLong) } else { Ok(None) };
            };
            let end = self.searched + found;
            if end > LARGEST {
                return Err(TooLong);
            }
            self.searched = 0;
            let mut line = self.waiting.split_to(end + 1);
            line.truncate(end);
            if !line.is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// Takes what came after the last line's end.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.waiting.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &mut Lines) -> Vec<String> {
        let next = || lines.next().unwrap().map(|line| String::from_utf8_lossy(&line).into_owned());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn pieces_that_end_anywhere_become_lines() {
        let text = "one\ntwo\n\nthree\nfour";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.push(piece);
                seen.extend(all(&mut lines));
            }
            assert_eq!(seen, ["one", "two", "three"], "in pieces of {size}");
            assert_eq!(lines.rest(), "four");
        }
    }

    #[test]
    fn what_was_searched_is_not_searched_again() {
        let mut lines = Lines::default();
        for _ in 0..1000 {
            lines.push(&[b'x'; 1000]);
            assert_eq!(lines.next(), Ok(None));
            assert_eq!(lines.searched, lines.waiting.len());
        }
        lines.push(b"\nnext\n");
        assert_eq!(lines.next().unwrap().map(|line| line.len()), Some(1_000_000));
        assert_eq!(all(&mut lines), ["next"]);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; LARGEST]);
        assert_eq!(lines.next(), Ok(None));
        lines.push(b"x");
        assert_eq!(lines.next(), Err(TooLong));
        lines.push(b"\n");
        assert_eq!(lines.next(), Err(TooLong));
    }

    #[test]
    fn a_line_of_the_largest_size_passes() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; LARGEST]);
        lines.push(b"\nnext\n");
        assert_eq!(lines.next().unwrap().map(|line| line.len()), Some(LARGEST));
        assert_eq!(all(&mut lines), ["next"]);
    }
}
