//! Where the time of a create goes, beside what the kernel alone takes for it.
//!
//! The engine tells the steps of its last launch. The floor is what the same system calls took
//! in a bare launcher with a program of 9 kB, on Linux 6.18 and two processors; it says where to
//! look first, and is no bound.

use std::thread::sleep;
use std::time::Duration;

use crate::contest::Settings;
use crate::engine::{End, Running};
use crate::output;
use crate::samples::Samples;

/// The floor, as microseconds at the median.
const FLOOR: &[(&str, u64)] = &[
    ("device and host folders attached", 24),
    ("six namespaces", 850),
    ("id maps", 57),
    ("four cgroups (v1)", 200),
    ("id-mapped base", 30),
    ("overlay", 620),
    ("setuid, mounts attached", 100),
    ("proc, devpts, tmpfs", 117),
    ("pivot_root", 155),
    ("loopback up", 107),
    ("no-new-privileges, seccomp", 70),
    ("exec to the first instruction", 220),
];

/// Creates sandboxes from nothing, and prints where the time went.
pub(crate) fn print(settings: &Settings) {
    output::line("\nWhere the time of a create from nothing goes, in microseconds at the median");
    match traced(settings) {
        Ok(steps) if steps.is_empty() => output::line("  not measured: the engine told no steps"),
        Ok(steps) => table(steps.iter().map(|(name, all)| (name.as_str(), all.median()))),
        Err(error) => output::line(&format!("  not measured: {error:#}")),
    }
    output::line("\nThe floor of such a create: the same calls in a bare launcher, measured once");
    table(FLOOR.iter().map(|(name, floor)| (*name, Duration::from_micros(*floor))));
}

/// The steps in the order in which the engine tells them.
fn traced(settings: &Settings) -> anyhow::Result<Vec<(String, Samples)>> {
    let engine = Running::start(settings, 0)?;
    let mut steps: Vec<(String, Samples)> = Vec::new();
    for _ in 0..settings.rounds.min(30) {
        sleep(settings.pause);
        engine.lifetime(End::True)?;
        for (name, microseconds) in engine.home.runtime.block_on(engine.provider.steps())? {
            let place = steps.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                steps.push((name, Samples::default()));
                steps.len() - 1
            });
            steps[place].1.add(Duration::from_micros(microseconds));
        }
    }
    Ok(steps)
}

fn table<'a>(rows: impl Iterator<Item = (&'a str, Duration)>) {
    let mut total = 0;
    for (name, time) in rows {
        total += time.as_micros();
        output::line(&format!("  {name:<44} {:>9}", time.as_micros()));
    }
    output::line(&format!("  {:<44} {total:>9}", "all of it"));
}
