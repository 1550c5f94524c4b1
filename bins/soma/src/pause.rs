//! `soma pause`: sandboxes that stand still until somebody needs them.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use client::Client;
use domain::parse_duration;

use crate::failure::Failure;
use crate::{output, several};

/// What is typed after `soma pause`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma pause my-box
  soma pause --grace 0 x7k2

Its processes are frozen at once, and put on the disk after the grace, which frees their memory and
outlives a restart of the host (with CRIU 4.2 or newer; otherwise they stay frozen, and it is said
why). Whoever needs it has it go on where it was, and so does `soma resume`.

Exit codes: 0 when it is done with all; 1 when one was refused; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct PauseArguments {
    /// Sandboxes: ids, names, or the beginning of either.
    #[arg(value_name = "SANDBOX", required = true)]
    which: Vec<String>,
    /// How long it stays in memory: `30s`, `5m`, or `0` for not at all.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
}

/// Does it with each of them.
pub(crate) fn run(home: &Path, arguments: &PauseArguments) -> Result<u8, Failure> {
    let grace = arguments.grace.map(|grace| grace.as_secs());
    several::each(home, &arguments.which, &async |client: &Client, which: &str| {
        let sandbox = client.pause(which, grace).await?;
        if let Some(reason) = sandbox.reason {
            output::talk(&format!("{which}: {reason}\n"));
        }
        Ok(true)
    })
}
