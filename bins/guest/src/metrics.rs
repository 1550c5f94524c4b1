//! What the sandbox uses, as `GET /metrics` tells it.
//!
//! No cgroup file system is mounted in a sandbox and `/proc/meminfo` is the host's, so the
//! figures are added up from the processes of the sandbox: their share of memory and the CPU time
//! that they and their ended children took. The limits are those that the engine told; where it
//! told none the machine's stand in for them.
//!
//! What cannot be seen from inside: memory of files in the page cache and in `tmpfs`. The engine
//! knows them from the cgroup.

use std::fs;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::state::LimitsTold;

/// The longest file of `/proc` that is read here.
const LONGEST: u64 = 64 << 10;

/// The figures of one moment, with the names of E2B's agent.
#[derive(Debug, Serialize)]
pub(crate) struct Metrics {
    ts: u64,
    cpu_count: u64,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

/// CPU time of the sandbox at one moment, in clock ticks.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    ticks: u64,
}

/// The sample of the call before, from which the CPU share is counted.
static BEFORE: Mutex<Option<Sample>> = Mutex::new(None);

/// Measures now. Reads some files for every process: call it off the runtime's thread.
pub(crate) fn measure(limits: Option<LimitsTold>) -> Metrics {
    let machine_cpus =
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let cpu_millis = limits
        .and_then(|limits| limits.cpu_millis)
        .filter(|millis| *millis > 0)
        .unwrap_or(machine_cpus * 1000);
    let mem_total = limits.and_then(|limits| limits.memory_bytes).unwrap_or_else(machine_memory);

    let used = used_by_processes();
    let now = Sample { at: Instant::now(), ticks: used.ticks };
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
    let mem_used = used.bytes.min(mem_total);
    let (disk_used, disk_total) = disk();
    Metrics {
        ts: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        cpu_count: cpu_millis.div_ceil(1000),
        cpu_used_pct: before.map_or(0.0, |before| cpu_percent(before, now, cpu_millis)),
        mem_total,
        mem_used,
        mem_cache: 0,
        mem_total_mib: mem_total >> 20,
        mem_used_mib: mem_used >> 20,
        disk_used,
        disk_total,
    }
}

/// The share of the allowed CPU time that was used between two samples, in per cent with two
/// digits. Rounding in the kernel and late wake-ups can show a little too much; that is cut.
#[expect(clippy::cast_precision_loss, reason = "figures far below 2^52")]
fn cpu_percent(before: Sample, now: Sample, cpu_millis: u64) -> f64 {
    let used = now.ticks.saturating_sub(before.ticks) as f64
        / rustix::param::clock_ticks_per_second() as f64;
    let allowed = now.at.duration_since(before.at).as_secs_f64() * cpu_millis as f64 / 1000.0;
    if allowed <= 0.0 {
        return 0.0;
    }
    ((used / allowed * 10_000.0).round() / 100.0).clamp(0.0, 100.0)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    ticks: u64,
    bytes: u64,
}

/// Adds up all processes of the sandbox.
fn used_by_processes() -> Used {
    let mut used = Used::default();
    let Ok(entries) = fs::read_dir("/proc") else { return used };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        // A process may end between any two of these lines; then it counts as far as it was read.
        used.ticks += read(&format!("/proc/{pid}/stat")).and_then(|stat| ticks(&stat)).unwrap_or(0);
        used.bytes += read(&format!("/proc/{pid}/smaps_rollup"))
            .and_then(|rollup| proportional(&rollup))
            .or_else(|| read(&format!("/proc/{pid}/statm")).and_then(|statm| private(&statm)))
            .unwrap_or(0);
    }
    used
}

/// CPU time of a process and of its children that were waited for. With the children the sum
/// over all processes never falls when one ends.
fn ticks(stat: &str) -> Option<u64> {
    // The name of the program may hold blanks and brackets; the last bracket ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_ascii_whitespace().skip(11).take(4);
    Some(times.filter_map(|time| time.parse::<u64>().ok()).sum())
}

/// Memory of a process with its part of what it shares, in bytes.
fn proportional(rollup: &str) -> Option<u64> {
    kibibytes(rollup, "Pss:")
}

/// Memory of a process without what it shares, in bytes: all that may be known of a process
/// that we may not look into.
fn private(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok());
    let (resident, shared): (u64, u64) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

fn machine_memory() -> u64 {
    read("/proc/meminfo").and_then(|text| kibibytes(&text, "MemTotal:")).unwrap_or(0)
}

/// The figure of a line such as `MemTotal:  123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let figure: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    figure.checked_mul(1024)
}

/// Used and all bytes of the root file system.
fn disk() -> (u64, u64) {
    rustix::fs::statvfs("/").map_or((0, 0), |disk| {
        let used = disk.f_blocks.saturating_sub(disk.f_bfree);
        (used.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize))
    })
}

fn read(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_read_after_the_last_bracket_and_include_ended_children() {
        let stat = "7 (a) b) 9) S 1 7 7 0 -1 4194560 10 20 0 0 100 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("garbage"), None);
    }

    #[test]
    fn memory_is_read_from_both_forms() {
        assert_eq!(proportional("00400000-7ff rollup\nRss: 10 kB\nPss:     3 kB\n"), Some(3072));
        let page = rustix::param::page_size() as u64;
        assert_eq!(private("100 30 10 1 0 9 0"), Some(20 * page));
        assert_eq!(private("100 x"), None);
    }

    #[test]
    fn the_share_is_counted_against_the_allowed_time() {
        let at = Instant::now();
        let ticks = rustix::param::clock_ticks_per_second();
        let before = Sample { at, ticks: 0 };
        let after = |ticks| Sample { at: at + Duration::from_secs(2), ticks };
        let percent = |ticks, millis| cpu_percent(before, after(ticks), millis);
        assert!((percent(ticks, 1000) - 50.0).abs() < 0.01);
        assert!((percent(ticks, 2000) - 25.0).abs() < 0.01);
        assert!((percent(ticks * 9, 1000) - 100.0).abs() < 0.01);
        assert!(cpu_percent(before, before, 1000).abs() < 0.01);
        assert!(cpu_percent(after(ticks), Sample { ticks: 0, ..after(0) }, 1000).abs() < 0.01);
    }

    #[test]
    fn limits_that_were_told_replace_the_machines() {
        let limits = LimitsTold {
            memory_bytes: Some(64 << 40),
            cpu_millis: Some(1500),
            pids: None,
            disk_bytes: None,
        };
        let metrics = measure(Some(limits));
        assert_eq!((metrics.mem_total, metrics.cpu_count), (64 << 40, 2));
        assert_eq!(metrics.mem_total_mib, 64 << 20);
        assert!(metrics.mem_used > 0 && metrics.disk_total >= metrics.disk_used);
        assert!(measure(None).mem_total < 64 << 40);
    }
}
