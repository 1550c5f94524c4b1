//! `soma restore`, `soma fork` and `soma rollback`: sandboxes that are what another was.

use std::path::Path;
use std::time::Duration;

use api_v1::snapshots::{Fork, Restore};
use clap::Args;
use domain::parse_duration;

use crate::failure::{FAILED, Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma restore before-upgrade
  soma restore before-upgrade --name second --timeout 1h

Writes the id of a sandbox that has the files and, where they were captured, the processes of the
snapshot. Its id, its token and its machine id are new.

Exit codes: 0 when it can be used; 1 when it was refused; 2 when this line makes no sense; 125 when
Soma failed.")]
pub(crate) struct RestoreArguments {
    /// A snapshot: its name or its id.
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
    /// What to call the sandbox.
    #[arg(long, short, value_name = "NAME")]
    name: Option<String>,
    /// How long it may run [default: 5m].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Write all about it as JSON.
    #[arg(long)]
    json: bool,
}

/// Makes a sandbox from a snapshot.
pub(crate) fn restore(home: &Path, arguments: &RestoreArguments) -> Result<u8, Failure> {
    let wanted = Restore {
        snapshot_name: arguments.snapshot.clone(),
        name: arguments.name.clone(),
        timeout: arguments.timeout.map(|timeout| timeout.as_secs()),
        ..Restore::default()
    };
    let made = daemon::ask(home, async |client| client.restore(&wanted).await.map_err(refused))?;
    if arguments.json {
        return output::json(&made);
    }
    output::words(&format!("{}\n", made.id))
}

/// What is typed after `soma fork`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma fork my-box
  soma fork my-box --count 10

Writes the ids of copies that go on from where the sandbox is now, with its files, its processes and
what they hold. The sandbox goes on too; none sees another.

Exit codes: 0 when all were made; 1 when one was not; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct ForkArguments {
    /// A sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// How many copies, up to 100.
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 1)]
    count: usize,
    /// How long each may run [default: as long as the sandbox].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Write all about them as JSON.
    #[arg(long)]
    json: bool,
}

/// Copies a sandbox.
pub(crate) fn fork(home: &Path, arguments: &ForkArguments) -> Result<u8, Failure> {
    let timeout = arguments.timeout.map(|timeout| timeout.as_secs());
    let wanted = Fork { count: Some(arguments.count), timeout };
    let forked = daemon::ask(home, async |client| {
        client.fork(&arguments.which, &wanted).await.map_err(refused)
    })?;
    if arguments.json {
        output::json(&forked.items)?;
    } else {
        let ids = forked.items.iter().flat_map(|one| [one.id.as_str(), "\n"]);
        output::words(&ids.collect::<String>())?;
    }
    for error in &forked.errors {
        output::failure(&Failure::new(FAILED, format!("a copy was not made: {error}")));
    }
    Ok(if forked.errors.is_empty() { 0 } else { FAILED })
}

/// What is typed after `soma rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma rollback my-box before-upgrade

The sandbox is what it was in that snapshot of it, with its files and processes. What it wrote and ran
since is gone.

Exit codes: 0 when it is what it was; 1 when it was refused; 2 when this line makes no sense; 125 when
Soma failed.")]
pub(crate) struct RollbackArguments {
    /// A sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// A snapshot of it: its name or its id.
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
}

/// Brings a sandbox back.
pub(crate) fn roll_back(home: &Path, arguments: &RollbackArguments) -> Result<u8, Failure> {
    let back = daemon::ask(home, async |client| {
        client.roll_back(&arguments.which, &arguments.snapshot).await.map_err(refused)
    })?;
    output::words(&format!("{}\n", back.id))
}
