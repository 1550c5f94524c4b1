//! The caller's terminal, lent to a program in a sandbox and given back as it was.
//!
//! While it is lent, it hands every byte through: the keyboard makes no signals, nothing is echoed
//! or translated. It is given back exactly once, by whoever comes first: the end of [`Terminal`]
//! in all its forms, or a panic anywhere in the program, before that is said.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use guest_proto::client::TerminalSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::modes::Modes;

/// What stands for a size that a terminal does not know.
const USUAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// How long a terminal that takes nothing is waited for before it is left in its modes.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The caller's terminal while it is lent. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Terminal {
    lent: Arc<Mutex<Option<Lent>>>,
}

#[derive(Debug)]
struct Lent {
    input: OwnedFd,
    output: OwnedFd,
    before: Termios,
    modes: Modes,
}

impl Terminal {
    /// Borrows the terminal that `input` is. What is shown goes to `output`.
    pub(super) fn borrow(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let before = tcgetattr(&input)?;
        let lent = Lent { input, output, before, modes: Modes::default() };
        lent.hand_through()?;
        let lent = Arc::new(Mutex::new(Some(lent)));
        let in_panic = Arc::clone(&lent);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Whoever panics in the middle of using it gives it back by dropping it.
            if let Ok(mut lent) = in_panic.try_lock() {
                give_back(&mut lent);
            }
            usual(panic);
        }));
        Ok(Self { lent })
    }

    /// Looks at what is shown, for the modes that it switches on.
    pub(super) fn see(&self, bytes: &[u8]) {
        self.with(|lent| lent.modes.see(bytes));
    }

    /// The size now.
    pub(super) fn size(&self) -> TerminalSize {
        self.with(|lent| size_of(lent.input.as_fd())).unwrap_or(USUAL)
    }

    /// Hands through again, after this program was stopped and somebody else had the terminal.
    pub(super) fn resume(&self) {
        // If it cannot be, the terminal is gone, and reading says so.
        self.with(|lent| lent.hand_through().ok());
    }

    fn with<T>(&self, act: impl FnOnce(&mut Lent) -> T) -> Option<T> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(act)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back(&mut self.lent.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn give_back(lent: &mut Option<Lent>) {
    if let Some(lent) = lent.take() {
        lent.give_back();
    }
}

impl Lent {
    fn hand_through(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        // What was typed already is not lost: the shell inside gets it.
        Ok(tcsetattr(&self.input, OptionalActions::Drain, &raw)?)
    }

    fn give_back(&self) {
        let undo = self.modes.undo();
        if !undo.is_empty() {
            // A terminal that somebody stopped takes nothing, and is not worth waiting for.
            let mut ready = [PollFd::new(&self.output, PollFlags::OUT)];
            if matches!(poll(&mut ready, Some(&PATIENCE)), Ok(1..)) {
                let _ = rustix::io::write(&self.output, &undo);
            }
            // Reports of the mouse and the like are nothing that the caller typed.
            let _ = tcflush(&self.input, QueueSelector::IFlush);
        }
        // It fails when the terminal is gone, and then there is nothing to give back.
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
    }
}

/// The size of a terminal.
pub(super) fn size_of(terminal: BorrowedFd<'_>) -> TerminalSize {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            TerminalSize { columns: size.ws_col.into(), rows: size.ws_row.into() }
        }
        _ => USUAL,
    }
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::termios::{LocalModes, Winsize, tcsetwinsize};

    use super::*;

    /// A terminal as somebody sits at it, and the side of the one who draws it.
    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let drawn = openpt(flags).unwrap();
        unlockpt(&drawn).unwrap();
        let terminal = ioctl_tiocgptpeer(&drawn, flags).unwrap();
        (terminal, drawn)
    }

    fn borrow(terminal: &OwnedFd) -> Terminal {
        let own = || terminal.try_clone().unwrap();
        Terminal::borrow(own(), own()).unwrap()
    }

    /// Whether keys make signals and lines, as they do for whoever sits at a terminal at rest.
    fn is_at_rest(terminal: &OwnedFd) -> bool {
        let usual = LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHO;
        tcgetattr(terminal).unwrap().local_modes.contains(usual)
    }

    #[test]
    fn a_terminal_is_given_back_as_it_was_with_its_modes_undone() {
        let (terminal, drawn) = pair();
        let borrowed = borrow(&terminal);
        assert!(!is_at_rest(&terminal));
        borrowed.see(b"\x1b[?1049h");
        drop(borrowed);
        assert!(is_at_rest(&terminal));
        let mut seen = [0; 64];
        let length = rustix::io::read(&drawn, &mut seen).unwrap();
        assert_eq!(&seen[..length], b"\x1b[?1049l");
    }

    #[test]
    fn a_panic_anywhere_gives_the_terminal_back() {
        let (terminal, _drawn) = pair();
        let borrowed = borrow(&terminal);
        let panicked = std::thread::spawn(|| panic!("somewhere else")).join();
        assert!(panicked.is_err() && is_at_rest(&terminal));
        drop(borrowed);
    }

    #[test]
    fn a_terminal_that_takes_nothing_is_not_waited_for() {
        let (terminal, _drawn) = pair();
        let borrowed = borrow(&terminal);
        rustix::io::ioctl_fionbio(&terminal, true).unwrap();
        while rustix::io::write(&terminal, &[b'x'; 4096]).is_ok() {}
        rustix::io::ioctl_fionbio(&terminal, false).unwrap();
        borrowed.see(b"\x1b[?25l");
        drop(borrowed);
        assert!(is_at_rest(&terminal));
    }

    #[test]
    fn a_size_that_is_not_known_is_the_usual_one() {
        let (terminal, _drawn) = pair();
        assert_eq!(borrow(&terminal).size(), USUAL);
        let size = Winsize { ws_col: 100, ws_row: 30, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        assert_eq!(borrow(&terminal).size(), TerminalSize { columns: 100, rows: 30 });
    }
}
