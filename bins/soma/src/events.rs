//! `soma events`: what happened to sandboxes, also to those that are gone.

pub(crate) mod words;

use std::path::Path;
use std::time::Duration;

use api_v1::events::{EventList, Following, Happening, Query};
use clap::Args;
use client::{Client, Told};
use domain::Timestamp;

use crate::failure::{Failure, SOMA_FAILED, refused};
use crate::output::{self, table};
use crate::{daemon, moment, ps};

/// How many events are asked for at once.
const PAGE: u64 = 1000;

/// What is typed after `soma events`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma events
  soma events my-box --limit 20
  soma events --since 2h --json
  soma events --follow

Every event has a number, which `--json` shows. The events of a sandbox outlive it: its whole id
finds them. Up to 64 MiB of them are kept; beyond that the oldest are dropped.

Exit codes: 0 also when there is none; 1 when the sandbox is not there; 2 when this line makes no
sense; 125 when Soma failed.")]
pub(crate) struct EventsArguments {
    /// Only those of this sandbox: its id, its name, or the beginning of either. The whole id also
    /// works for one that is gone.
    #[arg(value_name = "SANDBOX")]
    which: Option<String>,
    /// Go on with what happens from now on.
    #[arg(long, short)]
    follow: bool,
    /// Only those after this: a length of time such as 30m or 2h, a moment such as
    /// 2026-01-31T12:00:00Z, or the number of an event.
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    since: Option<Since>,
    /// The newest so many.
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    limit: u64,
    /// Write one JSON document; with `--follow`, one to a line.
    #[arg(long)]
    json: bool,
}

/// From when on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Since {
    Number(u64),
    Moment(Timestamp),
    Ago(Duration),
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(number) = text.parse() {
        return Ok(Since::Number(number));
    }
    if let Some(moment) = Timestamp::parse(text) {
        return Ok(Since::Moment(moment));
    }
    domain::parse_duration(text).map(Since::Ago).map_err(|_| {
        format!("`{text}` is no length of time such as 30m, no moment and no number of an event")
    })
}

/// Shows them.
pub(crate) fn run(home: &Path, arguments: &EventsArguments) -> Result<u8, Failure> {
    daemon::ask(home, async |client| {
        let found = find(&client, arguments).await?;
        if !arguments.follow {
            return show(&found.items, arguments.json);
        }
        found.items.iter().try_for_each(|event| line(event, arguments.json))?;
        follow(&client, arguments, found.newest).await
    })
}

/// The newest events that are asked for, the newest last.
async fn find(client: &Client, arguments: &EventsArguments) -> Result<EventList, Failure> {
    let (since, from) = match &arguments.since {
        None => (None, None),
        Some(Since::Number(number)) => (Some(*number), None),
        Some(Since::Moment(moment)) => (None, Some(*moment)),
        Some(Since::Ago(time)) => {
            let milliseconds = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            let now = moment::now().saturating_mul(1000);
            (None, Some(Timestamp(now.saturating_sub(milliseconds).max(0))))
        }
    };
    let mut query = Query {
        sandbox: arguments.which.clone(),
        since,
        from: from.map(|from| from.to_string()),
        limit: Some(arguments.limit.clamp(1, PAGE)),
        ..Query::default()
    };
    let mut found = client.events(&query).await.map_err(refused)?;
    query.cursor = found.next_cursor.take();
    while query.cursor.is_some() && (found.items.len() as u64) < arguments.limit {
        query.limit = Some((arguments.limit - found.items.len() as u64).min(PAGE));
        let page = client.events(&query).await.map_err(refused)?;
        found.items.extend(page.items);
        query.cursor = page.next_cursor;
    }
    found.items.truncate(usize::try_from(arguments.limit).unwrap_or(usize::MAX));
    found.items.reverse();
    Ok(found)
}

fn show(events: &[Happening], json: bool) -> Result<u8, Failure> {
    if json {
        return output::json(&events);
    }
    if events.is_empty() {
        output::talk("nothing is written down\n");
        return Ok(0);
    }
    let rows = events.iter().map(|event| row(event).to_vec()).collect();
    output::words(&table::table(&["TIME", "SANDBOX", "WHO", "WHAT", "RESULT"], rows, &[]))
}

async fn follow(client: &Client, arguments: &EventsArguments, after: u64) -> Result<u8, Failure> {
    let following = Following { sandbox: arguments.which.clone(), since: Some(after) };
    let mut events = client.follow_events(&following).await.map_err(refused)?;
    let mut last = after;
    while let Some(told) = events.next().await? {
        match told {
            Told::Event(event) => {
                last = event.sequence;
                line(&event, arguments.json)?;
            }
            Told::Missed { from, to } => {
                last = to;
                output::talk(&format!("soma: events {from} to {to} are no longer kept\n"));
            }
        }
    }
    Err(Failure::new(SOMA_FAILED, "the daemon ended")
        .hint(format!("`--since {last}` goes on where this ends")))
}

/// Writes one event as a line, whose columns are wide enough for what is usual.
fn line(event: &Happening, json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string(event).map_err(|error| Failure::own(&error))?
    } else {
        let [time, sandbox, who, what, result] = row(event).map(|cell| output::one_line(&cell));
        format!("{time}  {sandbox}  {who:<12}  {what:<16}  {result}").trim_end().to_owned()
    };
    output::words(&format!("{text}\n")).map(drop)
}

fn row(event: &Happening) -> [String; 5] {
    let result = match (&event.reason, event.result) {
        (Some(reason), api_v1::events::EventResult::Failed) => format!("failed: {reason}"),
        (Some(reason), _) => format!("ok: {reason}"),
        (None, api_v1::events::EventResult::Failed) => "failed".to_owned(),
        (None, _) => "ok".to_owned(),
    };
    [event.at.clone(), ps::short(&event.sandbox), event.actor.clone(), words::of(event), result]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_a_moment_and_a_number_are_told_apart() {
        assert_eq!(parse_since("17"), Ok(Since::Number(17)));
        assert_eq!(parse_since("30m"), Ok(Since::Ago(Duration::from_mins(30))));
        assert_eq!(parse_since("1970-01-01T00:00:01Z"), Ok(Since::Moment(Timestamp(1000))));
        assert!(parse_since("yesterday").is_err());
    }
}
