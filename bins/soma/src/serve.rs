//! `soma serve`: the daemon that owns the sandboxes of a machine.
//!
//! ```text
//! root:           soma serve (starter.rs) ──spawns──► soma serve --inside N (daemon.rs)
//!                 keeps root to start engines          no privileges: HTTP, database, policy
//!                 and hand out connections to them
//!
//! ordinary user:  soma serve (daemon.rs), which starts engines itself
//!
//! --detach:       soma serve --detach (detach.rs) starts one in the background, and returns when
//!                 it answers
//! ```
//!
//! Files of the daemon are in `HOME/daemon`: `soma.sock`, `soma.db`, `api-key`, `secret`, `lock`, and
//! `home-id` once it remembers in a server (`memory.rs`).

mod daemon;
mod detach;
mod engines;
mod key;
mod memory;
mod private;
mod starter;
mod welcome;

use std::os::fd::RawFd;
use std::path::Path;

use clap::Args;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::config::SettingArguments;
use crate::failure::Failure;

/// What is typed after `soma serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Settings come from flags, else from the environment (SOMA_LISTEN and so on), else from
`config.toml` in the home, else they are defaults; `soma config` shows them all.

Examples:
  soma serve
  soma serve --listen 0.0.0.0:7070 --domain sandboxes.example
  soma serve --detach

Sandboxes go on when the daemon ends, and the next one finds them again.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
    /// Start it in the background, unless one runs, and return when it answers.
    #[arg(long)]
    detach: bool,
    /// The connection to whoever starts engines.
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    inside: Option<RawFd>,
    /// Leave the terminal: nobody typed this.
    #[arg(long, hide = true)]
    alone: bool,
}

/// Serves until it is told to end.
pub(crate) fn run(home: &Path, arguments: &ServeArguments) -> Result<u8, Failure> {
    forget_who_started_us(arguments.inside).map_err(|error| Failure::own(&error))?;
    if arguments.detach {
        return detach::run(home);
    }
    if arguments.alone {
        rustix::process::setsid().map_err(|error| Failure::own(&std::io::Error::from(error)))?;
    }
    match arguments.inside {
        Some(descriptor) => daemon::run(home, arguments, Some(descriptor)),
        None if rustix::process::geteuid().is_root() => starter::run(home),
        None => daemon::run(home, arguments, None),
    }
}

/// Signals, limits and files are ours to choose, not those of whoever typed the command. What they
/// left open is closed: a pipe that a daemon holds for them would never end.
fn forget_who_started_us(inside: Option<RawFd>) -> std::io::Result<()> {
    sys_linux::descriptors::close_all_but(inside.as_slice())?;
    sys_linux::process::reset_signals()?;
    // Whoever reads what we say may stop reading.
    sys_linux::process::ignore(Signal::PIPE.as_raw());
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // A user may not take back what a user gave away.
    let _ = rustix::process::setpriority_process(None, 0);
    // As far as the hard limits go. Every sandbox costs a handful of files, every client one.
    for resource in [Resource::As, Resource::Cpu, Resource::Data, Resource::Fsize, Resource::Nofile]
    {
        let limit = getrlimit(resource);
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
    Ok(())
}
