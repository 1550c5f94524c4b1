//! `soma ps`: which sandboxes there are.

use std::path::Path;

use api_v1::sandboxes::{Item, Query};
use clap::Args;

use crate::failure::Failure;
use crate::output::{self, table};
use crate::{daemon, moment};

/// So much of an id is shown; it is enough to name one.
pub(crate) const SHORT: usize = 12;

/// What is typed after `soma ps`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is typed or not")]
#[command(after_help = "\
Examples:
  soma ps
  soma ps --all --label project=web
  soma ps --state stopped,error --json
  soma rm $(soma ps -aq)

Exit codes: 0 also when there is none; 2 when this line makes no sense; 125 when Soma failed.")]
pub(crate) struct PsArguments {
    /// Those that ended too, not only those that run.
    #[arg(long, short)]
    all: bool,
    /// Only those in this state, or in one of several with commas between.
    #[arg(long, short, value_name = "STATE", conflicts_with = "all")]
    state: Option<String>,
    /// Only those with this label; can be repeated, and then all have to be there.
    #[arg(long, short, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Write one JSON document instead of a table.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Write ids only, whole and one to a line.
    #[arg(long, short)]
    quiet: bool,
    /// Do not shorten ids.
    #[arg(long)]
    no_trunc: bool,
}

/// Lists them.
pub(crate) fn run(home: &Path, arguments: PsArguments) -> Result<u8, Failure> {
    let state = match (arguments.all, arguments.state) {
        (true, _) => None,
        (false, Some(state)) => Some(state),
        (false, None) => Some("starting,running".to_owned()),
    };
    let query = Query { state, label: arguments.label, ..Query::default() };
    let listed = daemon::ask(home, async |client| Ok(client.list_all(&query).await?))?;
    if arguments.json {
        return output::json(&listed.items);
    }
    if arguments.quiet {
        let ids = listed.items.iter().flat_map(|item| [item.id.as_str(), "\n"]);
        return output::words(&ids.collect::<String>());
    }
    if listed.items.is_empty() {
        let running = if arguments.all { "" } else { " that match; `--all` shows all" };
        output::talk(&format!("there are no sandboxes{running}\n"));
        return Ok(0);
    }
    let now = moment::now();
    let rows = listed.items.iter().map(|item| row(item, now, arguments.no_trunc)).collect();
    let headings = ["ID", "NAME", "STATE", "AGE", "TIMEOUT", "TEMPLATE"];
    output::words(&table::table(&headings, rows, &[(2, table::state)]))
}

fn row(item: &Item, now: i64, whole: bool) -> Vec<String> {
    let runs = matches!(item.state.as_str(), "starting" | "running");
    let age = moment::seconds_of(&item.created_at).map(|made| moment::spell(now - made));
    let left = item.timeout_at.filter(|_| runs).map(|until| moment::spell(until - now));
    vec![
        if whole { item.id.clone() } else { short(&item.id) },
        item.name.clone().unwrap_or_default(),
        item.state.clone(),
        age.unwrap_or_default(),
        left.unwrap_or_else(|| "-".to_owned()),
        item.template_id.clone(),
    ]
}

/// The beginning of an id.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(SHORT).collect()
}
