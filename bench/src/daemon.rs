//! What the daemon takes on top of the engine: calls of its API over TCP, with a key, on
//! connections that stay open; its memory; a long list.
//!
//! Start at [`print`]. [`running`] is a daemon of the benchmark's own, [`connection`] the client,
//! [`memory`] what its processes have.

mod connection;
mod memory;
mod running;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sys_linux::command::command;

use crate::contest::{Allowance, Bound, Contest, Settings};
use crate::docker::Docker;
use crate::engine::{self, End, PREPARED};
use crate::{output, time};
pub(crate) use connection::Connection;
pub(crate) use running::Daemon;

/// What a sandbox may take longer by the API than by the engine, until `true` in it has ended.
const MOST_ABOVE: Duration = Duration::from_millis(5);

/// Sandboxes that are listed, and what that may take.
const LISTED: usize = 200;
const MOST_FOR_A_LIST: Duration = Duration::from_millis(10);

/// What a daemon may take to be back with so many.
const MOST_FOR_A_START: Duration = Duration::from_secs(2);

/// Sandboxes with which memory is looked at again, and what may be had, in KiB.
const HELD: usize = 50;
const MOST_AT_REST: u64 = 40 << 10;
/// A fifth of a MiB.
const MOST_FOR_EACH: u64 = 1024 / 5;

/// Measures and prints all of it.
pub(crate) fn print(settings: &Settings) {
    exec(settings);
    create_and_true(settings);
    many(settings);
}

/// `true` in a sandbox that runs, beside a bare fork and exec and `docker exec`.
fn exec(settings: &Settings) {
    output::complain("starting a Docker daemon as a peer");
    let docker = Docker::start().and_then(|docker| Ok((docker.start_idle()?, docker)));
    let mut opened = Daemon::start(settings).and_then(|daemon| {
        let mut connection = daemon.connect()?;
        let id = create(&mut connection, &json!({}))?;
        Ok((id, connection, daemon))
    });

    let mut contest = Contest::new("`true` in a sandbox that runs, through the API");
    let bare = contest.row("bare fork and exec", &[], || time(&mut command("true")));
    let name = "docker exec";
    let docker = match &docker {
        Ok((id, docker)) => contest.row(name, &[], || time(&mut docker.exec_true(id))),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let bounds = [Bound { peer: bare, most: 4.0 }, Bound { peer: docker, most: 1.0 / 20.0 }];
    let name = "soma, exec through the API";
    match &mut opened {
        Ok((id, connection, _)) => contest.row(name, &bounds, || {
            let begin = Instant::now();
            run_true(connection, id)?;
            Ok(begin.elapsed())
        }),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
}

/// A sandbox and `true` in it, beside the engine alone; both take bodies that are prepared.
fn create_and_true(settings: &Settings) {
    let engine = engine::Running::start(settings, PREPARED);
    let mut opened = Daemon::start(settings).and_then(|daemon| Ok((daemon.connect()?, daemon)));

    let mut contest = Contest::new("A sandbox and `true` in it, through the API");
    let name = "soma, prepared parts, through the engine";
    let peer = match &engine {
        Ok(engine) => contest.row(name, &[], || engine.lifetime(End::True)),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    let name = "soma, prepared parts, through the API";
    match &mut opened {
        Ok((connection, daemon)) => {
            contest.row_above(name, Allowance { peer, most: MOST_ABOVE }, || {
                daemon.wait_for_prepared()?;
                let begin = Instant::now();
                let id = create(connection, &json!({}))?;
                let ran = run_true(connection, &id);
                let took = begin.elapsed();
                delete(connection, &id)?;
                ran.map(|()| took)
            })
        }
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
}

/// What many sandboxes cost: memory outside of them, and the time to list them.
fn many(settings: &Settings) {
    output::line("\nMemory of the daemon, its starter and the engine, as their shares (PSS)");
    let daemon = match Daemon::start(settings).and_then(|daemon| {
        weigh(&daemon)?;
        Ok(daemon)
    }) {
        Ok(daemon) => daemon,
        Err(error) => return output::line(&format!("  not measured: {error:#}")),
    };

    let title = format!("{LISTED} sandboxes listed, on two pages");
    let mut contest = Contest::new(&title);
    let name = "soma, GET /v1/sandboxes, twice";
    let ready = daemon.create_small(LISTED - HELD).and_then(|()| daemon.connect());
    match ready {
        Ok(mut connection) => contest.row_within(name, MOST_FOR_A_LIST, move || {
            let begin = Instant::now();
            let listed = page(&mut connection, 1)? + page(&mut connection, 2)?;
            let took = begin.elapsed();
            ensure!(listed == LISTED, "{listed} sandboxes were listed instead of {LISTED}");
            Ok(took)
        }),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
    come_back(settings, daemon);
}

/// The daemon is killed with all of them running, and started again.
fn come_back(settings: &Settings, mut daemon: Daemon) {
    output::line(&format!("\nThe daemon killed and started again with {LISTED} sandboxes"));
    let measured = daemon.restart(settings).and_then(|took| {
        let begin = Instant::now();
        let ran = daemon.run_true_in_all()?;
        ensure!(ran == LISTED, "only {ran} of {LISTED} could be used");
        Ok((took, begin.elapsed()))
    });
    match measured {
        Ok((took, used)) => {
            let word = if took <= MOST_FOR_A_START { "kept" } else { "MISSED" };
            output::line(&format!(
                "  until the API lists all of them as running: {took:.0?}, wanted at most \
                 {MOST_FOR_A_START:?}: {word}"
            ));
            output::line(&format!("  `true` ran in each of them, in {used:.1?} all together"));
        }
        Err(error) => output::line(&format!("  not measured: {error:#}")),
    }
}

/// Prints memory at rest, and what each of several sandboxes adds to it.
fn weigh(daemon: &Daemon) -> anyhow::Result<()> {
    let verdict = |has: u64, most: u64| {
        let word = if has <= most { "kept" } else { "MISSED" };
        format!("{has} KiB, wanted at most {most}: {word}")
    };
    daemon.wait_for_prepared()?;
    let rest = memory::of(daemon.path())?;
    let before: u64 = rest.values().sum();
    output::line(&format!("  at rest: {}", verdict(before, MOST_AT_REST)));
    for (program, kibibytes) in &rest {
        output::line(&format!("    {program:<42} {kibibytes:>9} KiB"));
    }
    daemon.create_small(HELD)?;
    daemon.wait_for_prepared()?;
    let after: u64 = memory::of(daemon.path())?.values().sum();
    let each = after.saturating_sub(before).div_ceil(HELD as u64);
    output::line(&format!("  for each of {HELD} sandboxes: {}", verdict(each, MOST_FOR_EACH)));
    Ok(())
}

/// Makes a sandbox with the defaults but for what is said; answers with its id.
pub(crate) fn create(connection: &mut Connection, wish: &Value) -> anyhow::Result<String> {
    let mut body = json!({"allow_unenforced": true, "timeout": running::LONGEST_LIFE.as_secs()});
    if let (Some(body), Some(wish)) = (body.as_object_mut(), wish.as_object()) {
        body.extend(wish.clone());
    }
    let made = connection.ask("POST", "/v1/sandbox", Some(&body))?;
    Ok(made["id"].as_str().context("the answer has no id")?.to_owned())
}

fn run_true(connection: &mut Connection, id: &str) -> anyhow::Result<()> {
    let path = format!("/v1/sandbox/{id}/process/execute");
    let ended = connection.ask("POST", &path, Some(&json!({"command": "true"})))?;
    ensure!(ended["exit_code"] == 0, "true ended with {}", ended["exit_code"]);
    Ok(())
}

fn delete(connection: &mut Connection, id: &str) -> anyhow::Result<()> {
    connection.ask("DELETE", &format!("/v1/sandbox/{id}"), None).map(|_| ())
}

/// How many sandboxes are on a page.
fn page(connection: &mut Connection, number: usize) -> anyhow::Result<usize> {
    let path = format!("/v1/sandboxes?page-size=100&page={number}");
    let listed = connection.ask("GET", &path, None)?;
    Ok(listed["items"].as_array().context("the answer has no items")?.len())
}
