//! Who follows a process, and what they get.
//!
//! Every follower has a queue of its own, and the process waits for the slowest of them: its
//! pipe fills up, and it blocks in its write. So a gigabyte of output takes no more memory here
//! than the queues. When nobody follows, output is still read, since a process must not hang
//! because a client went away; the last of it is held for the next follower and the rest is
//! thrown away.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::ending::Ending;
use super::event::{Channel, Event};

/// As many events as wait for one follower.
const QUEUE: usize = 64;

/// As much output as is held when nobody follows.
const MOST_HELD: usize = 64 << 10;

/// As many pieces as it is held in. Pieces grow while the same channel goes on.
const MOST_PIECES: usize = 256;

/// The followers of one process.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    followers: Vec<mpsc::Sender<Event>>,
    held: Held,
    ending: Option<Ending>,
}

/// One follower's side: first what was held, then what comes.
#[derive(Debug)]
pub(crate) struct Following {
    /// Output from when nobody followed.
    pub(crate) held: VecDeque<Event>,
    /// Closed when the process is over.
    pub(crate) queue: mpsc::Receiver<Event>,
}

impl Audience {
    /// Begins to follow, from now on.
    pub(crate) fn follow(&self) -> Following {
        let mut inner = self.lock();
        let (sender, queue) = mpsc::channel(QUEUE);
        if inner.ending.is_none() {
            inner.followers.push(sender);
        }
        Following { held: inner.held.take(), queue }
    }

    /// Gives output to everybody, waiting for the slowest.
    pub(crate) async fn publish(&self, channel: Channel, bytes: Bytes) {
        let followers = self.lock().followers.clone();
        let mut heard = false;
        let mut left = false;
        for follower in followers {
            let event = Event::Output { channel, bytes: bytes.clone() };
            match follower.send(event).await {
                Ok(()) => heard = true,
                Err(_) => left = true,
            }
        }
        if left {
            self.lock().followers.retain(|follower| !follower.is_closed());
        }
        if !heard {
            self.lock().held.push(channel, &bytes);
        }
    }

    /// Tells everybody that it is over.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut inner = self.lock();
        inner.ending = Some(ending);
        inner.followers.clear();
    }

    /// How the process ended, once it has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.lock().ending
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last output that nobody heard.
#[derive(Debug, Default)]
struct Held {
    pieces: VecDeque<(Channel, BytesMut)>,
    length: usize,
}

impl Held {
    fn push(&mut self, channel: Channel, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(MOST_HELD)..];
        match self.pieces.back_mut() {
            Some((last, piece)) if *last == channel && piece.len() < MOST_HELD / 8 => {
                piece.extend_from_slice(bytes);
            }
            _ => self.pieces.push_back((channel, BytesMut::from(bytes))),
        }
        self.length += bytes.len();
        while self.length > MOST_HELD || self.pieces.len() > MOST_PIECES {
            let Some((_, dropped)) = self.pieces.pop_front() else { break };
            self.length -= dropped.len();
        }
    }

    fn take(&mut self) -> VecDeque<Event> {
        self.length = 0;
        std::mem::take(&mut self.pieces)
            .into_iter()
            .map(|(channel, piece)| Event::Output { channel, bytes: piece.freeze() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ending::Exit;
    use super::*;

    fn text(events: VecDeque<Event>) -> Vec<u8> {
        let bytes = events.into_iter().filter_map(|event| match event {
            Event::Output { bytes, .. } => Some(bytes),
            _ => None,
        });
        bytes.flatten().collect()
    }

    #[test]
    fn only_the_last_of_unheard_output_is_held() {
        let mut held = Held::default();
        for round in 0..100_000u32 {
            held.push(Channel::Stdout, &round.to_le_bytes());
            assert!(held.length <= MOST_HELD);
        }
        let bytes = text(held.take());
        assert!(bytes.len() > MOST_HELD / 2);
        assert_eq!(bytes[bytes.len() - 4..], 99_999u32.to_le_bytes());
    }

    #[test]
    fn alternating_channels_do_not_make_endless_pieces() {
        let mut held = Held::default();
        for _ in 0..10_000 {
            held.push(Channel::Stdout, b"o");
            held.push(Channel::Stderr, b"e");
        }
        assert!(held.pieces.len() <= MOST_PIECES);
    }

    #[tokio::test]
    async fn what_nobody_heard_is_given_once_to_the_next_follower() {
        let audience = Audience::default();
        audience.publish(Channel::Stdout, Bytes::from_static(b"unheard")).await;
        assert_eq!(text(audience.follow().held), b"unheard");
        assert!(audience.follow().held.is_empty());
    }

    #[tokio::test]
    async fn a_follower_that_left_holds_nobody_up() {
        let audience = Audience::default();
        drop(audience.follow());
        for _ in 0..2 * QUEUE {
            audience.publish(Channel::Stdout, Bytes::from_static(b"x")).await;
        }
        assert_eq!(text(audience.follow().held).len(), 2 * QUEUE);
    }

    #[tokio::test]
    async fn after_the_end_the_queue_is_closed_and_the_ending_known() {
        let audience = Audience::default();
        let mut following = audience.follow();
        audience.publish(Channel::Stdout, Bytes::from_static(b"last words")).await;
        let ending = Ending { exit: Exit::Code(0), exec_errno: None, expired: false };
        audience.finish(ending);
        assert!(matches!(following.queue.recv().await, Some(Event::Output { .. })));
        assert!(following.queue.recv().await.is_none());
        assert!(audience.follow().queue.recv().await.is_none());
        assert_eq!(audience.ending(), Some(ending));
    }
}
