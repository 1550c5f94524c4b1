//! What a kernel writes while no cell runs: the last of it is told with the next cell.

use std::collections::VecDeque;

use super::frame::Stream;

/// As much as is held.
const MOST: usize = 64 << 10;

/// As many pieces as it is held in.
const MOST_PIECES: usize = 1000;

/// What was written between cells.
#[derive(Debug, Default)]
pub(super) struct Background {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    length: usize,
    /// As many bytes had to go.
    gone: usize,
}

impl Background {
    /// Holds a piece, and lets the oldest go where that is too much.
    pub(super) fn put(&mut self, stream: Stream, bytes: &[u8]) {
        let surplus = bytes.len().saturating_sub(MOST);
        self.gone += surplus;
        self.pieces.push_back((stream, bytes[surplus..].to_vec()));
        self.length += bytes.len() - surplus;
        while self.length > MOST || self.pieces.len() > MOST_PIECES {
            let Some((_, piece)) = self.pieces.pop_front() else { break };
            self.length -= piece.len();
            self.gone += piece.len();
        }
    }

    /// All of it, to be told now, after a word on what is missing.
    pub(super) fn take(&mut self) -> Vec<(Stream, Vec<u8>)> {
        let Self { pieces, gone, .. } = std::mem::take(self);
        let words = format!("[{gone} bytes that were written between cells are left out]\n");
        let missing = (gone > 0).then(|| (Stream::Stderr, words.into_bytes()));
        missing.into_iter().chain(pieces).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_kept_and_the_rest_is_told() {
        let mut background = Background::default();
        background.put(Stream::Stdout, b"first");
        background.put(Stream::Stdout, &vec![b'x'; MOST + 10]);
        let told = background.take();
        assert_eq!(told[0].1, b"[15 bytes that were written between cells are left out]\n");
        assert_eq!((told.len(), told[1].1.len()), (2, MOST));
        assert!(background.take().is_empty());
    }
}
