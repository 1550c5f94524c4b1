//! A connection, with the messages that the other side has not taken yet.
//!
//! A client that asks faster than it reads must neither hold up the others nor lose its
//! connection, and with it the sandboxes that live with it. So its answers wait here, and while
//! they do nothing more is read from it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::net::SendFlags;
use serde::Serialize;

use crate::verbs::Reply;

/// More answers than this wait for nobody: such a client has stopped to read.
const MOST_WAITING: usize = 4096;

/// A client's, which is sent answers.
pub(super) type Client = Connection<Reply>;

pub(super) struct Connection<T> {
    socket: OwnedFd,
    waiting: VecDeque<(T, Vec<OwnedFd>)>,
}

impl<T: Serialize> Connection<T> {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, waiting: VecDeque::new() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether answers wait for it to read.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What there is to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.is_behind() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Sends a message, now or when the other side has read those before. Never waits.
    pub(super) fn send(&mut self, message: T, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        self.waiting.push_back((message, descriptors));
        self.catch_up()?;
        if self.waiting.len() > MOST_WAITING {
            return Err(io::Error::other("it does not read its answers"));
        }
        Ok(())
    }

    /// Sends as many of the waiting messages as the other side takes now.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        while let Some((message, descriptors)) = self.waiting.front() {
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            match link::send(&self.socket, message, &descriptors, SendFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                sent => sent?,
            }
            self.waiting.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::RecvFlags;

    use super::*;
    use crate::verbs::{Answer, Record};

    fn reply(number: u64) -> Reply {
        Reply { number, answer: Ok(Answer::Record(Record("x".repeat(50_000)))) }
    }

    #[test]
    fn answers_wait_for_a_slow_client_and_keep_their_order() {
        let (near, far) = link::pair().unwrap();
        let mut client = Client::new(near);
        for number in 0..50 {
            client.send(reply(number), Vec::new()).unwrap();
        }
        assert!(client.is_behind(), "the kernel held all of it");
        for number in 0..50 {
            let (reply, _) =
                link::receive::<Reply>(&far, RecvFlags::DONTWAIT).unwrap().expect("it is there");
            assert_eq!(reply.number, number);
            client.catch_up().unwrap();
        }
        assert!(!client.is_behind());
    }

    #[test]
    fn a_client_that_reads_nothing_is_given_up() {
        let (near, _far) = link::pair().unwrap();
        let mut client = Client::new(near);
        let answer = || Reply { number: 0, answer: Ok(Answer::Done) };
        let refused = (0..100_000).any(|_| client.send(answer(), Vec::new()).is_err());
        assert!(refused);
    }

    #[test]
    fn a_client_that_left_is_an_error() {
        let (near, far) = link::pair().unwrap();
        let mut client = Client::new(near);
        drop(far);
        assert!(client.send(reply(0), Vec::new()).is_err());
    }
}
