//! A kernel that runs: its pipes, its end, and the ways to stop it.
//!
//! What it says comes through [`Kernel::next`], in the order in which it was said, as far as that
//! can be known: frames and what the process and its children write by themselves go different
//! ways. A kernel that tells with `after` what came before a frame is read frames first; of all
//! others the pipes are emptied before a frame is handled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frame::{Frame, Parser, Stream};
use super::pipes::{CHUNK, LARGE_PIPE, chunk, read, readable, take_now, waiting, write};
use crate::files::blocking;
use crate::keeper::{Order, tree};
use crate::process::{Control, Exit, fell};

/// As much of what was written by itself as waits to be handled. The rest waits in its pipe.
const MOST_PENDING: usize = 2 * LARGE_PIPE;

/// As many things as are handled before others have their turn: what is there already is handled
/// without waiting, and could be handled for ever.
const TURN: u32 = 64;

/// How long a kernel that closed its channel has to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the processes of a kernel are looked for after they were killed.
const KILLING: Duration = Duration::from_secs(5);

/// A kernel that runs.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) pipes: Pipes,
    /// What its parent saw at its end, once it has ended.
    pub(super) ended: watch::Receiver<Option<How>>,
    pub(super) handle: Handle,
    parser: Parser,
    /// Said and not yet handled.
    pending: VecDeque<News>,
    /// As many bytes of that as were written by itself.
    written: usize,
    handled: u32,
    /// The walk over processes that an interrupt takes, while it goes on.
    walk: Option<JoinHandle<()>>,
    /// Read from a pipe, and still to find its place among frames.
    held: Option<(Stream, Bytes)>,
    /// To be written to it.
    outgoing: VecDeque<Bytes>,
    /// It tells what comes before a frame.
    frames_first: bool,
    /// It said that it can run cells.
    pub(super) ready: bool,
    over: bool,
}

/// The guest's ends of a kernel's pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdout: Option<pipe::Receiver>,
    pub(super) stderr: Option<pipe::Receiver>,
    pub(super) to: pipe::Sender,
    pub(super) from: Option<pipe::Receiver>,
    /// For interrupts, where the kernel has such a pipe.
    pub(super) interrupts: Option<pipe::Sender>,
}

/// How a kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// As its parent saw it.
    Exit(Exit),
    /// The program could not be executed, with this error.
    NotExecuted(i32),
    /// Nobody saw it.
    Unknown,
}

/// What reaches a kernel's processes.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    /// It has a keeper of its own.
    Kept { control: Arc<Control>, keeper: i32 },
    /// It was forked by another process, which told its number. It leads a session, and is below
    /// that process's keeper: a number that is not was made up.
    Forked { pid: Pid, keeper: Pid },
}

/// Something that a kernel said or did.
#[derive(Debug)]
pub(super) enum News {
    Frame(Frame),
    /// It or one of its children wrote by itself.
    Written(Stream, Bytes),
    Ended(How),
    /// It breaks the rules.
    Broken(String),
}

/// What it says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct About {
    order: String,
}

impl Kernel {
    /// A kernel that was just started.
    pub(super) fn new(pipes: Pipes, ended: watch::Receiver<Option<How>>, handle: Handle) -> Self {
        Self {
            pipes,
            ended,
            handle,
            parser: Parser::default(),
            pending: VecDeque::new(),
            written: 0,
            handled: 0,
            walk: None,
            held: None,
            outgoing: VecDeque::new(),
            frames_first: false,
            ready: false,
            over: false,
        }
    }

    /// Sends a frame, as soon as there is room and somebody waits for [`Kernel::next`].
    pub(super) fn send(&mut self, frame: Bytes) {
        self.outgoing.push_back(frame);
    }

    /// The next thing that it said or did. Nothing is lost when the caller waits no longer.
    pub(super) async fn next(&mut self) -> News {
        self.handled += 1;
        if self.handled >= TURN {
            self.handled = 0;
            tokio::task::yield_now().await;
        }
        loop {
            if let Some(news) = self.pending.pop_front() {
                if let News::Written(_, bytes) = &news {
                    self.written -= bytes.len();
                }
                return news;
            }
            match self.parser.next() {
                Ok(Some(frame)) => self.in_order(frame),
                Ok(None) if self.over => return News::Ended(How::Unknown),
                Ok(None) => self.wait().await,
                Err(broken) => return News::Broken(broken.to_string()),
            }
        }
    }

    /// Waits until an interrupt is delivered, so that it is not the next cell's.
    pub(super) async fn settle(&mut self) {
        if let Some(walk) = self.walk.take() {
            let _ = walk.await;
        }
    }

    /// Interrupts its cell, as a terminal would.
    pub(super) fn interrupt(&mut self) {
        if let Some(pipe) = &self.pipes.interrupts {
            let _ = pipe.try_write(&[1]);
        }
        match &self.handle {
            Handle::Kept { control, .. } => {
                const INTERRUPT: i32 = 2;
                let _ = control.order(Order::Signal { signal: INTERRUPT });
            }
            Handle::Forked { pid, keeper } => {
                let (pid, keeper) = (*pid, *keeper);
                self.walk = Some(aside(move || tree::signal_led(keeper, pid, Signal::INT)));
            }
        }
    }

    /// Kills it with all processes of its session, and waits until it is gone.
    pub(super) async fn kill(self) {
        let Self { mut ended, handle, pipes, .. } = self;
        handle.kill();
        drop(pipes);
        let _ = timeout(KILLING, ended.wait_for(Option::is_some)).await;
    }

    /// Puts a frame in its place among what was written.
    fn in_order(&mut self, frame: Frame) {
        match &frame {
            Frame::After { out, err } => {
                self.take_written(Stream::Stdout, (*out).min(LARGE_PIPE));
                self.take_written(Stream::Stderr, (*err).min(LARGE_PIPE));
                return;
            }
            Frame::Ready(about) => {
                let about: About = serde_json::from_slice(about).unwrap_or_default();
                self.frames_first = about.order == "frames";
                self.ready = true;
            }
            _ if !self.frames_first => {
                self.take_written(Stream::Stdout, LARGE_PIPE);
                self.take_written(Stream::Stderr, LARGE_PIPE);
            }
            _ => {}
        }
        self.pending.push_back(News::Frame(frame));
    }

    /// Waits until there is something to look at.
    async fn wait(&mut self) {
        let Pipes { stdout, stderr, to, from, .. } = &mut self.pipes;
        let is_open = from.is_some();
        tokio::select! {
            biased;
            writable = to.writable(), if !self.outgoing.is_empty() => {
                if writable.is_err() || write(to, &mut self.outgoing).is_err() {
                    // Nobody reads it any more, which its end will tell.
                    self.outgoing.clear();
                }
            }
            read = read(from, &mut self.parser.buffer), if is_open => {
                if read.unwrap_or(0) == 0 {
                    *from = None;
                }
            }
            () = readable(stdout.as_ref()) => self.written(Stream::Stdout),
            () = readable(stderr.as_ref()) => self.written(Stream::Stderr),
            how = end(&mut self.ended, is_open) => {
                if let Some(how) = how {
                    self.drain(how);
                } else {
                    let problem = "it closed the channel that it speaks through".to_owned();
                    self.pending.push_back(News::Broken(problem));
                    self.over = true;
                }
            }
        }
    }

    /// Takes what was written by itself, after the frames that came before it.
    fn written(&mut self, stream: Stream) {
        // Frames that came before are in their pipe by now, whether the runtime has heard of it or
        // not. What comes into it after this was read is later. One that is there already and is
        // later says so, and takes what was before it.
        let mut ahead = self.pipes.from.as_ref().map_or(0, waiting);
        let pipe = match stream {
            Stream::Stdout => &self.pipes.stdout,
            Stream::Stderr => &self.pipes.stderr,
        };
        let Some(Ok(bytes)) = pipe.as_ref().map(chunk) else { return self.close(stream) };
        let Some(bytes) = bytes else { return };
        if bytes.is_empty() {
            return self.close(stream);
        }
        if self.frames_first {
            self.held = Some((stream, bytes));
            while let Some(from) = &self.pipes.from
                && ahead > 0
                && take_now(from, &mut self.parser.buffer, ahead.min(CHUNK))
            {
                ahead -= ahead.min(CHUNK);
                loop {
                    match self.parser.next() {
                        Ok(Some(frame)) => self.in_order(frame),
                        Ok(None) => break,
                        Err(broken) => {
                            self.take_held(stream, usize::MAX);
                            self.pending.push_back(News::Broken(broken.to_string()));
                            return;
                        }
                    }
                }
            }
            self.take_held(stream, usize::MAX);
        } else {
            self.put(stream, bytes);
        }
    }

    /// Gives up to so many bytes of what is held their place; tells how many there were.
    fn take_held(&mut self, stream: Stream, most: usize) -> usize {
        let Some((held, bytes)) = &mut self.held else { return 0 };
        if *held != stream {
            return 0;
        }
        let taken = bytes.split_to(most.min(bytes.len()));
        if bytes.is_empty() {
            self.held = None;
        }
        let length = taken.len();
        if length > 0 {
            self.put(stream, taken);
        }
        length
    }

    fn put(&mut self, stream: Stream, bytes: Bytes) {
        self.written += bytes.len();
        self.pending.push_back(News::Written(stream, bytes));
    }

    /// Takes what is left after its end.
    fn drain(&mut self, how: How) {
        let mut left = 2 * LARGE_PIPE;
        while let Some(from) = &self.pipes.from
            && left > 0
            && take_now(from, &mut self.parser.buffer, CHUNK)
        {
            left = left.saturating_sub(CHUNK);
            while let Ok(Some(frame)) = self.parser.next() {
                self.in_order(frame);
            }
        }
        self.pipes.from = None;
        self.take_written(Stream::Stdout, LARGE_PIPE);
        self.take_written(Stream::Stderr, LARGE_PIPE);
        self.pending.push_back(News::Ended(how));
        self.over = true;
    }

    /// Takes as much as was written to a pipe by now, and no more than that.
    fn take_written(&mut self, stream: Stream, mut most: usize) {
        most -= self.take_held(stream, most);
        most = most.min(MOST_PENDING.saturating_sub(self.written));
        let pipe = match stream {
            Stream::Stdout => &self.pipes.stdout,
            Stream::Stderr => &self.pipes.stderr,
        };
        let Some(pipe) = pipe else { return };
        while most > 0 {
            let there @ 1.. = waiting(pipe) else { return };
            let mut buffer = BytesMut::new();
            if !take_now(pipe, &mut buffer, there.min(most)) {
                return;
            }
            most = most.saturating_sub(buffer.len());
            self.written += buffer.len();
            self.pending.push_back(News::Written(stream, buffer.freeze()));
        }
    }

    fn close(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.pipes.stdout = None,
            Stream::Stderr => self.pipes.stderr = None,
        }
    }
}

impl Handle {
    /// Kills the kernel and all processes of its session.
    pub(super) fn kill(&self) {
        match self {
            Self::Kept { control, keeper } => {
                let _ = control.order(Order::Kill);
                crate::spawn(fell(*keeper, Arc::clone(control)));
            }
            Self::Forked { pid, keeper } => {
                let (pid, keeper) = (*pid, *keeper);
                aside(move || {
                    tree::kill_session(keeper, pid);
                });
            }
        }
    }
}

/// Walks over processes beside everything else, and not many walks at once.
fn aside(walk: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    crate::spawn(async move {
        let _ = blocking::start_short(walk).await.await;
    })
}

/// How it ended, when it has; none when it still runs long after its channel was closed.
async fn end(ended: &mut watch::Receiver<Option<How>>, is_open: bool) -> Option<How> {
    let how = async {
        let seen = ended.wait_for(Option::is_some).await.ok().and_then(|how| *how);
        match seen {
            Some(how) => how,
            // Whoever would have seen its end is gone, and it may run on for long.
            None if is_open => std::future::pending().await,
            None => How::Unknown,
        }
    };
    if is_open { Some(how.await) } else { timeout(PATIENCE, how).await.ok() }
}
