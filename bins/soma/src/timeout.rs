//! `soma timeout`: how long a sandbox has from now on.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, refused};
use crate::{daemon, moment, output};

/// What is typed after `soma timeout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma timeout my-box 2h
  soma timeout x7k2 30s

The time counts from now, and may also be shorter than what was left.

Exit codes: 0 when it is set; 1 when it was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct TimeoutArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// How long it has, such as 30m or 2h.
    #[arg(value_name = "TIME", value_parser = domain::parse_duration)]
    time: Duration,
    /// Write all about the sandbox as JSON.
    #[arg(long)]
    json: bool,
}

/// Sets it.
pub(crate) fn run(home: &Path, arguments: &TimeoutArguments) -> Result<u8, Failure> {
    let seconds = moment::whole_seconds(arguments.time);
    let sandbox = daemon::ask(home, async |client| {
        client.set_timeout(&arguments.which, seconds).await.map_err(refused)
    })?;
    if arguments.json { output::json(&sandbox) } else { Ok(0) }
}
