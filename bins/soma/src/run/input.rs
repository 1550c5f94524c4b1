//! Standard input on its way to a command.
//!
//! One piece at a time is handed over, and no further than that is read: what the command does
//! not take stays with whoever writes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use guest_proto::GuestClient;
use rustix::fs::FileType;
use tokio::sync::mpsc;

use crate::session::input::read_in_thread;

/// What is read at once.
const PIECE: usize = 64 << 10;

/// Where a command's input comes from.
#[derive(Debug)]
pub(crate) struct Input {
    source: Option<OwnedFd>,
}

impl Input {
    /// This program's own standard input.
    pub(crate) fn standard() -> Self {
        let stdin = std::io::stdin();
        let source = if is_worth_reading(stdin.as_fd()) {
            stdin.as_fd().try_clone_to_owned().ok()
        } else {
            None
        };
        Self { source }
    }

    /// No input at all.
    pub(crate) fn none() -> Self {
        Self { source: None }
    }

    /// Some other source; `None` is empty.
    #[cfg(test)]
    pub(crate) fn from(source: Option<OwnedFd>) -> Self {
        Self { source }
    }

    /// Whether there may be something to read. A command whose input is empty gets none at all.
    pub(crate) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Feeds a process until there is no more, or the process takes no more.
    pub(crate) async fn feed(self, guest: &GuestClient, pid: u32) {
        let Some(source) = self.source else { return };
        let (sender, mut pieces) = mpsc::channel(1);
        let take = move |piece: &[u8]| sender.blocking_send(piece.to_vec()).is_ok();
        if read_in_thread(source, PIECE, take).is_some() {
            while let Some(piece) = pieces.recv().await {
                // A process that ended or closed its input is no failure: its exit code says
                // what it made of that.
                if guest.send_input(pid, piece).await.is_err() {
                    return;
                }
            }
        }
        let _ = guest.close_stdin(pid).await;
    }
}

/// `/dev/null` is empty, and reading a terminal from the background would stop this program.
fn is_worth_reading(stdin: BorrowedFd<'_>) -> bool {
    let null = rustix::fs::makedev(1, 3);
    let is_null = rustix::fs::fstat(stdin).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == null
    });
    let in_background = rustix::termios::isatty(stdin)
        && rustix::termios::tcgetpgrp(stdin).is_ok_and(|front| front != rustix::process::getpgrp());
    !is_null && !in_background
}
