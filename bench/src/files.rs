//! What files take through the guest: large ones, folders of many, and events.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bytes::Bytes;
use domain::SandboxId;
use futures::stream;
use guest_proto::GuestClient;
use guest_proto::client::{BoxError, Change, Event, StartOptions, WatchOptions};
use provider_native::random_id;

use crate::contest::{Bound, Contest, Settings};
use crate::engine::Running;
use crate::output;

/// Bytes of the file that is sent both ways, in pieces of a mebibyte.
const LARGE: usize = 1 << 30;
const PIECE: usize = 1 << 20;

/// Megabytes in a second that were promised, and the memory of the guest.
const RATE: u128 = 500;
const MOST_MEMORY_KIBIBYTES: u64 = 32 << 10;

/// Files of the large folder, and those that are made while somebody watches.
const MANY: usize = 100_000;
const WATCHED: usize = 10_000;

/// Measures and prints all of it.
pub(crate) fn print(settings: &Settings) {
    output::line("\nFiles through the guest of a sandbox");
    match Sandbox::new(settings) {
        Ok(sandbox) => {
            told("upload and download", sandbox.transfers());
            told("events", sandbox.events());
            if let Err(error) = sandbox.listing(settings) {
                output::line(&format!("  listing: not measured: {error:#}"));
            }
        }
        Err(error) => output::line(&format!("  not measured: {error:#}")),
    }
}

/// A sandbox that runs.
struct Sandbox {
    guest: GuestClient,
    id: SandboxId,
    engine: Running,
}

impl Sandbox {
    fn new(settings: &Settings) -> anyhow::Result<Self> {
        let engine = Running::start(settings, 0)?;
        let id = random_id()?;
        engine.home.runtime.block_on(engine.create(&id))?;
        let guest = engine.guest(&id)?;
        Ok(Self { guest, id, engine })
    }

    /// A gigabyte both ways, on the disk of the sandbox. Not in its memory: what the guest writes
    /// to a memory file system counts as the guest's own, which has far less.
    fn transfers(&self) -> anyhow::Result<Vec<String>> {
        let path = "/workspace/large";
        let up = self.engine.home.runtime.block_on(self.upload(path))?;
        let down = self.engine.home.runtime.block_on(self.download(path))?;
        self.run(&format!("rm {path}"))?;
        let mut lines = vec![rate("upload of 1 GiB", up), rate("download of 1 GiB", down)];
        let (_, words) =
            self.run("sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/1/status")?;
        let peak: u64 = words.trim().parse()?;
        let word = if peak <= MOST_MEMORY_KIBIBYTES { "kept" } else { "MISSED" };
        lines.push(format!(
            "memory of the guest at its peak: {peak} KiB, wanted at most {MOST_MEMORY_KIBIBYTES}: {word}"
        ));
        Ok(lines)
    }

    async fn upload(&self, path: &str) -> anyhow::Result<Duration> {
        let piece = Bytes::from(vec![7; PIECE]);
        let pieces = (0..LARGE / PIECE).map(move |_| Ok::<_, BoxError>(piece.clone()));
        let begin = Instant::now();
        self.guest.upload(path, Some("root"), stream::iter(pieces)).await?;
        Ok(begin.elapsed())
    }

    async fn download(&self, path: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let mut download = self.guest.download(path, Some("root")).await?;
        let mut bytes = 0;
        while let Some(piece) = download.next().await? {
            bytes += piece.len();
        }
        ensure!(bytes == LARGE, "{bytes} bytes came instead of {LARGE}");
        Ok(begin.elapsed())
    }

    /// Files that are made within a second, as somebody sees them who watches.
    fn events(&self) -> anyhow::Result<Vec<String>> {
        self.run("mkdir /workspace/watched")?;
        let options = WatchOptions { recursive: true, ..WatchOptions::default() };
        let (made, events, lost, after) = self.engine.home.runtime.block_on(async {
            let mut watching = self.guest.watch("/workspace/watched", None, options).await?;
            let begin = Instant::now();
            let script = format!(
                "i=0; while [ $i -lt {WATCHED} ]; do : > /workspace/watched/$i; i=$((i+1)); done"
            );
            let making = run(&self.guest, &script);
            let watched = async {
                let (mut events, mut lost) = (0, false);
                while events < WATCHED && !lost {
                    match watching.next().await? {
                        Change::Happened { .. } => events += 1,
                        Change::Lost(_) => lost = true,
                    }
                }
                anyhow::Ok((events, lost, begin.elapsed()))
            };
            let ((made, _), (events, lost, after)) = tokio::try_join!(making, watched)?;
            anyhow::Ok((made, events, lost, after))
        })?;
        let verdict = if lost { "a loss was said" } else { "none was lost" };
        Ok(vec![format!(
            "{WATCHED} files made in {} ms: {events} events, the last after {} ms, {verdict}",
            made.as_millis(),
            after.as_millis()
        )])
    }

    /// A folder of many files, listed by `ls` in the sandbox and by the guest.
    fn listing(&self, settings: &Settings) -> anyhow::Result<()> {
        self.run(&format!(
            "mkdir /workspace/many && cd /workspace/many && seq -f file-%06g {MANY} | xargs touch"
        ))?;
        let settings = Settings {
            soma: settings.soma.clone(),
            rounds: settings.rounds.min(5),
            tables: Vec::new(),
            pause: settings.pause,
        };
        let mut contest = Contest::new("A folder of 100,000 files");
        let peer = contest.row("`ls -l` in the sandbox", &[], || {
            Ok(self.run("ls -l /workspace/many > /dev/null")?.0)
        });
        contest.row("soma, list through the guest", &[Bound { peer, most: 3.0 }], || {
            let begin = Instant::now();
            let list = self.guest.list_dir("/workspace/many", 1, None);
            let entries = self.engine.home.runtime.block_on(list)?;
            ensure!(entries.len() == MANY, "{} entries instead of {MANY}", entries.len());
            Ok(begin.elapsed())
        });
        contest.run(&settings);
        Ok(())
    }

    fn run(&self, script: &str) -> anyhow::Result<(Duration, String)> {
        self.engine.home.runtime.block_on(run(&self.guest, script))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The engine ends it with its caller at the latest.
        let _ = self.engine.home.runtime.block_on(self.engine.destroy(&self.id));
    }
}

/// Prints what was measured, or why nothing was.
fn told(name: &str, done: anyhow::Result<Vec<String>>) {
    match done {
        Ok(lines) => lines.iter().for_each(|line| output::line(&format!("  {line}"))),
        Err(error) => output::line(&format!("  {name}: not measured: {error:#}")),
    }
}

async fn run(guest: &GuestClient, script: &str) -> anyhow::Result<(Duration, String)> {
    let options = StartOptions {
        cmd: "sh".into(),
        args: vec!["-c".into(), script.to_owned()],
        user: Some("root".into()),
        ..StartOptions::default()
    };
    let begin = Instant::now();
    let mut running = guest.start(options).await?;
    let mut words = Vec::new();
    while let Some(event) = running.next().await? {
        match event {
            Event::Stdout(bytes) => words.extend(bytes),
            Event::Ended(ended) => {
                ensure!(ended.code == 0, "`{script}` ended with {}", ended.status);
                return Ok((begin.elapsed(), String::from_utf8_lossy(&words).into_owned()));
            }
            _ => {}
        }
    }
    bail!("the guest did not say how `{script}` ended")
}

fn rate(name: &str, took: Duration) -> String {
    let rate = LARGE as u128 / took.as_micros().max(1);
    let word = if rate >= RATE { "kept" } else { "MISSED" };
    format!("{name:<44} {rate:>6} MB/s   wanted {RATE} MB/s: {word}")
}
