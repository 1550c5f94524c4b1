//! Who follows a process, and what they get.
//!
//! Every follower has a queue of its own, and the process waits for the slowest of them: its
//! pipe fills up, and it blocks in its write. So a gigabyte of output takes no more memory here
//! than the queues, and nobody who follows ever misses a byte. When nobody follows, output is
//! still read, since a process must not hang because a client went away.
//!
//! The last output is kept in a [`Transcript`], for those who name an offset. Such a follower
//! gets what is kept as it is at that moment, and from then on the process waits for it as for
//! the others: a gap is only possible before it came, and it is told. Somebody who names no
//! offset gets what nobody has heard yet, or, where there is a terminal, the screen as it is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::ending::Ending;
use super::event::{Channel, Event};
use super::screen::Screen;
use super::terminal::Size;
use super::transcript::{Budget, Piece, Transcript};

/// As many events as wait for one follower.
const QUEUE: usize = 16;

/// The largest piece of a redrawn screen that is sent at once.
const SCREEN_PIECE: usize = 16 << 10;

/// The followers of one process.
#[derive(Debug)]
pub(crate) struct Audience {
    inner: Mutex<Inner>,
    /// Held while a piece is given out, so that all get all pieces in the order of offsets.
    turn: tokio::sync::Mutex<()>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Inner {
    followers: Vec<mpsc::Sender<Event>>,
    transcript: Transcript,
    /// The offset of the first output that nobody heard.
    unheard: Option<u64>,
    screen: Option<Screen>,
    /// As much of the budget as the screen takes.
    screen_weight: usize,
    ending: Option<Ending>,
}

/// One follower's side: first what was there, then what comes.
#[derive(Debug)]
pub(crate) struct Following {
    /// Where in the output this begins.
    pub(crate) offset: u64,
    /// What was there.
    pub(crate) held: VecDeque<Event>,
    /// Closed when the process is over.
    pub(crate) queue: mpsc::Receiver<Event>,
}

/// There is no output at an offset yet.
#[derive(Debug, thiserror::Error)]
#[error("the process has written {written} bytes so far, and none at offset {asked}")]
pub(super) struct Ahead {
    asked: u64,
    written: u64,
}

impl Audience {
    /// Nobody yet. `terminal` is the size of the process's terminal, if it has one.
    pub(super) fn new(budget: Arc<Budget>, terminal: Option<Size>) -> Self {
        let inner = Inner {
            followers: Vec::new(),
            transcript: Transcript::new(Arc::clone(&budget)),
            unheard: None,
            screen: None,
            screen_weight: 0,
            ending: None,
        };
        let audience =
            Self { inner: Mutex::new(inner), turn: tokio::sync::Mutex::default(), budget };
        if let Some(size) = terminal
            && !audience.budget.is_over()
        {
            let mut inner = audience.lock();
            inner.screen = Screen::new(size);
            audience.weigh_screen(&mut inner, size);
        }
        audience
    }

    /// Begins to follow, from an offset on or from now on.
    pub(super) fn follow(&self, from: Option<u64>) -> Result<Following, Ahead> {
        let mut inner = self.lock();
        let mut held = VecDeque::new();
        let now = inner.transcript.end();
        let offset = match from {
            Some(asked) if asked > now => return Err(Ahead { asked, written: now }),
            Some(asked) => {
                let start = inner.transcript.start();
                if asked < start {
                    held.push_back(Event::Dropped { from: asked, to: start });
                }
                asked
            }
            None if inner.screen.is_some() => now,
            None => inner.unheard.unwrap_or(now).max(inner.transcript.start()),
        };
        match &inner.screen {
            Some(screen) if from.is_none() => held.extend(redraw(screen)),
            _ => held.extend(inner.transcript.from(offset).map(Event::from)),
        }
        inner.unheard = None;
        let (sender, queue) = mpsc::channel(QUEUE);
        if inner.ending.is_none() {
            inner.followers.push(sender);
        }
        Ok(Following { offset, held, queue })
    }

    /// Gives output to everybody, waiting for the slowest.
    pub(crate) async fn publish(&self, channel: Channel, bytes: Bytes) {
        let _turn = self.turn.lock().await;
        let (offset, followers) = self.lock().add(channel, &bytes);
        let mut heard = false;
        let mut left = false;
        for follower in followers {
            let piece = Piece { channel, offset, bytes: bytes.clone() };
            match follower.send(Event::from(piece)).await {
                Ok(()) => heard = true,
                Err(_) => left = true,
            }
        }
        if left {
            let mut inner = self.lock();
            inner.followers.retain(|follower| !follower.is_closed());
            if !heard && inner.followers.is_empty() {
                inner.unheard.get_or_insert(offset);
            }
        }
    }

    /// Whether anybody follows it now.
    pub(super) fn is_followed(&self) -> bool {
        self.lock().followers.iter().any(|follower| !follower.is_closed())
    }

    /// Tells the size of the terminal from now on.
    pub(super) fn resize(&self, size: Size) {
        let mut inner = self.lock();
        inner.screen = match inner.screen.take() {
            Some(mut screen) => screen.resize(size).then_some(screen),
            // It was too large before. Whoever draws on it is about to draw it anew.
            None if self.budget.is_over() => None,
            None => Screen::new(size),
        };
        self.weigh_screen(&mut inner, size);
    }

    /// Tells everybody that it is over.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut inner = self.lock();
        inner.ending = Some(ending);
        inner.followers.clear();
    }

    /// Drops what is kept of the output.
    pub(super) fn forget(&self) {
        self.lock().transcript.clear();
    }

    /// How the process ended, once it has.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.lock().ending
    }

    fn weigh_screen(&self, inner: &mut Inner, size: Size) {
        let weight = if inner.screen.is_some() { Screen::weight(size) } else { 0 };
        self.budget.give_back(inner.screen_weight);
        self.budget.take(weight);
        inner.screen_weight = weight;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Audience {
    fn drop(&mut self) {
        let weight = self.lock().screen_weight;
        self.budget.give_back(weight);
    }
}

impl Inner {
    /// Takes output in: its offset, and those who are to get it.
    fn add(&mut self, channel: Channel, bytes: &Bytes) -> (u64, Vec<mpsc::Sender<Event>>) {
        let offset = self.transcript.end();
        self.transcript.push(channel, bytes);
        if let Some(screen) = &mut self.screen {
            screen.feed(bytes);
        }
        self.followers.retain(|follower| !follower.is_closed());
        if self.followers.is_empty() {
            self.unheard.get_or_insert(offset);
        }
        (offset, self.followers.clone())
    }
}

impl From<Piece> for Event {
    fn from(Piece { channel, offset, bytes }: Piece) -> Self {
        Self::Output { channel, offset: Some(offset), bytes }
    }
}

fn redraw(screen: &Screen) -> impl Iterator<Item = Event> {
    let mut drawn = Bytes::from(screen.redraw());
    std::iter::from_fn(move || {
        let bytes = drawn.split_to(drawn.len().min(SCREEN_PIECE));
        let channel = Channel::Terminal;
        (!bytes.is_empty()).then_some(Event::Output { channel, offset: None, bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::super::ending::Exit;
    use super::*;

    fn audience() -> Audience {
        Audience::new(Arc::default(), None)
    }

    fn text(events: VecDeque<Event>) -> Vec<u8> {
        let bytes = events.into_iter().filter_map(|event| match event {
            Event::Output { bytes, .. } => Some(bytes),
            _ => None,
        });
        bytes.flatten().collect()
    }

    #[tokio::test]
    async fn what_nobody_heard_is_given_once_to_the_next_follower() {
        let audience = audience();
        audience.publish(Channel::Stdout, Bytes::from_static(b"unheard")).await;
        let following = audience.follow(None).unwrap();
        assert_eq!(following.offset, 0);
        assert_eq!(text(following.held), b"unheard");
        let following = audience.follow(None).unwrap();
        assert_eq!(following.offset, 7);
        assert!(following.held.is_empty());
    }

    #[tokio::test]
    async fn a_follower_that_left_holds_nobody_up() {
        let audience = audience();
        drop(audience.follow(None).unwrap());
        for _ in 0..2 * QUEUE {
            audience.publish(Channel::Stdout, Bytes::from_static(b"x")).await;
        }
        assert_eq!(text(audience.follow(None).unwrap().held).len(), 2 * QUEUE);
    }

    #[tokio::test]
    async fn a_follower_from_an_offset_hears_what_others_heard_before() {
        let audience = audience();
        let mut first = audience.follow(None).unwrap();
        audience.publish(Channel::Stdout, Bytes::from_static(b"out")).await;
        audience.publish(Channel::Stderr, Bytes::from_static(b"err")).await;
        let mut second = audience.follow(Some(2)).unwrap();
        assert_eq!((second.offset, text(second.held)), (2, b"terr".to_vec()));
        audience.publish(Channel::Stdout, Bytes::from_static(b"later")).await;
        for (queue, expected) in [(&mut first.queue, 0), (&mut second.queue, 6)] {
            let Some(Event::Output { offset, .. }) = queue.recv().await else { panic!() };
            assert_eq!(offset, Some(expected));
        }
        let ahead = audience.follow(Some(12)).unwrap_err();
        assert!(ahead.to_string().contains("11 bytes so far"), "{ahead}");
        assert_eq!(audience.follow(Some(11)).unwrap().offset, 11);
    }

    #[tokio::test]
    async fn after_the_end_the_queue_is_closed_and_the_ending_known() {
        let audience = audience();
        let mut following = audience.follow(None).unwrap();
        audience.publish(Channel::Stdout, Bytes::from_static(b"last words")).await;
        let ending = Ending { exit: Exit::Code(0), exec_errno: None, expired: false, cause: None };
        audience.finish(ending);
        assert!(matches!(following.queue.recv().await, Some(Event::Output { .. })));
        assert!(following.queue.recv().await.is_none());
        let mut late = audience.follow(Some(5)).unwrap();
        assert_eq!(text(late.held), b"words");
        assert!(late.queue.recv().await.is_none());
        assert_eq!(audience.ending(), Some(ending));
    }

    #[tokio::test]
    async fn a_terminal_is_redrawn_and_what_it_takes_is_given_back() {
        let budget = Arc::new(Budget::default());
        let size = Size { columns: 20, rows: 4 };
        let audience = Audience::new(Arc::clone(&budget), Some(size));
        let old = Bytes::from_static(b"gone\x1b[2J\x1b[H\x1b[31mred");
        audience.publish(Channel::Terminal, old).await;
        let shown = String::from_utf8(text(audience.follow(None).unwrap().held)).unwrap();
        assert!(shown.contains("\x1b[0;31mred") && !shown.contains("gone"), "{shown:?}");
        drop(audience);
        assert!(format!("{budget:?}").contains("held: 0"), "{budget:?}");
    }
}
