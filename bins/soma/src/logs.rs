//! `soma logs`: what happened to a sandbox, or what a process in it wrote.

use std::path::Path;

use api_v1::events::Happening;
use clap::Args;
use client::Client;
use guest_proto::client::Event;

use crate::daemon;
use crate::events::words;
use crate::failure::{Failure, refused, refused_inside};
use crate::output::{self, Stream};
use crate::session::{Existing, Ground as _};

/// What is typed after `soma logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma logs my-box
  soma logs my-box --json
  soma logs my-box 17
  soma logs my-box 17 --follow

Of each process that was started from outside, the last mebibyte of output is kept, until 30
seconds after its end. What is gone of it is said on standard error.

Exit codes: 0; 1 when the sandbox or the process is not there; 2 when this line makes no sense; 125
when Soma failed.")]
pub(crate) struct LogsArguments {
    /// The sandbox: its id, its name, or the beginning of either. The whole id also works for
    /// one that is gone.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// The id of a process inside, whose output to show.
    #[arg(value_name = "PID")]
    pid: Option<u32>,
    /// Go on until the process ends.
    #[arg(long, short, requires = "pid")]
    follow: bool,
    /// Write one JSON document instead of lines.
    #[arg(long, conflicts_with = "pid")]
    json: bool,
}

/// Shows it.
pub(crate) fn run(home: &Path, arguments: &LogsArguments) -> Result<u8, Failure> {
    daemon::ask(home, async |client| match arguments.pid {
        None => events(&client, arguments).await,
        Some(pid) => written(client, &arguments.which, pid, arguments.follow).await,
    })
}

async fn events(client: &Client, arguments: &LogsArguments) -> Result<u8, Failure> {
    let items = client.sandbox_events(&arguments.which).await.map_err(refused)?.items;
    if arguments.json {
        return output::json(&items);
    }
    if items.is_empty() {
        output::talk("nothing is written down about it\n");
        return Ok(0);
    }
    output::words(&items.iter().map(line).collect::<String>())
}

/// One thing that happened, such as `2026-01-01T00:00:00.000Z  local  running`.
fn line(event: &Happening) -> String {
    let reason = event.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let line = format!("{}  {:<8}  {}{reason}", event.at, event.actor, words::of(event));
    format!("{}\n", output::one_line(&line))
}

async fn written(client: Client, which: &str, pid: u32, follow: bool) -> Result<u8, Failure> {
    let found = Existing::find(client, which).await;
    let (existing, _) = found.map_err(Failure::into_refusal)?;
    let guest = existing.enter(&domain::SandboxSpec::default()).await?.guest;
    let inside = |error| refused_inside(&error);
    let mut running = guest.connect_from(pid, 0).await.map_err(inside)?;
    loop {
        let event = if follow {
            running.next().await
        } else {
            // What is kept comes at once; what is still to come is not waited for.
            match tokio::time::timeout(QUIET, running.next()).await {
                Ok(event) => event,
                Err(_) => return Ok(0),
            }
        };
        match event.map_err(inside)? {
            Some(Event::Stdout(bytes) | Event::Terminal(bytes)) => {
                output::bytes(Stream::Stdout, &bytes)?;
            }
            Some(Event::Stderr(bytes)) => output::bytes(Stream::Stderr, &bytes)?,
            Some(Event::Dropped { from, to }) => {
                output::talk(&format!("soma: {} bytes are no longer kept\n", to - from.min(to)));
            }
            Some(Event::Started { .. } | Event::Exited(_)) => {}
            Some(Event::Ended(_)) | None => return Ok(0),
        }
    }
}

/// How long silence lasts before it is taken for the end of what is kept.
const QUIET: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_happened_is_one_line_each() {
        let event = |actor: &str, rest: serde_json::Value| {
            let mut event = json!({ "sequence": 1, "at": "T", "sandbox": "x", "owner": "default",
                                    "actor": actor, "result": "ok" });
            event.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            serde_json::from_value::<Happening>(event).unwrap()
        };
        let broke = json!({ "what": "state_changed", "state": "error", "reason": "it\nbroke" });
        assert_eq!(line(&event("local", broke)), "T  local     error: it broke\n");
        let free = json!({ "what": "timeout_set" });
        assert_eq!(line(&event("soma", free)), "T  soma      may run for ever\n");
        let later = json!({ "what": "\u{1b}[2Jforked" });
        assert_eq!(line(&event("soma", later)), "T  soma       [2Jforked\n");
    }
}
