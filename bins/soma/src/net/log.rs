//! `soma net log`: what a sandbox tried to reach.

use std::path::Path;

use api_v1::network::{Attempt, Attempts};
use clap::Args;

use crate::failure::{Failure, refused};
use crate::output::{self, table};
use crate::{daemon, failure};

/// How many entries are asked for at once.
const PAGE: u64 = 1000;

/// What is typed after `soma net log`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma net log my-box
  soma net log my-box --refused
  soma net log my-box --follow --json

A connection that was let through is written down when it ends.")]
pub(super) struct LogArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// Go on with what it tries from now on.
    #[arg(long, short)]
    follow: bool,
    /// Only what was refused.
    #[arg(long)]
    refused: bool,
    /// Only what comes after the entry with this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,
    /// Write one JSON document; with `--follow`, one to a line.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(home: &Path, arguments: &LogArguments) -> Result<u8, Failure> {
    daemon::ask(home, async |client| {
        let which = &arguments.which;
        let is_meant = |attempt: &Attempt| !(arguments.refused && attempt.allowed);
        if arguments.follow {
            return follow(&client, arguments, is_meant).await;
        }
        let mut asked =
            Attempts { after: Some(arguments.after), limit: Some(PAGE), ..Attempts::default() };
        let mut found = Vec::new();
        loop {
            let page = client.network_log(which, &asked).await.map_err(refused)?;
            if page.items.is_empty() {
                break;
            }
            asked.after = Some(page.next);
            found.extend(page.items.into_iter().filter(is_meant));
        }
        show(&found, arguments.json)
    })
}

async fn follow(
    client: &client::Client,
    arguments: &LogArguments,
    is_meant: impl Fn(&Attempt) -> bool,
) -> Result<u8, Failure> {
    let followed = client.follow_network_log(&arguments.which, arguments.after).await;
    let mut attempts = followed.map_err(refused)?;
    let mut last = arguments.after;
    while let Some(attempt) = attempts.next().await? {
        last = attempt.sequence;
        if is_meant(&attempt) {
            line(&attempt, arguments.json)?;
        }
    }
    Err(Failure::new(failure::SOMA_FAILED, "the sandbox or the daemon ended")
        .hint(format!("`--after {last}` goes on where this ends")))
}

fn show(attempts: &[Attempt], json: bool) -> Result<u8, Failure> {
    if json {
        return output::json(&attempts);
    }
    if attempts.is_empty() {
        output::talk("nothing is written down\n");
        return Ok(0);
    }
    let rows = attempts.iter().map(|attempt| row(attempt).to_vec()).collect();
    let head = ["TIME", "WHERE", "VIA", "PROCESS", "RESULT", "SENT", "RECEIVED", "RULE"];
    output::words(&table::table(&head, rows, &[]))
}

/// Writes one entry as a line, whose columns are wide enough for what is usual.
fn line(attempt: &Attempt, json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string(attempt).map_err(|error| Failure::own(&error))?
    } else {
        let [time, place, via, process, result, sent, received, rule] =
            row(attempt).map(|cell| output::one_line(&cell));
        format!(
            "{time}  {place:<32}  {via:<4}  {process:<16}  {result:<7}  {sent:>8}  {received:>8}  \
             {rule}"
        )
    };
    output::words(&format!("{text}\n")).map(drop)
}

fn row(attempt: &Attempt) -> [String; 8] {
    let address = attempt.address.as_deref();
    let name = attempt.name.as_deref().or(address).unwrap_or("?");
    let place = if attempt.protocol == "dns" {
        name.to_owned()
    } else {
        format!("{name}:{}", attempt.port)
    };
    let detail = attempt.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    [
        attempt.at.clone(),
        place,
        attempt.protocol.clone(),
        attempt.process.clone().unwrap_or_else(|| "-".to_owned()),
        if attempt.allowed { "allowed" } else { "refused" }.to_owned(),
        attempt.sent.to_string(),
        attempt.received.to_string(),
        format!("{}{detail}", attempt.rule),
    ]
}
