//! `soma stats`: what sandboxes use.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use api_v1::sandboxes::Query;
use clap::Args;
use client::Client;
use guest_proto::client::Metrics;
use serde::Serialize;

use crate::failure::{Failure, refused};
use crate::output::{self, table};
use crate::ps::short;
use crate::{daemon, moment};

/// How long processor time is measured, and how often it is shown anew.
const INTERVAL: Duration = Duration::from_millis(500);
const WATCH: Duration = Duration::from_secs(2);

/// What is typed after `soma stats`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma stats
  soma stats my-box --watch
  soma stats --json

CPU is in hundredths of one processor, measured over half a second.

Exit codes: 0; 1 when a sandbox is not there or does not run; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct StatsArguments {
    /// Sandboxes: ids, names, or the beginning of either [default: all that run].
    #[arg(value_name = "SANDBOX")]
    which: Vec<String>,
    /// Show it anew every two seconds, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Write one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// A sandbox that is looked at.
struct Watched {
    id: String,
    name: Option<String>,
    /// Since when it runs, in seconds since 1970. Its guest may be older: it waited for an owner.
    since: Option<i64>,
}

/// One sandbox's figures.
#[derive(Serialize)]
struct Shown {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Hundredths of one processor.
    cpu_percent: Option<f64>,
    /// How long the sandbox runs.
    running_seconds: Option<i64>,
    metrics: Metrics,
}

/// Shows them.
pub(crate) fn run(home: &Path, arguments: &StatsArguments) -> Result<u8, Failure> {
    daemon::ask(home, async |client| {
        let mut before = BTreeMap::new();
        if !arguments.watch {
            measure(&client, &find(&client, &arguments.which).await?, &mut before).await?;
            tokio::time::sleep(INTERVAL).await;
        }
        loop {
            let watched = find(&client, &arguments.which).await?;
            let shown = measure(&client, &watched, &mut before).await?;
            if arguments.json {
                return output::json(&shown);
            }
            if shown.is_empty() && !arguments.watch {
                output::talk("no sandbox runs\n");
                return Ok(0);
            }
            let clear = if arguments.watch && is_terminal() { "\x1b[H\x1b[2J" } else { "" };
            output::words(&format!("{clear}{}", as_table(&shown)))?;
            if !arguments.watch {
                return Ok(0);
            }
            tokio::time::sleep(WATCH).await;
        }
    })
}

fn is_terminal() -> bool {
    rustix::termios::isatty(rustix::stdio::stdout())
}

async fn find(client: &Client, which: &[String]) -> Result<Vec<Watched>, Failure> {
    if which.is_empty() {
        let query = Query { state: Some("running".to_owned()), ..Query::default() };
        let items = client.list_all(&query).await?.items;
        return Ok(items
            .into_iter()
            .map(|item| Watched {
                id: item.id,
                name: item.name,
                since: moment::seconds_of(&item.state_change_time),
            })
            .collect());
    }
    let mut found = Vec::new();
    for which in which {
        let sandbox = client.get(which).await.map_err(refused)?;
        let since = moment::seconds_of(&sandbox.state_change_time);
        found.push(Watched { id: sandbox.id, name: sandbox.name, since });
    }
    Ok(found)
}

/// Processor time used, in microseconds, and when that was.
type Used = (u64, tokio::time::Instant);

async fn measure(
    client: &Client,
    watched: &[Watched],
    before: &mut BTreeMap<String, Used>,
) -> Result<Vec<Shown>, Failure> {
    let mut shown = Vec::new();
    for Watched { id, name, since } in watched {
        let metrics = match client.metrics(id).await {
            Ok(metrics) => metrics,
            // One among many may have ended since it was listed.
            Err(error) if watched.len() > 1 && error.status().is_some() => continue,
            Err(error) => return Err(refused(error)),
        };
        let now = tokio::time::Instant::now();
        let used = metrics.cpu.as_ref().map(|cpu| cpu.used_micros);
        let earlier = used.and_then(|used| before.insert(id.clone(), (used, now)));
        let cpu_percent = used.zip(earlier).map(|(used, (then, at))| percent(used, then, now - at));
        let running_seconds = since.map(|since| (moment::now() - since).max(0));
        let (id, name) = (id.clone(), name.clone());
        shown.push(Shown { id, name, cpu_percent, running_seconds, metrics });
    }
    Ok(shown)
}

#[expect(clippy::cast_precision_loss, reason = "nobody sees the last digits")]
fn percent(used: u64, before: u64, time: Duration) -> f64 {
    let share = used.saturating_sub(before) as f64 / time.as_micros().max(1) as f64;
    (share * 1000.0).round() / 10.0
}

fn as_table(shown: &[Shown]) -> String {
    let rows = shown.iter().map(row).collect();
    table::table(&["ID", "NAME", "CPU", "MEMORY", "DISK", "PROCESSES", "UP"], rows, &[])
}

fn row(shown: &Shown) -> Vec<String> {
    let Shown { id, name, cpu_percent, running_seconds, metrics } = shown;
    let (memory, disk) = (&metrics.memory, &metrics.disk);
    let used = memory.as_ref().map_or(metrics.mem_used, |memory| memory.used);
    let limit = memory.as_ref().map_or(metrics.mem_total, |memory| memory.limit);
    let on_disk = disk
        .as_ref()
        .map_or((metrics.disk_used, metrics.disk_total), |disk| (disk.used, disk.total));
    let processes = metrics.processes.as_ref().map(|processes| match processes.limit {
        Some(limit) => format!("{} / {limit}", processes.count),
        None => processes.count.to_string(),
    });
    let up = running_seconds.map(moment::spell);
    vec![
        short(id),
        name.clone().unwrap_or_default(),
        cpu_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}%")),
        format!("{} / {}", amount(used), amount(limit)),
        format!("{} / {}", amount(on_disk.0), amount(on_disk.1)),
        processes.unwrap_or_else(|| "-".to_owned()),
        up.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// An amount of bytes with one digit behind the point.
#[expect(clippy::cast_precision_loss, reason = "nobody sees the last digits")]
pub(crate) fn amount(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{size:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        assert_eq!(amount(0), "0 B");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(2 << 30), "2.0 GiB");
        assert_eq!(amount(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn two_processors_are_two_hundred() {
        assert!((percent(3_000_000, 1_000_000, Duration::from_secs(1)) - 200.0).abs() < 0.01);
        assert!(percent(1, 2, Duration::ZERO).abs() < 0.01);
    }
}
