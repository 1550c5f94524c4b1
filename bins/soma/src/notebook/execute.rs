//! The cells of a notebook, one after the other.

use std::time::Duration;

use guest_proto::code::{EventKind, Failure as CodeFailure, Limits, Status};

use super::document::Document;
use super::outputs::Outputs;
use crate::cells::{Cell, Workplace};
use crate::failure::{FAILED, Failure, refused};
use crate::output::{self, one_line};
use crate::session::{Interrupt, Interrupts};

/// As much as is kept of what one cell says: more than anybody reads, and less than harms.
const KEPT: Limits = Limits {
    stdout: Some(10_000_000),
    stderr: Some(10_000_000),
    result: Some(10_000_000),
    traceback: Some(1_000_000),
};

/// What holds for all cells.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) timeout: Option<Duration>,
    pub(super) allow_errors: bool,
}

/// How a cell ended.
enum Ended {
    /// By itself, or because it was told to.
    With(Status, Option<String>),
    /// Nobody waits for it any more.
    Left(u8),
}

/// Runs all cells and puts their outputs into the notebook, also when not all could run. Returns
/// the exit code.
pub(super) async fn all(
    workplace: &Workplace,
    document: &mut Document,
    rules: &Rules,
    interrupts: &mut Interrupts,
) -> Result<u8, Failure> {
    let mut outputs = Outputs::default();
    let over = each(workplace, document, rules, interrupts, &mut outputs).await;
    let put = outputs.put_into(document).map_err(|error| Failure::own(&error));
    let code = over?;
    put.map(|()| code)
}

async fn each(
    workplace: &Workplace,
    document: &Document,
    rules: &Rules,
    interrupts: &mut Interrupts,
    outputs: &mut Outputs,
) -> Result<u8, Failure> {
    let cells = document.to_run();
    let progress = Progress::new(cells.len());
    for (place, index) in cells.iter().copied().enumerate() {
        let Some(code) = document.code(index) else { continue };
        progress.at(place + 1);
        let cell = Cell {
            code: code.source.clone(),
            timeout: rules.timeout,
            limits: Some(KEPT),
            answers: false,
        };
        let (status, reason) = match one(workplace, cell, index, interrupts, outputs).await? {
            Ended::With(status, reason) => (status, reason),
            Ended::Left(code) => return Ok(code),
        };
        if status == Status::Ok {
            continue;
        }
        if outputs.error(index).is_none() {
            let failure = without_words(status, reason);
            outputs.see(index, EventKind::Error(failure));
        }
        if status == Status::Interrupted {
            return Ok(Interrupt::CtrlC.code());
        }
        if !rules.allow_errors && !code.may_fail() {
            let why = outputs.error(index).map(words).unwrap_or_default();
            output::failure(&Failure::new(FAILED, format!("cell {} failed: {why}", index + 1)));
            return Ok(FAILED);
        }
    }
    Ok(0)
}

/// Runs one cell.
async fn one(
    workplace: &Workplace,
    cell: Cell,
    index: usize,
    interrupts: &mut Interrupts,
    outputs: &mut Outputs,
) -> Result<Ended, Failure> {
    let mut executing = workplace.execute(cell).await.map_err(refused)?;
    outputs.begin(index);
    let mut asked = false;
    loop {
        let event = tokio::select! {
            event = executing.next() => event?,
            interrupt = interrupts.next() => match interrupt {
                // The first one is for the cell, which may tidy up.
                Interrupt::CtrlC if !asked => {
                    asked = true;
                    // Whoever does not take it has a second one.
                    let _ = workplace.interrupt().await;
                    continue;
                }
                interrupt => return Ok(Ended::Left(interrupt.code())),
            },
        };
        match event.map(|event| event.kind) {
            Some(EventKind::End { status, reason }) => return Ok(Ended::With(status, reason)),
            Some(kind) => outputs.see(index, kind),
            None => return Ok(Ended::With(Status::Died, Some("it did not say how".to_owned()))),
        }
    }
}

/// An error for a cell that ended without one of its own.
fn without_words(status: Status, reason: Option<String>) -> CodeFailure {
    let (name, value) = match status {
        Status::Timeout => ("TimeoutError", "its time was over"),
        Status::Killed => ("KernelKilled", "the kernel was killed, and variables are lost"),
        Status::Died => ("KernelDied", "the kernel ended, and variables are lost"),
        Status::Cancelled => ("Cancelled", "it was cancelled before it ran"),
        Status::Interrupted => ("Interrupted", "it was interrupted"),
        _ => ("Error", "it failed"),
    };
    let value = reason.unwrap_or_else(|| value.to_owned());
    CodeFailure { name: name.to_owned(), traceback: format!("{name}: {value}"), value }
}

/// An error in one line.
fn words(failure: &CodeFailure) -> String {
    let text = format!("{}: {}", failure.name, failure.value);
    one_line(&text).chars().take(300).collect()
}

/// How far it is, on one line of a terminal.
struct Progress {
    count: usize,
    is_seen: bool,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self { count, is_seen: rustix::termios::isatty(rustix::stdio::stderr()) }
    }

    fn at(&self, place: usize) {
        if self.is_seen {
            output::talk(&format!("\r\x1b[Kcell {place} of {}", self.count));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_seen {
            output::talk("\r\x1b[K");
        }
    }
}
