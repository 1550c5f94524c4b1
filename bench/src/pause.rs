//! Sandboxes that sleep, wake and multiply, beside CRIU by itself.
//!
//! Start at [`print`]. [`Bare`] is the peer: a process with as much memory, dumped and restored by
//! CRIU alone, without any isolation around it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sys_linux::command::command;

use crate::contest::{Bound, Contest, Settings};
use crate::daemon::{Connection, Daemon, create};
use crate::output;

/// What freezing and thawing may take through the API.
const MOST_FOR_A_FREEZE: Duration = Duration::from_millis(5);

/// The prototype took 1.5 times what CRIU took by itself, in both directions; a third more is ours.
const MOST_BESIDE_CRIU: f64 = 1.5 * 1.3;

/// Megabytes that processes hold.
const SIZES: [u64; 3] = [10, 50, 500];

/// Copies that are made at once, and what they may take beside one.
const COPIES: usize = 10;
const MOST_FOR_COPIES: f64 = 3.0;

/// How much of its memory has to be free again when a sandbox sleeps, in hundredths.
const LEAST_FREED: u64 = 95;

/// Measures and prints all of it.
pub(crate) fn print(settings: &Settings) {
    let place = Place::start(settings);
    freeze(settings, &place);
    for size in SIZES {
        sleep_and_wake(settings, &place, size);
    }
    freed(&place);
    copies(settings, &place);
    disk(&place);
}

fn criu() -> anyhow::Result<PathBuf> {
    let criu = std::env::var_os("SOMA_CRIU").context("SOMA_CRIU names no CRIU")?;
    Ok(PathBuf::from(criu))
}

/// A daemon, and a connection that stays open.
struct Place {
    connection: RefCell<Connection>,
    // Last: it removes the sandboxes.
    daemon: Daemon,
}

impl Place {
    fn start(settings: &Settings) -> anyhow::Result<Self> {
        let daemon = Daemon::start(settings)?;
        let connection = RefCell::new(daemon.connect()?);
        Ok(Self { connection, daemon })
    }

    /// A sandbox in which a process holds so many megabytes.
    fn sandbox(&self, megabytes: u64) -> anyhow::Result<String> {
        *self.connection.borrow_mut() = self.daemon.connect()?;
        let id = create(&mut self.connection.borrow_mut(), &json!({ "memory": 2048 }))?;
        let hold = holder(megabytes, "/workspace/ready");
        let start = json!({ "command": format!("exec python3 -c \"{hold}\"") });
        self.ask("POST", &format!("/v1/sandbox/{id}/process"), &start)?;
        let wait = "while ! [ -e /workspace/ready ]; do sleep 0.01; done";
        self.ask(
            "POST",
            &format!("/v1/sandbox/{id}/process/execute"),
            &json!({ "command": wait }),
        )?;
        Ok(id)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = (!body.is_null()).then_some(body);
        self.connection.borrow_mut().ask(method, path, body)
    }

    /// How long an order to a sandbox takes.
    fn act(&self, id: &str, what: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let seen = self.ask("POST", &format!("/v1/sandbox/{id}/{what}"), &Value::Null)?;
        let took = begin.elapsed();
        if what.ends_with("grace=0") {
            let reason = seen["reason"].as_str().unwrap_or_default();
            ensure!(reason.contains("on the disk"), "it is not on the disk: {reason}");
        }
        Ok(took)
    }

    fn delete(&self, id: &str) -> anyhow::Result<()> {
        self.ask("DELETE", &format!("/v1/sandbox/{id}"), &Value::Null).map(drop)
    }
}

/// A program that holds so many megabytes which no two pages of share, and says when it has them.
fn holder(megabytes: u64, ready: &str) -> String {
    format!(
        "import os, time; kept = bytearray(os.urandom({megabytes} << 20)); \
         open('{ready}', 'w').close(); time.sleep(100000)"
    )
}

fn freeze(settings: &Settings, place: &anyhow::Result<Place>) {
    let ready = place.as_ref().map_err(|error| format!("{error:#}"));
    let ready = ready.and_then(|place| {
        place.sandbox(10).map(|id| (place, id)).map_err(|error| format!("{error:#}"))
    });
    let mut contest = Contest::new("A sandbox frozen and thawed, through the API");
    for (name, counts_pause) in [("soma, pause", true), ("soma, resume", false)] {
        match &ready {
            Ok((place, id)) => {
                contest.row_within(name, MOST_FOR_A_FREEZE, move || {
                    let paused = place.act(id, "pause?grace=3600")?;
                    let resumed = place.act(id, "resume")?;
                    Ok(if counts_pause { paused } else { resumed })
                });
            }
            Err(reason) => drop(contest.absent(name, reason.clone())),
        }
    }
    contest.run(settings);
    if let Ok((place, id)) = &ready {
        let _ = place.delete(id);
    }
}

fn sleep_and_wake(settings: &Settings, place: &anyhow::Result<Place>, megabytes: u64) {
    let few = Settings { rounds: settings.rounds.min(20), ..settings.clone() };
    let ready = place.as_ref().map_err(|error| format!("{error:#}"));
    let ready = ready.and_then(|place| {
        place.sandbox(megabytes).map(|id| (place, id)).map_err(|error| format!("{error:#}"))
    });
    let bare = RefCell::new(Bare::start(megabytes));
    for (what, is_dump) in [("put on the disk", true), ("woken", false)] {
        let title = format!("A process with {megabytes} MB {what}");
        let mut contest = Contest::new(&title);
        let peer = contest.row("criu by itself", &[], || {
            let mut bare = bare.borrow_mut();
            let bare = bare.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            let (dumped, restored) = (bare.dump()?, bare.restore()?);
            Ok(if is_dump { dumped } else { restored })
        });
        match &ready {
            Ok((place, id)) => {
                let bound = Bound { peer, most: MOST_BESIDE_CRIU };
                contest.row("soma, through the API", &[bound], || {
                    let (slept, woken) =
                        (place.act(id, "pause?grace=0")?, place.act(id, "resume")?);
                    Ok(if is_dump { slept } else { woken })
                });
            }
            Err(reason) => drop(contest.absent("soma, through the API", reason.clone())),
        }
        contest.run(&few);
    }
    if let Ok((place, id)) = &ready {
        let _ = place.delete(id);
    }
}

/// Prints how much memory of a sandbox is free again when it sleeps.
fn freed(place: &anyhow::Result<Place>) {
    const HELD: u64 = 500;
    output::line(&format!(
        "\nMemory of a process with {HELD} MB that is free again when it sleeps"
    ));
    let measured = place.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).and_then(|place| {
        let id = place.sandbox(HELD)?;
        std::thread::sleep(Duration::from_secs(1));
        let before = available()?;
        place.act(&id, "pause?grace=0")?;
        std::thread::sleep(Duration::from_secs(1));
        let after = available()?;
        place.delete(&id)?;
        Ok(after.saturating_sub(before) * 100 / (HELD << 10))
    });
    match measured {
        Ok(share) => {
            let word = if share >= LEAST_FREED { "kept" } else { "MISSED" };
            output::line(&format!("  {share} %, wanted at least {LEAST_FREED} %: {word}"));
        }
        Err(error) => output::line(&format!("  not measured: {error:#}")),
    }
}

/// KiB that the host has to give.
fn available() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.context("there is no MemAvailable")?.parse().context("MemAvailable is no number")
}

fn copies(settings: &Settings, place: &anyhow::Result<Place>) {
    let few = Settings { rounds: settings.rounds.min(10), ..settings.clone() };
    let title = format!("A sandbox with 10 MB copied into 1 and into {COPIES}");
    let wish = json!({ "snapshot_name": "bench", "timeout": 3600 });
    let ready = place.as_ref().map_err(|error| format!("{error:#}"));
    let ready = ready.and_then(|place| {
        let ready = place.sandbox(10).and_then(|id| {
            let path = format!("/v1/sandbox/{id}/snapshot/create");
            place.ask("POST", &path, &json!({ "name": "bench" })).map(|_| id)
        });
        ready.map(|id| (place, id)).map_err(|error| format!("{error:#}"))
    });
    let mut contest = Contest::new(&title);
    match &ready {
        Ok((place, _)) => {
            let wish = &wish;
            let many = move |count: usize| {
                let begin = Instant::now();
                let made = restored(place, wish, count)?;
                let took = begin.elapsed();
                for id in made {
                    place.delete(&id)?;
                }
                Ok(took)
            };
            let one = contest.row("soma, one restore", &[], move || many(1));
            let bound = Bound { peer: one, most: MOST_FOR_COPIES };
            contest
                .row(&format!("soma, {COPIES} restores at once"), &[bound], move || many(COPIES));
        }
        Err(reason) => drop(contest.absent("soma, one restore", reason.clone())),
    }
    contest.run(&few);
}

/// Makes sandboxes from a snapshot, all at once.
fn restored(place: &Place, wish: &Value, count: usize) -> anyhow::Result<Vec<String>> {
    let connections: anyhow::Result<Vec<Connection>> =
        (0..count).map(|_| place.daemon.connect()).collect();
    std::thread::scope(|scope| {
        let making: Vec<_> = connections?
            .into_iter()
            .map(|mut connection| {
                scope.spawn(move || connection.ask("POST", "/v1/snapshot/restore", Some(wish)))
            })
            .collect();
        let made = making.into_iter().map(|one| {
            let made = one.join().map_err(|_| anyhow::anyhow!("a thread died"))??;
            made["id"].as_str().map(str::to_owned).context("the answer has no id")
        });
        made.collect()
    })
}

/// Prints what a second snapshot takes of the disk, after a little was written.
fn disk(place: &anyhow::Result<Place>) {
    const WRITTEN: u64 = 20;
    output::line(&format!("\nDisk of a snapshot of files after {WRITTEN} MB more were written"));
    let measured = place.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).and_then(|place| {
        let id = create(&mut place.connection.borrow_mut(), &json!({}))?;
        let mut bytes = Vec::new();
        for megabytes in [100, WRITTEN] {
            let write = format!("head -c {megabytes}M /dev/urandom > /workspace/{megabytes}; sync");
            let path = format!("/v1/sandbox/{id}/process/execute");
            place.ask("POST", &path, &json!({ "command": write }))?;
            let path = format!("/v1/sandbox/{id}/snapshot/create");
            let taken = place.ask("POST", &path, &json!({ "memory": false }))?;
            bytes.push(taken["bytes"].as_u64().context("it has no size")?);
        }
        place.delete(&id)?;
        Ok(bytes)
    });
    match measured {
        Ok(bytes) => {
            let sizes: Vec<String> =
                bytes.iter().map(|bytes| format!("{} MB", bytes / 1_000_000)).collect();
            output::line(&format!("  {}, the first with 100 MB", sizes.join(", then ")));
        }
        Err(error) => output::line(&format!("  not measured: {error:#}")),
    }
}

/// A process that holds memory, and CRIU.
struct Bare {
    criu: PathBuf,
    folder: tempfile::TempDir,
    process: u32,
    child: Option<Child>,
}

impl Bare {
    fn start(megabytes: u64) -> anyhow::Result<Self> {
        let (criu, folder) = (criu()?, tempfile::tempdir()?);
        let ready = folder.path().join("ready");
        let hold = holder(megabytes, &ready.display().to_string());
        let mut python = command("setsid");
        python.args(["python3", "-c", &hold]).stdin(Stdio::null());
        let child = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let begin = Instant::now();
        while !ready.exists() {
            ensure!(begin.elapsed() < Duration::from_secs(20), "the process does not come");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { criu, folder, process: child.id(), child: Some(child) })
    }

    fn run(&mut self, words: &[&str]) -> anyhow::Result<Duration> {
        let mut criu: Command = command(&self.criu);
        let images = self.folder.path().join("images");
        std::fs::create_dir_all(&images)?;
        criu.args(words).args(["-v1", "--images-dir"]).arg(&images);
        criu.args(["--manage-cgroups=ignore", "--network-lock", "skip"]);
        let begin = Instant::now();
        let done = criu.stdin(Stdio::null()).output()?;
        let took = begin.elapsed();
        ensure!(done.status.success(), "criu: {}", String::from_utf8_lossy(&done.stderr));
        Ok(took)
    }

    fn dump(&mut self) -> anyhow::Result<Duration> {
        let process = self.process.to_string();
        let took = self.run(&["dump", "--tree", &process])?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(took)
    }

    fn restore(&mut self) -> anyhow::Result<Duration> {
        self.run(&["restore", "--restore-detached"])
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let process = i32::try_from(self.process).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(process) = process {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}
