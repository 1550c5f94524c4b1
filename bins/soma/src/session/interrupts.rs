//! Ctrl-C and its kin.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(test)]
use tokio::sync::mpsc;

/// Somebody wants this to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Ctrl-C.
    CtrlC,
    /// A polite kill.
    Terminate,
    /// The terminal is gone.
    HangUp,
}

impl Interrupt {
    /// The exit code of a program that it ended.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::CtrlC => 128 + 2,
            Self::Terminate => 128 + 15,
            Self::HangUp => 128 + 1,
        }
    }
}

/// Where interrupts come from.
#[derive(Debug)]
pub(crate) enum Interrupts {
    /// The kernel.
    Signals { interrupt: Signal, terminate: Signal, hang_up: Signal },
    /// A test.
    #[cfg(test)]
    Channel(mpsc::Receiver<Interrupt>),
}

impl Interrupts {
    /// From now on these signals no longer end this program by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self::Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancellation-safe.
    pub(crate) async fn next(&mut self) -> Interrupt {
        match self {
            Self::Signals { interrupt, terminate, hang_up } => tokio::select! {
                Some(()) = interrupt.recv() => Interrupt::CtrlC,
                Some(()) = terminate.recv() => Interrupt::Terminate,
                Some(()) = hang_up.recv() => Interrupt::HangUp,
                else => std::future::pending().await,
            },
            #[cfg(test)]
            Self::Channel(receiver) => match receiver.recv().await {
                Some(interrupt) => interrupt,
                None => std::future::pending().await,
            },
        }
    }
}
