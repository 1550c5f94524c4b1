//! `soma resume`: paused sandboxes, let go on.

use std::path::Path;

use clap::Args;
use client::Client;

use crate::failure::Failure;
use crate::several;

/// What is typed after `soma resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma resume my-box
  soma resume $(soma ps -q --state paused)

It goes on where it was, and its time begins anew. One that runs is left alone. A command such as
`soma exec` in a paused sandbox does the same by itself.

Exit codes: 0 when it is done with all; 1 when one was refused; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct ResumeArguments {
    /// Sandboxes: ids, names, or the beginning of either.
    #[arg(value_name = "SANDBOX", required = true)]
    which: Vec<String>,
}

/// Does it with each of them.
pub(crate) fn run(home: &Path, arguments: &ResumeArguments) -> Result<u8, Failure> {
    several::each(home, &arguments.which, &async |client: &Client, which: &str| {
        client.resume(which).await.map(|_| true)
    })
}
