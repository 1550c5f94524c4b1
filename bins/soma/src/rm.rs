//! `soma rm`: the end of sandboxes, with all that is in them.

use std::path::Path;

use clap::Args;
use client::Client;

use crate::failure::Failure;
use crate::several;

/// What is typed after `soma rm`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma rm my-box
  soma rm x7k2 p484 my-box
  soma rm $(soma ps -aq)

It says the name of each that is gone, as it was typed, and goes on after one that could not be
removed.

Exit codes: 0 when all are gone; 1 when one could not be removed; 2 when this line makes no sense;
125 when Soma failed.")]
pub(crate) struct RmArguments {
    /// Sandboxes: ids, names, or the beginning of either.
    #[arg(value_name = "SANDBOX", required = true)]
    which: Vec<String>,
    /// One that is not there is no failure.
    #[arg(long, short)]
    force: bool,
}

/// Removes them, one after the other.
pub(crate) fn run(home: &Path, arguments: &RmArguments) -> Result<u8, Failure> {
    several::each(home, &arguments.which, &async |client: &Client, which: &str| match client
        .delete(which)
        .await
    {
        Err(error) if arguments.force && error.status() == Some(NOT_FOUND) => Ok(false),
        deleted => deleted.map(|()| true),
    })
}

const NOT_FOUND: http::StatusCode = http::StatusCode::NOT_FOUND;
