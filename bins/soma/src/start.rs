//! `soma start`: sandboxes that ended, run again.

use std::path::Path;

use clap::Args;
use client::Client;

use crate::failure::Failure;
use crate::several;

/// What is typed after `soma start`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma start my-box
  soma start $(soma ps -q --state stopped)

Its files are what they were; nothing that ran in it before is started. Its time begins anew. One
that runs is left alone.

Exit codes: 0 when it is done with all; 1 when one was refused; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct StartArguments {
    /// Sandboxes: ids, names, or the beginning of either.
    #[arg(value_name = "SANDBOX", required = true)]
    which: Vec<String>,
}

/// Does it with each of them.
pub(crate) fn run(home: &Path, arguments: &StartArguments) -> Result<u8, Failure> {
    several::each(home, &arguments.which, &async |client: &Client, which: &str| {
        client.start(which).await.map(|_| true)
    })
}
