//! What a command writes, on its way to the terminal.

use bytes::Bytes;
use guest_proto::client::{Ended, Event, Running};

use super::{Outcome, no_start};
use crate::output::{Console, Stream};

/// How a guest begins what it writes in the place of a program that could not be executed, for
/// clients that know exit codes only. It is held back until the next event says which it was.
const GUESTS_WORDS: &[u8] = b"soma: ";

/// Passes on what the command writes until it ends. What comes from a terminal is shown to `seen`
/// first.
pub(crate) async fn pass_output(
    running: &mut Running,
    console: &Console,
    seen: impl FnMut(&[u8]),
) -> Outcome {
    match pass_all(running, console, seen).await {
        Ok(ended) => Outcome::Ended(ended),
        Err(outcome) => outcome,
    }
}

async fn pass_all(
    running: &mut Running,
    console: &Console,
    mut seen: impl FnMut(&[u8]),
) -> Result<Ended, Outcome> {
    let mut held: Option<(Stream, Bytes)> = None;
    let mut first = true;
    loop {
        let event = running.next().await?;
        let words_of_guest = matches!(event, Some(Event::Stderr(_) | Event::Terminal(_)));
        let (stream, bytes) = match event {
            Some(Event::Stdout(bytes)) => (Stream::Stdout, bytes),
            Some(Event::Stderr(bytes)) => (Stream::Stderr, bytes),
            Some(Event::Terminal(bytes)) => {
                seen(&bytes);
                (Stream::Stdout, bytes)
            }
            Some(Event::Ended(ended)) => {
                // Not started at all: our own message says more than the guest's.
                if let Some((stream, bytes)) = held.filter(|_| ended.exec_errno.is_none()) {
                    console.write(stream, bytes).await?;
                }
                return Ok(ended);
            }
            Some(Event::Started { .. } | Event::Dropped { .. } | Event::Exited(_)) => continue,
            None => return Err(no_start().into()),
        };
        if let Some((stream, bytes)) = held.take() {
            console.write(stream, bytes).await?;
        }
        if first && words_of_guest && bytes.starts_with(GUESTS_WORDS) {
            held = Some((stream, bytes));
        } else {
            console.write(stream, bytes).await?;
        }
        first = false;
    }
}
