//! A terminal: the pair of ends that the kernel makes, and the guest's side of it.
//!
//! The command gets one end as its input, its output and its controlling terminal. The guest
//! holds the other: what it writes there is typed, what it reads was printed.
//!
//! The guest also keeps the command's end open while the command runs, so that a program that
//! closes all of its own for a while does not look like the end. When the command is over, that
//! is closed; then reading ends with an error as soon as nobody else holds it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

/// What stands for a size that is not given.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// More than any screen has; some programs take memory for every cell.
const LARGEST: Size = Size { columns: 1000, rows: 500 };

/// The group that terminals belong to, by an old agreement.
const GROUP: u32 = 5;

/// How long to wait for word of room before trying all the same.
const AGAIN: Duration = Duration::from_millis(50);

/// The size of a terminal in characters, none of them zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

impl Size {
    /// The size that is asked for, brought into bounds.
    pub(crate) fn bounded(columns: u32, rows: u32) -> Self {
        let bound = |asked: u32, usual: u16, largest: u16| match asked {
            0 => usual,
            asked => u16::try_from(asked).unwrap_or(u16::MAX).min(largest),
        };
        Self {
            columns: bound(columns, USUAL.columns, LARGEST.columns),
            rows: bound(rows, USUAL.rows, LARGEST.rows),
        }
    }
}

impl From<Size> for Winsize {
    fn from(Size { columns, rows }: Size) -> Self {
        Self { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// The guest's side of a terminal. Reading it is the business of whoever opened it.
#[derive(Debug)]
pub(crate) struct Terminal {
    writer: pipe::Sender,
    /// Set when nothing more is to be typed.
    closed: watch::Sender<bool>,
}

/// A terminal that nobody uses yet.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) terminal: Terminal,
    /// Where the guest reads.
    pub(super) reader: pipe::Receiver,
    /// The command's end.
    pub(super) commands: OwnedFd,
}

impl Terminal {
    /// Makes a terminal that belongs to a user.
    pub(super) fn open(size: Size, uid: u32) -> io::Result<Opened> {
        // Not waiting for anything: what lies there is up to whoever is root in the sandbox.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let ours = open("/dev/ptmx", flags, Mode::empty())?;
        unlockpt(&ours)?;
        tcsetwinsize(&ours, size.into())?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let commands = ioctl_tiocgptpeer(&ours, flags)?;
        let owner = Some(Uid::from_raw(uid));
        match fchown(&commands, owner, Some(Gid::from_raw(GROUP))) {
            // There may be no such group here.
            Err(Errno::INVAL | Errno::PERM) => fchown(&commands, owner, None)?,
            other => other?,
        }
        fchmod(&commands, Mode::from_raw_mode(0o620))?;
        // What is typed is text in UTF-8: a key that deletes takes a whole character back.
        let mut modes = tcgetattr(&commands)?;
        modes.input_modes |= InputModes::IUTF8;
        tcsetattr(&commands, OptionalActions::Now, &modes)?;
        // To the runtime it is a pipe: a descriptor to read from and to write to.
        let writer = pipe::Sender::from_owned_fd_unchecked(fcntl_dupfd_cloexec(&ours, 0)?)?;
        let reader = pipe::Receiver::from_owned_fd_unchecked(ours)?;
        let terminal = Self { writer, closed: watch::Sender::new(false) };
        Ok(Opened { terminal, reader, commands })
    }

    /// Types bytes. Waits for room as long as the program does not read; others are not held up,
    /// and what they type may come in between.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut closed = self.closed.subscribe();
        let closed = async { drop(closed.wait_for(|closed| *closed).await) };
        tokio::select! {
            biased;
            () = closed => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the terminal is closed")),
            written = async {
                while !bytes.is_empty() {
                    let written = match self.writer.try_write(bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            match timeout(AGAIN, self.writer.writable()).await {
                                Ok(ready) => ready.map(|()| 0),
                                Err(_) => self.insist(bytes),
                            }
                        }
                        other => other,
                    };
                    bytes = bytes.get(written?..).unwrap_or_default();
                }
                Ok(())
            } => written,
        }
    }

    /// Writes although the kernel has not said that there is room. It does not when a line
    /// that is too long was thrown away unread.
    fn insist(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(&self.writer, bytes) {
            Err(Errno::AGAIN) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Changes the size. The kernel tells the programs in front.
    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        Ok(tcsetwinsize(&self.writer, size.into())?)
    }

    /// Ends all typing, so that everybody lets go of the terminal and it hangs up.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_brought_into_bounds() {
        assert_eq!(Size::bounded(0, 0), USUAL);
        assert_eq!(Size::bounded(1, 1), Size { columns: 1, rows: 1 });
        assert_eq!(Size::bounded(100, 0), Size { columns: 100, rows: 24 });
        assert_eq!(Size::bounded(u32::MAX, 65_536), LARGEST);
    }
}
