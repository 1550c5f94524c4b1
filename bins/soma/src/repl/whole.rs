//! Standard input as one cell, when nobody sits there.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};

use guest_proto::code::{EventKind, Limits, Status};

use super::image::Pictures;
use super::show::Show;
use crate::cells::{Cell, Workplace};
use crate::failure::{FAILED, Failure, SOMA_FAILED, refused};
use crate::output::Console;
use crate::session::{Interrupt, Interrupts};

/// The largest cell.
const LARGEST: u64 = 16 << 20;

/// As much as is told of what a cell says: all that it writes, and of values what is usual.
pub(super) const TOLD: Limits =
    Limits { stdout: Some(0), stderr: Some(0), result: None, traceback: None };

/// Reads all of standard input. Nothing is made yet, so Ctrl-C may simply end the program.
pub(super) fn read() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::new(SOMA_FAILED, format!("standard input cannot be read: {error}"))
    })?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failure::usage(format!("the code has more than {} MiB", LARGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("the code is not UTF-8"))
}

/// The standard outputs of this program.
pub(super) fn console() -> Result<Console, Failure> {
    let own = |error: std::io::Error| Failure::own(&error);
    let clone = |descriptor: std::os::fd::BorrowedFd<'_>| -> Result<OwnedFd, Failure> {
        descriptor.try_clone_to_owned().map_err(own)
    };
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    Console::new(clone(stdout.as_fd())?, clone(stderr.as_fd())?).map_err(own)
}

/// Runs it and returns the exit code: 1 when it failed.
pub(super) async fn run(
    workplace: &Workplace,
    interrupts: &mut Interrupts,
    code: String,
) -> Result<u8, Failure> {
    let console = console()?;
    let mut show = Show::new(Pictures::No);
    let cell = Cell { code, limits: Some(TOLD), ..Cell::default() };
    let mut executing = workplace.execute(cell).await.map_err(refused)?;
    let mut asked = false;
    let mut code = FAILED;
    loop {
        let event = tokio::select! {
            event = executing.next() => event?,
            interrupt = interrupts.next() => match interrupt {
                // The first one is for the code, which may tidy up.
                Interrupt::CtrlC if !asked => {
                    asked = true;
                    // Whoever does not take it has a second one.
                    let _ = workplace.interrupt().await;
                    continue;
                }
                interrupt => return Ok(interrupt.code()),
            },
        };
        let Some(event) = event else { break };
        if let EventKind::End { status, .. } = &event.kind {
            code = match status {
                Status::Ok => 0,
                Status::Interrupted => Interrupt::CtrlC.code(),
                _ => FAILED,
            };
        }
        for (stream, bytes) in show.event(event.kind) {
            tokio::select! {
                written = console.write(stream, bytes) => written?,
                interrupt = interrupts.next() => return Ok(interrupt.code()),
            }
        }
    }
    tokio::select! {
        written = console.finish() => written?,
        interrupt = interrupts.next() => return Ok(interrupt.code()),
    }
    Ok(code)
}
