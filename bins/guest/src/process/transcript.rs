//! The last output of a process, by offset.
//!
//! All output counts as one sequence of bytes in the order in which it came, whatever channel it
//! came from. The last of it is kept, so that somebody who lost a connection can go on where it
//! broke off.
//!
//! A large piece is kept as it was read, without a copy. Small ones are copied together, because
//! each would hold on to the buffer that it was read into. What is kept is bounded for each
//! process and, through a [`Budget`], for all of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

use super::event::Channel;

/// As much output of one process as is kept, and as is kept when memory is short.
const MOST: usize = 1 << 20;
const LEAST: usize = 64 << 10;

/// As much as is kept of all processes together, before each keeps the least.
const MOST_OF_ALL: usize = 32 << 20;

/// As many blocks as it is kept in. They are small only when channels alternate all the time.
const MOST_BLOCKS: usize = 1024;

/// A piece of this length is kept without a copy, and small ones are copied together up to it.
const LARGE: usize = 16 << 10;

/// What is kept of all processes together, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    held: AtomicUsize,
}

impl Budget {
    /// Whether more is kept than shall be.
    pub(crate) fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > MOST_OF_ALL
    }

    /// Whether it is time for those that ended to make room for those that run.
    pub(crate) fn is_crowded(&self) -> bool {
        self.held.load(Ordering::Relaxed) > MOST_OF_ALL / 2
    }

    pub(crate) fn take(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The last output of one process.
#[derive(Debug)]
pub(super) struct Transcript {
    blocks: VecDeque<(Channel, Bytes)>,
    /// Small pieces, as long as they come from the same channel.
    last: (Channel, BytesMut),
    /// The offset of the first byte that is kept.
    start: u64,
    /// As many bytes as are kept.
    length: usize,
    budget: Arc<Budget>,
}

/// A piece of output and its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) channel: Channel,
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

impl Transcript {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        let last = (Channel::Stdout, BytesMut::new());
        Self { blocks: VecDeque::new(), last, start: 0, length: 0, budget }
    }

    /// The offset of the first byte that is kept.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The offset of the byte that comes next.
    pub(super) fn end(&self) -> u64 {
        self.start + self.length as u64
    }

    /// Adds output at the end, and drops what is too much at the start.
    pub(super) fn push(&mut self, channel: Channel, bytes: &Bytes) {
        let fits = self.last.0 == channel && self.last.1.len() + bytes.len() <= LARGE;
        if bytes.len() >= LARGE {
            self.close_last();
            self.blocks.push_back((channel, bytes.clone()));
        } else if fits {
            self.last.1.extend_from_slice(bytes);
        } else {
            self.close_last();
            self.last = (channel, BytesMut::from(&bytes[..]));
        }
        self.length += bytes.len();
        self.budget.take(bytes.len());
        while self.length > MOST
            || self.blocks.len() > MOST_BLOCKS
            || (self.length > LEAST && self.budget.is_over())
        {
            let Some((_, dropped)) = self.blocks.pop_front() else { break };
            self.drop_bytes(dropped.len());
        }
    }

    /// What is kept from an offset on.
    pub(super) fn from(&self, offset: u64) -> impl Iterator<Item = Piece> {
        let last =
            (!self.last.1.is_empty()).then(|| (self.last.0, Bytes::copy_from_slice(&self.last.1)));
        let mut next = self.start;
        self.blocks.iter().cloned().chain(last).filter_map(move |(channel, bytes)| {
            let begin = next;
            next += bytes.len() as u64;
            let skipped = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX);
            (skipped < bytes.len()).then(|| Piece {
                channel,
                offset: begin + skipped as u64,
                bytes: bytes.slice(skipped..),
            })
        })
    }

    /// Drops everything. Offsets go on.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.last.1 = BytesMut::new();
        self.drop_bytes(self.length);
    }

    fn close_last(&mut self) {
        if !self.last.1.is_empty() {
            let bytes = std::mem::take(&mut self.last.1).freeze();
            self.blocks.push_back((self.last.0, bytes));
        }
    }

    fn drop_bytes(&mut self, count: usize) {
        self.start += count as u64;
        self.length -= count;
        self.budget.give_back(count);
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        self.budget.give_back(self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transcript() -> Transcript {
        Transcript::new(Arc::default())
    }

    fn text(transcript: &Transcript, offset: u64) -> Vec<u8> {
        transcript.from(offset).flat_map(|piece| piece.bytes).collect()
    }

    #[test]
    fn only_the_last_output_is_kept() {
        let mut transcript = transcript();
        for round in 0..1_000_000u32 {
            transcript.push(Channel::Stdout, &Bytes::copy_from_slice(&round.to_le_bytes()));
            assert!(transcript.length <= MOST);
        }
        assert_eq!(transcript.end(), 4_000_000);
        let bytes = text(&transcript, 0);
        assert!(bytes.len() > MOST - 2 * LARGE);
        assert_eq!(bytes[bytes.len() - 4..], 999_999u32.to_le_bytes());
        assert_eq!(transcript.end() - transcript.start(), bytes.len() as u64);
    }

    #[test]
    fn a_large_piece_is_kept_without_a_copy() {
        let mut transcript = transcript();
        let piece = Bytes::from(vec![7; LARGE]);
        transcript.push(Channel::Stdout, &piece);
        assert_eq!(transcript.from(0).next().unwrap().bytes.as_ptr(), piece.as_ptr());
    }

    #[test]
    fn small_pieces_do_not_hold_their_buffers() {
        let mut transcript = transcript();
        let buffer = Bytes::from(vec![7; 2 * LARGE]);
        transcript.push(Channel::Stdout, &buffer.slice(..LARGE / 2));
        transcript.push(Channel::Stderr, &buffer.slice(..1));
        assert!(buffer.is_unique());
    }

    #[test]
    fn alternating_channels_do_not_make_endless_blocks() {
        let mut transcript = transcript();
        for _ in 0..10_000 {
            transcript.push(Channel::Stdout, &Bytes::from_static(b"o"));
            transcript.push(Channel::Stderr, &Bytes::from_static(b"e"));
        }
        assert!(transcript.blocks.len() <= MOST_BLOCKS);
        assert_eq!(transcript.end(), 20_000);
    }

    #[test]
    fn many_processes_together_keep_no_more_than_the_budget() {
        let budget = Arc::new(Budget::default());
        let mut all: Vec<_> = (0..100).map(|_| Transcript::new(Arc::clone(&budget))).collect();
        let piece = Bytes::from(vec![7; 32 << 10]);
        for _ in 0..64 {
            for transcript in &mut all {
                transcript.push(Channel::Stdout, &piece);
            }
        }
        let held = budget.held.load(Ordering::Relaxed);
        assert_eq!(held, all.iter().map(|transcript| transcript.length).sum::<usize>());
        assert!(held <= MOST_OF_ALL + piece.len(), "{held}");
        assert!(all.iter().all(|transcript| transcript.length >= LEAST - piece.len()));
        drop(all);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever is pushed in whatever pieces: what is kept is the end of it, at its offset
        /// and on its channel.
        #[test]
        fn what_is_kept_is_the_end_of_what_was_pushed(
            pieces in prop::collection::vec((any::<bool>(), 1usize..40_000), 1..80),
            offset in 0u64..2_000_000,
        ) {
            let mut transcript = transcript();
            let mut all = Vec::new();
            for (number, (stderr, length)) in pieces.into_iter().enumerate() {
                let channel = if stderr { Channel::Stderr } else { Channel::Stdout };
                let byte = u8::try_from(number % 251).unwrap();
                transcript.push(channel, &Bytes::from(vec![byte; length]));
                all.extend(std::iter::repeat_n((channel, byte), length));
            }
            prop_assert_eq!(transcript.end(), all.len() as u64);
            let mut next = offset.max(transcript.start());
            for piece in transcript.from(offset) {
                prop_assert_eq!(piece.offset, next);
                next += piece.bytes.len() as u64;
                let begin = usize::try_from(piece.offset).unwrap();
                for (expected, byte) in all[begin..].iter().zip(&piece.bytes) {
                    prop_assert_eq!(*expected, (piece.channel, *byte));
                }
            }
            prop_assert_eq!(next, transcript.end().max(offset));
        }
    }
}
