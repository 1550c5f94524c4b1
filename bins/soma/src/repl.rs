//! `soma repl`: cells typed one after the other, in a context that remembers.
//!
//! The story, one file per part:
//!
//! 1. here: what was typed is read, and the history is opened while this is still whoever called;
//! 2. [`cells`](crate::cells): the sandbox and the context;
//! 3. [`conversation`]: a cell is asked for, runs, and is shown, over and over; or [`whole`], when
//!    nobody sits there and standard input is one cell;
//! 4. [`prompt`] asks on the terminal, with [`history`], and goes on while a cell is
//!    [`incomplete`]; [`secret`] asks for what is not to be seen;
//! 5. [`show`] makes words of what happens, and [`image`] pictures, where the terminal can.

mod conversation;
mod history;
mod image;
mod incomplete;
mod prompt;
mod secret;
mod show;
mod whole;

use std::path::Path;

use clap::Args;
use guest_proto::code::Language;

use crate::cells::{CellOptions, Workplace};
use crate::daemon;
use crate::failure::Failure;
use crate::session::Interrupts;
use history::History;

/// What is typed after `soma repl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma repl
  soma repl --lang node
  soma repl my-box
  soma repl my-box --context 3f2a
  echo 'print(6*7)' | soma repl --lang python

Variables stay from cell to cell. Enter runs a cell that is complete; a block ends with an empty
line. Tab completes, Ctrl-C stops a cell and keeps the variables, Ctrl-D leaves. When standard
input is no terminal, all of it is one cell.

Exit codes: 0; 1 when the one cell of standard input failed; 128+n when signal n ended this; 2 when
this line makes no sense; 125 when Soma failed.")]
pub(crate) struct ReplArguments {
    /// A sandbox that is there, by its id, its name or the beginning of either; it stays
    /// [default: a fresh one that is gone afterwards].
    #[arg(value_name = "SANDBOX")]
    which: Option<String>,
    /// The language: python, node, typescript, r or bash [default: python].
    #[arg(long, short, value_name = "LANGUAGE")]
    lang: Option<Language>,
    /// A context of that sandbox to go on in; it stays [default: a new one].
    #[arg(long, value_name = "ID")]
    context: Option<String>,
    #[command(flatten)]
    options: CellOptions,
}

/// Runs cells until there are no more, and returns the exit code.
pub(crate) fn run(home: &Path, arguments: ReplArguments) -> Result<u8, Failure> {
    let wish = arguments.options.wish(arguments.which, arguments.context)?;
    let is_terminal = rustix::termios::isatty(rustix::stdio::stdin());
    let code = if is_terminal { None } else { Some(whole::read()?) };
    let client = daemon::privileged_client(home)?;
    let history = History::open(home);
    daemon::give_up_root()?;
    daemon::block_on(async {
        let mut interrupts = Interrupts::listen().map_err(|error| Failure::own(&error))?;
        let workplace = tokio::select! {
            biased;
            interrupt = interrupts.next() => return Ok(interrupt.code()),
            opened = Workplace::open(client, wish, arguments.lang) => opened?,
        };
        let over = match code {
            Some(code) => whole::run(&workplace, &mut interrupts, code).await,
            None => conversation::hold(&workplace, &mut interrupts, history).await,
        };
        let left = tokio::select! {
            left = workplace.leave() => left,
            _ = interrupts.next() => Ok(()),
        };
        // What happened comes before that something could not be tidied up.
        let code = over?;
        left.map(|()| code)
    })
}
