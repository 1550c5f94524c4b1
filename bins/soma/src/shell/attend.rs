//! A shell while it runs: keys, screen, size.
//!
//! Every byte goes through as it is. A key is one frame on a request that stays open, and what
//! comes back is written at once; a terminal that is slow slows down the shell in the end, since
//! little waits on the way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use guest_proto::GuestClient;
use guest_proto::client::TerminalSize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::keys::WayOut;
use super::terminal::Terminal;
use crate::failure::Failure;
use crate::session::input::read_in_thread;
use crate::session::{Interrupt, Live, Outcome, pass_output};

/// What is read from the keyboard at once: as much as a terminal holds.
const PIECE: usize = 4 << 10;

/// Pieces that wait for a shell that does not read. So many key presses are looked at for the way
/// out before it is blocked too.
const WAITING: usize = 256;

/// How long the last of the output may take after somebody had enough.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Lends the caller's terminal to the shell until it ends. `size` is what the shell began with.
pub(crate) async fn attend(live: Live<'_>, size: TerminalSize) -> Result<Outcome, Failure> {
    let own = |error: io::Error| Failure::own(&error);
    let mut sizes = Sizes::listen(size).map_err(own)?;
    let keyboard = io::stdin().as_fd().try_clone_to_owned().map_err(own)?;
    let screen = io::stdout().as_fd().try_clone_to_owned().map_err(own)?;
    let terminal = keyboard
        .try_clone()
        .and_then(|keyboard| Terminal::borrow(keyboard, screen))
        .map_err(own)?;
    let Live { guest, pid, mut running, console, interrupts, .. } = live;
    let (pieces, gone) = listen_to(keyboard);
    let outcome = tokio::select! {
        outcome = pass_output(&mut running, console, |bytes| terminal.see(bytes)) => outcome,
        interrupt = interrupts.next() => Outcome::Interrupted(interrupt),
        _ = gone => Outcome::Interrupted(Interrupt::HangUp),
        never = type_in(guest, pid, pieces) => match never {},
        never = sizes.follow(guest, pid, &terminal) => match never {},
    };
    // All is shown before the terminal is given back, as long as somebody looks.
    let shown = console.flush();
    if matches!(outcome, Outcome::Interrupted(_)) {
        let _ = tokio::time::timeout(LAST_WORDS, shown).await;
    } else {
        tokio::select! {
            () = shown => {}
            interrupt = interrupts.next() => return Ok(Outcome::Interrupted(interrupt)),
        }
    }
    Ok(outcome)
}

/// What is typed, and word of when the keyboard is gone or somebody took the way out.
fn listen_to(keyboard: OwnedFd) -> (mpsc::Receiver<Vec<u8>>, oneshot::Receiver<()>) {
    let (sender, pieces) = mpsc::channel::<Vec<u8>>(WAITING);
    let (keep, gone) = oneshot::channel();
    let mut way_out = WayOut::default();
    read_in_thread(keyboard, PIECE, move |piece| {
        // It is dropped with this closure, when reading ends.
        let _ = &keep;
        !way_out.typed(piece) && sender.blocking_send(piece.to_vec()).is_ok()
    });
    (pieces, gone)
}

/// Types what comes. It never ends: what becomes of the shell is seen elsewhere.
async fn type_in(
    guest: &GuestClient,
    pid: u32,
    mut pieces: mpsc::Receiver<Vec<u8>>,
) -> std::convert::Infallible {
    let mut input = guest.terminal_input(pid);
    while let Some(piece) = pieces.recv().await {
        // A shell that takes no more is about to end.
        if input.send(&piece).await.is_err() {
            break;
        }
    }
    std::future::pending().await
}

/// Word of the caller's terminal from the kernel.
struct Sizes {
    changed: Signal,
    continued: Signal,
    told: TerminalSize,
}

impl Sizes {
    fn listen(told: TerminalSize) -> io::Result<Self> {
        let changed = signal(SignalKind::window_change())?;
        let continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        Ok(Self { changed, continued, told })
    }

    /// Passes on every change of size. It never ends.
    async fn follow(
        &mut self,
        guest: &GuestClient,
        pid: u32,
        terminal: &Terminal,
    ) -> std::convert::Infallible {
        loop {
            // First of all: it may have changed while the sandbox was made.
            let size = terminal.size();
            // A shell that has just ended has no size, and the next change tells the size anew.
            if size != self.told && guest.resize(pid, size).await.is_ok() {
                self.told = size;
            }
            tokio::select! {
                _ = self.changed.recv() => {}
                _ = self.continued.recv() => terminal.resume(),
            }
        }
    }
}
