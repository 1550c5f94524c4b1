//! `soma shell`: a fresh sandbox with a shell on the caller's terminal, gone with the shell.
//!
//! The story, one file per part:
//!
//! 1. [`arguments`]: what was typed becomes a [`Plan`](crate::session::Plan), with the size and
//!    the kind of the caller's terminal;
//! 2. [`session`]: the sandbox is made, the shell runs in it, the sandbox is destroyed;
//! 3. [`attend`]: keys, screen and size while the shell runs;
//! 4. [`terminal`]: the caller's terminal hands every byte through meanwhile, and is as it was
//!    afterwards, whatever [`modes`] were left on.

mod arguments;
mod attend;
mod keys;
mod modes;
mod terminal;

use std::path::Path;

use crate::failure::Failure;
use crate::session;
pub(crate) use arguments::ShellArguments;
use attend::attend;

/// Runs a shell and returns its exit code.
pub(crate) fn run(home: &Path, arguments: ShellArguments) -> Result<u8, Failure> {
    let stdin = rustix::stdio::stdin();
    if !rustix::termios::isatty(stdin) {
        return Err(Failure::usage("a shell needs a terminal, and standard input is none")
            .hint("`soma run --lang bash -` takes commands from a file or a pipe"));
    }
    let size = terminal::size_of(stdin);
    let plan = arguments.plan(size, |name| std::env::var(name).ok())?;
    session::run(home, plan, async |live| attend(live, size).await)
}
