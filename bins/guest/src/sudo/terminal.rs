//! A terminal within the caller's terminal, for the program that `sudo` starts.
//!
//! The program is in another session than its caller and cannot share the caller's terminal as
//! its own. So it gets a new one, and every byte is carried between the two. The outer one is
//! raw meanwhile: keys such as Ctrl-C are the inner one's to understand.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::process::getpgrp;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// The most that is carried at once.
const CHUNK: usize = 16 << 10;

/// The most that is still carried after the program's end: more than a terminal holds, for
/// somebody who was left behind may go on writing.
const MOST_AT_END: usize = 1 << 20;

/// How long the last of the output is waited for, when somebody else holds the terminal open.
const LAST: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The two terminals.
#[derive(Debug)]
pub(super) struct Terminal {
    outer: Side,
    inner: Side,
    /// How the outer one was, while it is ours.
    saved: Option<Termios>,
    /// The program has begun. Before, what it writes waits: the outer one is not ready for it.
    begun: bool,
}

/// One of them, with what is to be written to it.
#[derive(Debug)]
struct Side {
    descriptor: OwnedFd,
    pending: Vec<u8>,
    open: bool,
}

impl Terminal {
    /// Opens a terminal within the given one, and returns the program's end of it too.
    pub(super) fn open(outer: &OwnedFd) -> io::Result<(Self, OwnedFd)> {
        // Opened anew, so that it can be made not to wait without the caller's noticing.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", outer.as_raw_fd());
        let outer =
            open(path, flags, Mode::empty()).or_else(|_| open("/dev/tty", flags, Mode::empty()))?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let inner = openpt(flags)?;
        grantpt(&inner)?;
        unlockpt(&inner)?;
        let programs = ioctl_tiocgptpeer(&inner, flags)?;
        tcsetattr(&programs, OptionalActions::Now, &tcgetattr(&outer)?)?;
        ioctl_fionbio(&inner, true)?;
        let terminal =
            Self { outer: Side::new(outer), inner: Side::new(inner), saved: None, begun: false };
        terminal.resize();
        Ok((terminal, programs))
    }

    /// Makes the inner one as large as the outer one. The kernel tells the program.
    pub(super) fn resize(&self) {
        if let Ok(size) = tcgetwinsize(&self.outer.descriptor) {
            let _ = tcsetwinsize(&self.inner.descriptor, size);
        }
    }

    /// Takes the outer one over, unless the caller is in its background.
    pub(super) fn take(&mut self) {
        self.begun = true;
        // Where it is not the caller's own terminal there is no background.
        let group = tcgetpgrp(&self.outer.descriptor);
        if self.saved.is_some() || group.is_ok_and(|group| group != getpgrp()) {
            return;
        }
        let Ok(saved) = tcgetattr(&self.outer.descriptor) else { return };
        let mut raw = saved.clone();
        raw.make_raw();
        if tcsetattr(&self.outer.descriptor, OptionalActions::Now, &raw).is_ok() {
            self.saved = Some(saved);
        }
    }

    /// Leaves the outer one as it was.
    pub(super) fn give_back(&mut self) {
        if let Some(saved) = self.saved.take() {
            let _ = tcsetattr(&self.outer.descriptor, OptionalActions::Now, &saved);
        }
    }

    /// What to wait for.
    pub(super) fn interests(&self) -> Vec<PollFd<'_>> {
        let outer = self.outer.interest(self.saved.is_some() && self.inner.pending.is_empty());
        let inner = self.inner.interest(self.begun && self.outer.pending.is_empty());
        outer.into_iter().chain(inner).collect()
    }

    /// Carries what is there, both ways. Fails once, when the outer terminal is gone.
    pub(super) fn relay(&mut self) -> io::Result<()> {
        // What only the outer one's owner may read is left alone in its background.
        if self.saved.is_some() && self.inner.pending.is_empty() {
            self.outer.read_into(&mut self.inner.pending);
        }
        if self.begun && self.outer.pending.is_empty() {
            self.inner.read_into(&mut self.outer.pending);
        }
        self.inner.flush();
        let was_open = self.outer.open;
        self.outer.flush();
        self.outer.notice_hang_up();
        if was_open && !self.outer.open { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Carries the last of the output and gives the outer one back.
    pub(super) fn finish(&mut self) {
        let mut left = MOST_AT_END;
        self.flush_outer();
        while self.inner.open && left > 0 {
            let mut polled = [PollFd::new(&self.inner.descriptor, PollFlags::IN)];
            if !matches!(poll(&mut polled, Some(&LAST)), Ok(1..)) {
                break;
            }
            self.inner.read_into(&mut self.outer.pending);
            left = left.saturating_sub(self.outer.pending.len());
            self.flush_outer();
        }
        self.give_back();
    }

    /// Writes to the outer one all that waits, as long as it takes some.
    fn flush_outer(&mut self) {
        while self.outer.open && !self.outer.pending.is_empty() {
            let mut polled = [PollFd::new(&self.outer.descriptor, PollFlags::OUT)];
            let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
            if !matches!(poll(&mut polled, Some(&patience)), Ok(1..)) {
                return;
            }
            self.outer.flush();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Side {
    fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, pending: Vec::new(), open: true }
    }

    fn interest(&self, reading: bool) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reading);
        flags.set(PollFlags::OUT, !self.pending.is_empty());
        // Without a flag a poll would still return at once for a terminal that is gone.
        let wanted = self.open && !flags.is_empty();
        wanted.then(|| PollFd::from_borrowed_fd(self.descriptor.as_fd(), flags))
    }

    /// Reads what is there without waiting.
    fn read_into(&mut self, buffer: &mut Vec<u8>) {
        let mut chunk = [0; CHUNK];
        match read(&self.descriptor, &mut chunk) {
            Ok(length @ 1..) => buffer.extend_from_slice(&chunk[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The program closed its end, or the caller's terminal is gone.
            Ok(_) | Err(_) => self.open = false,
        }
    }

    /// Writes what it takes without waiting.
    fn flush(&mut self) {
        if !self.open {
            self.pending.clear();
        }
        if self.pending.is_empty() {
            return;
        }
        match write(&self.descriptor, &self.pending) {
            Ok(length) => drop(self.pending.drain(..length)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.open = false;
                self.pending.clear();
            }
        }
    }

    fn notice_hang_up(&mut self) {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok()
            && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
        {
            self.open = false;
        }
    }
}
