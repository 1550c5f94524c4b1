//! `soma snapshot`: sandboxes captured, to be made again.

use std::path::Path;

use api_v1::snapshots::{NewSnapshot, Snapshot};
use clap::{Args, Subcommand};
use client::Client;

use crate::failure::{Failure, refused};
use crate::output::{self, table};
use crate::{daemon, moment, several};

/// What is typed after `soma snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma snapshot create my-box --name before-upgrade
  soma snapshot ls
  soma restore before-upgrade
  soma rollback my-box before-upgrade
  soma snapshot rm before-upgrade

Exit codes: 0; 1 when something was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct SnapshotArguments {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Capture a sandbox, which goes on.
    Create(CreateArguments),
    /// List snapshots.
    Ls(LsArguments),
    /// Remove snapshots that no sandbox was made from.
    Rm(RmArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma snapshot create my-box
  soma snapshot create my-box --name before-upgrade
  soma snapshot create my-box --files

It stands still while its memory is written. Its disk is not copied: it is sealed, and shared with
whatever is made from it. Of a sandbox that is stopped only files are captured.

Exit codes: 0 when it is there; 1 when it was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
struct CreateArguments {
    /// A sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// What to call the snapshot [default: something is made up].
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,
    /// Capture files only, and no processes.
    #[arg(long)]
    files: bool,
    /// Write all about it as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct LsArguments {
    /// Write one JSON document instead of a table.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Write names only, one to a line.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Args)]
struct RmArguments {
    /// Snapshots: names or ids.
    #[arg(value_name = "SNAPSHOT", required = true)]
    which: Vec<String>,
}

/// Does it.
pub(crate) fn run(home: &Path, arguments: &SnapshotArguments) -> Result<u8, Failure> {
    match &arguments.command {
        SnapshotCommand::Create(arguments) => create(home, arguments),
        SnapshotCommand::Ls(arguments) => list(home, arguments),
        SnapshotCommand::Rm(arguments) => {
            several::each(home, &arguments.which, &async |client: &Client, which: &str| {
                client.remove_snapshot(which).await.map(|()| true)
            })
        }
    }
}

fn create(home: &Path, arguments: &CreateArguments) -> Result<u8, Failure> {
    let wanted = NewSnapshot {
        name: arguments.name.clone(),
        memory: arguments.files.then_some(false),
        kill_sandbox_after: None,
    };
    let taken = daemon::ask(home, async |client| {
        client.snapshot(&arguments.which, &wanted).await.map_err(refused)
    })?;
    if arguments.json {
        return output::json(&taken);
    }
    output::words(&format!("{}\n", taken.name))
}

fn list(home: &Path, arguments: &LsArguments) -> Result<u8, Failure> {
    let all = daemon::ask(home, async |client| client.snapshots().await.map_err(refused))?;
    if arguments.json {
        return output::json(&all);
    }
    if arguments.quiet {
        let names = all.iter().flat_map(|one| [one.name.as_str(), "\n"]);
        return output::words(&names.collect::<String>());
    }
    let now = moment::now();
    let rows = all.iter().map(|one| row(one, now)).collect();
    let headings = ["NAME", "AGE", "OF", "HAS", "SIZE", "OVER", "SANDBOXES"];
    output::words(&table::table(&headings, rows, &[]))
}

fn row(one: &Snapshot, now: i64) -> Vec<String> {
    let age = moment::seconds_of(&one.created_at).map(|made| moment::spell(now - made));
    vec![
        one.name.clone(),
        age.unwrap_or_default(),
        one.sandbox_id.clone(),
        if one.has_memory { "memory" } else { "files" }.to_owned(),
        format!("{} MiB", one.bytes >> 20),
        one.layers.len().to_string(),
        one.sandboxes.len().to_string(),
    ]
}
