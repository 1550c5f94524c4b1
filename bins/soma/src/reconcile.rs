//! `soma reconcile`: what is there, compared with what the daemon knows.

use std::fmt::Write as _;
use std::path::Path;

use api_v1::life::Reconciled;
use clap::Args;

use crate::failure::{FAILED, Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma reconcile`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma reconcile
  soma reconcile --json

The daemon does this at its start and every 30 seconds. What is found counts: a sandbox that it did
not know is listed, one of which nothing is found is listed as an error, and nothing is removed.

Exit codes: 0 when all is as it should be; 1 when something is damaged or missing; 125 when Soma
failed.")]
pub(crate) struct ReconcileArguments {
    /// Write what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Has the daemon look, and says what it found.
pub(crate) fn run(home: &Path, arguments: &ReconcileArguments) -> Result<u8, Failure> {
    let found = daemon::ask(home, async |client| client.reconcile().await.map_err(refused))?;
    let code = if found.damaged.is_empty() && found.missing.is_empty() { 0 } else { FAILED };
    let written = if arguments.json { output::json(&found) } else { output::words(&say(&found)) };
    written.map(|_| code)
}

fn say(found: &Reconciled) -> String {
    let Reconciled { running, paused, ended, adopted, damaged, missing } = found;
    let paused = if *paused > 0 { format!("{paused} paused, ") } else { String::new() };
    let mut words =
        format!("{running} running, {paused}{ended} ended, {adopted} not known before\n");
    for (what, ids) in [("damaged", damaged), ("missing", missing)] {
        for id in ids {
            let _ = writeln!(words, "{what}: {}", output::one_line(id));
        }
    }
    words
}
