//! `soma stop`: the end of sandboxes whose files are kept.

use std::path::Path;

use clap::Args;
use client::Client;

use crate::failure::Failure;
use crate::several;

/// What is typed after `soma stop`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma stop my-box
  soma stop x7k2 p484

Everything that runs in it ends; its files stay, and `soma start` runs it again. One that ended
already is left alone.

Exit codes: 0 when it is done with all; 1 when one was refused; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct StopArguments {
    /// Sandboxes: ids, names, or the beginning of either.
    #[arg(value_name = "SANDBOX", required = true)]
    which: Vec<String>,
}

/// Does it with each of them.
pub(crate) fn run(home: &Path, arguments: &StopArguments) -> Result<u8, Failure> {
    several::each(home, &arguments.which, &async |client: &Client, which: &str| {
        client.stop(which).await.map(|_| true)
    })
}
