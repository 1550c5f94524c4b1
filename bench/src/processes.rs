//! Which processes belong to one home, by how they were started.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(10);

/// A daemon, its starter or an engine.
pub(crate) struct Process {
    pub(crate) role: &'static str,
    /// Its folder in `/proc`.
    pub(crate) folder: PathBuf,
}

/// The daemon, its starter and the engine of a home, as far as they run.
///
/// Guests and supervisors are not among them: they are the sandboxes' own.
pub(crate) fn of(home: &Path) -> Vec<Process> {
    let home = home.display().to_string();
    let named = format!("--home={home}");
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter_map(|process| {
            let typed = fs::read(process.path().join("cmdline")).ok()?;
            let typed = String::from_utf8_lossy(&typed).into_owned();
            let words: Vec<&str> = typed.split('\0').collect();
            let is_ours = words.iter().any(|word| *word == home || *word == named);
            let role = role(&words).filter(|_| is_ours)?;
            Some(Process { role, folder: process.path() })
        })
        .collect()
}

/// Ends the daemon that a command started in a home, and waits until it is gone.
pub(crate) fn end_daemon(home: &Path) {
    send_daemon(home, Signal::TERM);
}

/// The same with a signal of choice.
pub(crate) fn send_daemon(home: &Path, signal: Signal) {
    let begin = Instant::now();
    loop {
        let all = of(home);
        let daemons: Vec<_> = all.iter().filter(|process| process.role != "engine").collect();
        if daemons.is_empty() || begin.elapsed() > PATIENCE {
            return;
        }
        for daemon in daemons {
            let name = daemon.folder.file_name().and_then(|name| name.to_str());
            if let Some(id) = name.and_then(|name| Pid::from_raw(name.parse().ok()?)) {
                let _ = kill_process(id, signal);
            }
        }
        sleep(Duration::from_millis(20));
    }
}

/// The time of processors that guests and supervisors of this machine have had so far.
pub(crate) fn work_of_sandboxes() -> Duration {
    let Ok(all) = fs::read_dir("/proc") else { return Duration::ZERO };
    let ticks: u64 = all.flatten().filter_map(|process| ticks_of(&process.path())).sum();
    let in_a_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks * 1000 / in_a_second)
}

/// Those of one process, if it is a guest or a supervisor.
fn ticks_of(process: &Path) -> Option<u64> {
    let text = fs::read_to_string(process.join("stat")).ok()?;
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    if name != "guest" && !name.starts_with("soma-") {
        return None;
    }
    // The user's and the system's part are the twelfth and thirteenth field behind the name.
    let mut fields = rest.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn role(words: &[&str]) -> Option<&'static str> {
    let has = |word: &str| words.iter().any(|each| each.starts_with(word));
    if has("egress") {
        Some("egress")
    } else if has("engine") {
        Some("engine")
    } else if has("--inside") {
        Some("daemon")
    } else if has("serve") {
        // An ordinary user's daemon starts engines itself.
        Some(if rustix::process::geteuid().is_root() { "starter" } else { "daemon" })
    } else {
        None
    }
}

/// KiB of memory that a process has, as its share.
pub(crate) fn share(process: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(process.join("smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no share there")?;
    let number = line.split_whitespace().next().context("no number there")?;
    Ok(number.parse()?)
}
