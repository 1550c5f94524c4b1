//! A command while it runs: its output, its input, and Ctrl-C.

use std::pin::Pin;
use std::time::Duration;

use guest_proto::GuestClient;
use guest_proto::process::Signal;
use tokio::time::Instant;

use super::input::Input;
use crate::session::{Interrupt, Live, Outcome, pass_output};

/// How long a command has to end after Ctrl-C before its sandbox is destroyed.
const COURTESY: Duration = Duration::from_secs(2);

/// Follows a command to its end.
///
/// The first Ctrl-C is passed on to the command, which may tidy up; a second one, or its taking
/// too long, ends it all.
pub(crate) async fn follow(live: Live<'_>, input: Input) -> Outcome {
    let Live { guest, pid, mut running, console, interrupts, .. } = live;
    let ending = pass_output(&mut running, console, |_| ());
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
