//! Many sandboxes: made at once, and idle side by side.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use domain::SandboxId;
use provider_native::random_id;

use crate::contest::{Bound, Contest, Settings};
use crate::engine::{End, Running};
use crate::{output, processes};

/// Made at one time, and what that may take beside as many single ones on all processors.
const AT_ONCE: u32 = 50;
const MOST: f64 = 1.5;

/// Side by side, what each may cost in KiB, and how long they are watched.
const IDLE: u32 = 100;
const MOST_MEMORY: u64 = 5 << 10;
const WATCHED: Duration = Duration::from_secs(5);

/// Less than this of a processor is no work: a hundredth of a percent for each.
const MOST_WORK: f64 = 0.01;

/// Measures and prints both.
pub(crate) fn print(settings: &Settings) -> anyhow::Result<()> {
    at_once(settings);
    idle(settings)
}

/// Nothing is prepared ahead here, so that every sandbox is the same work.
fn at_once(settings: &Settings) {
    let settings = Settings {
        soma: settings.soma.clone(),
        rounds: settings.rounds.min(10),
        tables: Vec::new(),
        pause: settings.pause,
    };
    let engine = Running::start(&settings, 0);
    let title = format!("{AT_ONCE} sandboxes at once, from nothing");
    let mut contest = Contest::new(&title);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let share = f64::from(AT_ONCE) / f64::from(u32::try_from(processors).unwrap_or(1));
    match &engine {
        Ok(engine) => {
            let peer = contest
                .row("one, until `true` in it has ended", &[], || engine.lifetime(End::True));
            let bound = Bound { peer, most: MOST * share };
            contest.row("all of them", &[bound], || engine.crowd(AT_ONCE));
        }
        Err(error) => {
            contest.absent("all of them", format!("{error:#}"));
        }
    }
    contest.run(&settings);
    output::line(&format!(
        "  ({MOST} times {AT_ONCE} single ones on {processors} processors is {:.1})",
        MOST * share
    ));
}

impl Running {
    /// So many sandboxes made at once and used; what comes after does not count.
    fn crowd(&self, count: u32) -> anyhow::Result<Duration> {
        self.home.runtime.block_on(async {
            let ids: Vec<SandboxId> = (0..count).map(|_| random_id()).collect::<Result<_, _>>()?;
            let begin = Instant::now();
            let made =
                futures::future::join_all(ids.iter().map(|id| self.create_and_use(id))).await;
            let took = begin.elapsed();
            for id in &ids {
                self.destroy(id).await?;
            }
            made.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
            Ok(took)
        })
    }
}

fn idle(settings: &Settings) -> anyhow::Result<()> {
    output::line(&format!("\n{IDLE} sandboxes that do nothing"));
    let engine = Running::start(settings, 0)?;
    engine.lifetime(End::True)?;
    let before = available()?;
    let ids: Vec<SandboxId> = (0..IDLE).map(|_| random_id()).collect::<Result<_, _>>()?;
    for id in &ids {
        engine.home.runtime.block_on(engine.create(id))?;
    }
    std::thread::sleep(Duration::from_secs(2));
    let each = before.saturating_sub(available()?) / u64::from(IDLE);
    let word = if each <= MOST_MEMORY { "kept" } else { "MISSED" };
    output::line(&format!(
        "  memory that each takes from the machine: {each} KiB, wanted at most {MOST_MEMORY}: {word}"
    ));
    let begun = processes::work_of_sandboxes();
    std::thread::sleep(WATCHED);
    let worked = processes::work_of_sandboxes().saturating_sub(begun);
    let worked = worked.as_secs_f64() / WATCHED.as_secs_f64();
    let word = if worked <= MOST_WORK { "kept" } else { "MISSED" };
    output::line(&format!(
        "  processor that all take together: {:.2} %, wanted none: {word}",
        worked * 100.0
    ));
    for id in &ids {
        engine.home.runtime.block_on(engine.destroy(id))?;
    }
    Ok(())
}

/// What the machine says is left for more, in KiB.
fn available() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next()).context("no such figure")?;
    let kibibytes = number.parse()?;
    ensure!(kibibytes > 0, "the machine says that it has no memory");
    Ok(kibibytes)
}
