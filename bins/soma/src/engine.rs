//! `soma engine`: the privileged program that makes sandboxes.
//!
//! `soma run` starts it when none answers; typed by hand it stays in the foreground.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use provider_native::Home;
use provider_native::engine::{self, Options};

use crate::failure::Failure;

/// The guest, as `build.rs` built it.
static GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));

/// How long an engine that nobody typed stays without work.
const IDLE: Duration = Duration::from_mins(10);

/// What is typed after `soma engine`.
#[derive(Debug, Args)]
pub(crate) struct EngineArguments {
    /// How many sandboxes to keep ready for whoever asks next.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    prepared: usize,
    /// Leave the terminal, log to the home, and end when there is nothing to do for a while.
    #[arg(long)]
    detach: bool,
    /// How long to stay with nothing to do, such as 10m [default: 10m when detached, else for ever].
    #[arg(long, value_name = "TIME", value_parser = domain::parse_duration)]
    idle: Option<Duration>,
}

/// Serves until it is told to leave or has nothing to do.
pub(crate) fn run(home: &Path, arguments: &EngineArguments) -> Result<u8, Failure> {
    engine::run(Options {
        home: Home::at(home),
        guest: GUEST,
        prepared: arguments.prepared,
        detach: arguments.detach,
        idle: arguments.idle.or(arguments.detach.then_some(IDLE)),
    })
    .map(|()| 0)
    .map_err(|error| Failure::own(&error))
}
