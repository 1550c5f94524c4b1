//! A command while it runs: its output, its input, and Ctrl-C.

use std::pin::Pin;
use std::time::Duration;

use guest_proto::client::{Ended, Event, Running};
use guest_proto::process::Signal;
use guest_proto::{GuestClient, GuestError};
use tokio::time::Instant;

use super::input::Input;
use super::interrupts::{Interrupt, Interrupts};
use crate::output::{Broken, Console, Stream};

/// How long a command has to end after Ctrl-C before its sandbox is destroyed.
const COURTESY: Duration = Duration::from_secs(2);

/// How a guest begins what it writes in the place of a program that could not be executed, for
/// clients that know exit codes only. It is held back until the next event says which it was.
const GUESTS_WORDS: &[u8] = b"soma: ";

/// What became of a command.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// Somebody at the keyboard had enough.
    Interrupted(Interrupt),
    /// Nobody takes its output any more.
    Broken(Broken),
    /// The guest could not start it, ended it, or went away.
    Guest(GuestError),
}

impl From<GuestError> for Outcome {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

impl From<Broken> for Outcome {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Follows a command to its end.
///
/// The first Ctrl-C is passed on to the command, which may tidy up; a second one, or its taking
/// too long, ends it all.
pub(super) async fn follow(
    guest: &GuestClient,
    mut running: Running,
    console: &Console,
    input: Input,
    interrupts: &mut Interrupts,
) -> Outcome {
    let pid = tokio::select! {
        biased;
        interrupt = interrupts.next() => return Outcome::Interrupted(interrupt),
        event = running.next() => match event {
            Ok(Some(Event::Started { pid })) => pid,
            Ok(_) => return no_start(),
            Err(error) => return Outcome::Guest(error),
        },
    };
    let ending = pass_output(&mut running, console);
    let feeding = input.feed(guest, pid);
    tokio::pin!(ending, feeding);
    let mut asking: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(std::future::pending());
    let (mut fed, mut asked) = (false, false);
    loop {
        tokio::select! {
            outcome = &mut ending => return outcome,
            () = &mut feeding, if !fed => fed = true,
            () = &mut asking => return Outcome::Interrupted(Interrupt::CtrlC),
            interrupt = interrupts.next() => match interrupt {
                Interrupt::CtrlC if !asked => {
                    asked = true;
                    asking = Box::pin(ask_to_end(guest, pid));
                }
                interrupt => return Outcome::Interrupted(interrupt),
            },
        }
    }
}

/// Passes Ctrl-C on, and returns when the command had its time.
async fn ask_to_end(guest: &GuestClient, pid: u32) {
    let patience = Instant::now() + COURTESY;
    // A guest that does not answer is treated like a command that does not end.
    let _ = tokio::time::timeout_at(patience, guest.signal(pid, Signal::SIGNAL_SIGINT)).await;
    tokio::time::sleep_until(patience).await;
}

async fn pass_output(running: &mut Running, console: &Console) -> Outcome {
    match pass_all(running, console).await {
        Ok(ended) => Outcome::Ended(ended),
        Err(outcome) => outcome,
    }
}

async fn pass_all(running: &mut Running, console: &Console) -> Result<Ended, Outcome> {
    let mut held = None;
    let mut first = true;
    loop {
        let event = running.next().await?;
        match &event {
            Some(Event::Stderr(bytes)) if first && bytes.starts_with(GUESTS_WORDS) => {
                held = Some(bytes.clone());
                first = false;
                continue;
            }
            // Not started at all: our own message says more than the guest's.
            Some(Event::Ended(ended)) if ended.exec_errno.is_some() => held = None,
            _ => {}
        }
        if let Some(bytes) = held.take() {
            console.write(Stream::Stderr, bytes).await?;
        }
        first = false;
        match event {
            Some(Event::Stdout(bytes) | Event::Terminal(bytes)) => {
                console.write(Stream::Stdout, bytes).await?;
            }
            Some(Event::Stderr(bytes)) => console.write(Stream::Stderr, bytes).await?,
            Some(Event::Ended(ended)) => return Ok(ended),
            Some(Event::Started { .. } | Event::Dropped { .. }) => {}
            None => return Err(no_start()),
        }
    }
}

fn no_start() -> Outcome {
    let message = "it does not say that the command started".to_owned();
    Outcome::Guest(GuestError::Unavailable { message })
}
