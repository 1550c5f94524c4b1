//! A kernel that runs: its pipes, its end, and the ways to stop it.
//!
//! What it says comes through [`Kernel::next`], in the order in which it was said, as far as that
//! can be known: frames and what the process and its children write by themselves go different
//! ways. A kernel that tells with `after` what came before a frame is read frames first; of all
//! others the pipes are emptied before a frame is handled.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use super::frame::{Frame, Parser, Stream};
use crate::files::blocking;
use crate::keeper::{Order, tree};
use crate::process::{Control, Exit, fell};

/// As much as is read at once.
const CHUNK: usize = 128 << 10;

/// The size of a pipe through which much flows.
const LARGE_PIPE: usize = 1 << 20;

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
        loop {
            if let Some(news) = self.pending.pop_front() {
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

    /// Interrupts its cell, as a terminal would.
    pub(super) fn interrupt(&self) {
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
                aside(move || tree::signal_led(keeper, pid, Signal::INT));
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
            written = chunk(stdout), if stdout.is_some() => self.written(Stream::Stdout, written),
            written = chunk(stderr), if stderr.is_some() => self.written(Stream::Stderr, written),
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
    fn written(&mut self, stream: Stream, written: io::Result<Bytes>) {
        let Ok(bytes) = written else { return self.close(stream) };
        if bytes.is_empty() {
            return self.close(stream);
        }
        if self.frames_first {
            // Frames that came before are in their pipe by now, whether the runtime has heard of
            // it or not. One that came later says so, and takes what was before it.
            self.held = Some((stream, bytes));
            while let Some(from) = &self.pipes.from
                && take_now(from, &mut self.parser.buffer, CHUNK)
            {
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
                if self.pending.len() > 64 {
                    break;
                }
            }
            self.take_held(stream, usize::MAX);
        } else {
            self.pending.push_back(News::Written(stream, bytes));
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
            self.pending.push_back(News::Written(stream, taken));
        }
        length
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
        let pipe = match stream {
            Stream::Stdout => &self.pipes.stdout,
            Stream::Stderr => &self.pipes.stderr,
        };
        let Some(pipe) = pipe else { return };
        while most > 0 {
            let there = ioctl_fionread(pipe).ok().and_then(|there| usize::try_from(there).ok());
            let Some(there @ 1..) = there else { return };
            let mut buffer = BytesMut::new();
            if !take_now(pipe, &mut buffer, there.min(most)) {
                return;
            }
            most = most.saturating_sub(buffer.len());
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
fn aside(walk: impl FnOnce() + Send + 'static) {
    crate::spawn(async move {
        let _ = blocking::start_short(walk).await.await;
    });
}

/// How it ended, when it has; none when it still runs long after its channel was closed.
async fn end(ended: &mut watch::Receiver<Option<How>>, is_open: bool) -> Option<How> {
    let how = async {
        let how = ended.wait_for(Option::is_some).await;
        how.ok().and_then(|how| *how).unwrap_or(How::Unknown)
    };
    if is_open { Some(how.await) } else { timeout(PATIENCE, how).await.ok() }
}

/// Reads what is there, or waits for it.
async fn read(pipe: &mut Option<pipe::Receiver>, buffer: &mut BytesMut) -> io::Result<usize> {
    let Some(pipe) = pipe else { return std::future::pending().await };
    buffer.reserve(CHUNK);
    let read = pipe.read_buf(&mut buffer.limit(CHUNK)).await?;
    if read == 64 << 10 {
        // It was full. It may be refused when the user's pipes are large already.
        let _ = rustix::pipe::fcntl_setpipe_size(&*pipe, LARGE_PIPE);
    }
    Ok(read)
}

async fn chunk(pipe: &mut Option<pipe::Receiver>) -> io::Result<Bytes> {
    let mut buffer = BytesMut::new();
    read(pipe, &mut buffer).await?;
    Ok(buffer.freeze())
}

/// Reads what is there, without waiting; false where there is nothing.
fn take_now(pipe: &pipe::Receiver, buffer: &mut BytesMut, most: usize) -> bool {
    let before = buffer.len();
    buffer.resize(before + most, 0);
    let read = rustix::io::read(pipe, &mut buffer[before..]).unwrap_or(0);
    buffer.truncate(before + read);
    read > 0
}

/// Writes as much as there is room for.
fn write(pipe: &pipe::Sender, outgoing: &mut VecDeque<Bytes>) -> io::Result<()> {
    while let Some(frame) = outgoing.front_mut() {
        match pipe.try_write(frame) {
            Ok(written) => {
                let _ = frame.split_to(written);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if frame.is_empty() {
            outgoing.pop_front();
        }
    }
    Ok(())
}
