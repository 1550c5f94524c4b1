//! `soma shell`: a fresh sandbox with a shell on the caller's terminal, gone with the shell; or a
//! shell in a sandbox that is there, and stays.
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

use guest_proto::client::{StartOptions, TerminalSize};

use crate::daemon;
use crate::failure::Failure;
use crate::output;
use crate::session::{self, Existing, Fresh};
pub(crate) use arguments::ShellArguments;
pub(crate) use attend::attend;

/// Runs a shell and returns its exit code.
pub(crate) fn run(home: &Path, arguments: ShellArguments) -> Result<u8, Failure> {
    let Some(size) = terminal_size() else {
        return Err(Failure::usage("a shell needs a terminal, and standard input is none")
            .hint("`soma run --lang bash -` takes commands from a file or a pipe"));
    };
    let which = arguments.which()?;
    let mut plan = arguments.plan(size, |name| std::env::var(name).ok())?;
    daemon::ask(home, async |client| {
        let attend = async |live: session::Live<'_>| {
            if rustix::termios::isatty(rustix::stdio::stderr()) {
                output::talk(&format!("sandbox {}; leave with exit or Ctrl-D\n", live.id));
            }
            attend(live, size).await
        };
        let Some(which) = which else {
            let fresh = Fresh::new(client, plan.network.take());
            return session::run(fresh, plan, attend).await;
        };
        let (existing, sandbox) = Existing::find(client, &which).await?;
        plan.be_in(&sandbox);
        session::run(existing, plan, attend).await
    })
}

/// The size of the terminal that standard input is, if it is one.
pub(crate) fn terminal_size() -> Option<TerminalSize> {
    let stdin = rustix::stdio::stdin();
    rustix::termios::isatty(stdin).then(|| terminal::size_of(stdin))
}

/// Gives a program a terminal like the caller's.
pub(crate) fn on_a_terminal(start: &mut StartOptions, size: TerminalSize) {
    arguments::on_a_terminal(start, size, |name| std::env::var(name).ok());
}
