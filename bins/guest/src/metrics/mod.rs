//! What the sandbox uses, as `GET /metrics` tells it.
//!
//! The truth is what the kernel counts for the sandbox's cgroup ([`cgroup`]): its CPU time, its
//! memory with the page cache apart, its processes. Where no cgroup is shown, the processes are
//! added up ([`processes`]), which misses memory of files; every figure of ours names its
//! source. Limits are the cgroup's, else those that the engine told, else the machine's.
//!
//! The names that E2B's agent has stand at the top; ours are in groups beside them.

mod cgroup;
mod network;
mod processes;

pub(crate) use cgroup::{Strikes, strikes};

use std::fs;
use std::io::Read as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::state::LimitsTold;
use network::Interface;

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
    #[serde(flatten)]
    usage: Option<Usage>,
}

impl Metrics {
    /// The same as a guest of the first protocol tells it.
    pub(crate) fn without_usage(self) -> Self {
        Self { usage: None, ..self }
    }
}

/// The figures that E2B's agent does not have.
#[derive(Debug, Serialize)]
struct Usage {
    cpu: CpuUsage,
    memory: MemoryUsage,
    disk: DiskUsage,
    network: Vec<Interface>,
    processes: ProcessesUsage,
    /// Since process 1 began, or was restored.
    uptime_seconds: f64,
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// What the kernel counts for the sandbox.
    Cgroup,
    /// Added up over its processes.
    Processes,
}

#[derive(Debug, Serialize)]
struct CpuUsage {
    source: Source,
    used_micros: u64,
    limit_millis: u64,
    throttled_periods: Option<u64>,
    throttled_micros: Option<u64>,
}

#[derive(Debug, Serialize)]
struct MemoryUsage {
    source: Source,
    used: u64,
    cache: Option<u64>,
    limit: u64,
    peak: Option<u64>,
    oom_kills: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct DiskUsage {
    used: u64,
    total: u64,
    inodes_used: u64,
    inodes_total: u64,
}

#[derive(Debug, Serialize)]
struct ProcessesUsage {
    source: Source,
    count: u64,
    limit: Option<u64>,
}

/// CPU time of the sandbox at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    source: Source,
    micros: u64,
}

/// The sample of the call before, from which the CPU share is counted.
static BEFORE: Mutex<Option<Sample>> = Mutex::new(None);

/// Measures now. May read some files for every process: call it off the runtime's thread.
pub(crate) fn measure(told: Option<LimitsTold>) -> Metrics {
    let (cpu, memory, counted) = (cgroup::cpu(), cgroup::memory(), cgroup::processes());
    let from_processes = cpu.is_none() || memory.is_none() || counted.is_none();
    let used = if from_processes { processes::add_up() } else { processes::Used::default() };

    let cpu = cpu_usage(cpu, told, used.cpu_micros);
    let now = Sample { at: Instant::now(), source: cpu.source, micros: cpu.used_micros };
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
    let memory = memory_usage(memory, told, used.bytes);
    let processes = match counted {
        Some(counted) => ProcessesUsage {
            source: Source::Cgroup,
            count: counted.count,
            limit: counted.limit.or(told.and_then(|told| told.pids)),
        },
        None => ProcessesUsage {
            source: Source::Processes,
            count: used.count,
            limit: told.and_then(|told| told.pids),
        },
    };
    let disk = disk();
    Metrics {
        ts: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        cpu_count: cpu.limit_millis.div_ceil(1000),
        cpu_used_pct: before.map_or(0.0, |before| cpu_percent(before, now, cpu.limit_millis)),
        mem_total: memory.limit,
        mem_used: memory.used,
        mem_cache: memory.cache.unwrap_or(0),
        mem_total_mib: memory.limit >> 20,
        mem_used_mib: memory.used >> 20,
        disk_used: disk.used,
        disk_total: disk.total,
        usage: Some(Usage {
            cpu,
            memory,
            disk,
            network: network::interfaces(),
            processes,
            uptime_seconds: processes::own_age(),
        }),
    }
}

fn cpu_usage(counted: Option<cgroup::Cpu>, told: Option<LimitsTold>, added_up: u64) -> CpuUsage {
    let machine =
        || std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64 * 1000;
    let told = told.and_then(|told| told.cpu_millis);
    let limit = counted.and_then(|counted| counted.limit_millis).or(told);
    CpuUsage {
        source: if counted.is_some() { Source::Cgroup } else { Source::Processes },
        used_micros: counted.map_or(added_up, |counted| counted.used_micros),
        limit_millis: limit.filter(|millis| *millis > 0).unwrap_or_else(machine),
        throttled_periods: counted.map(|counted| counted.throttled_periods),
        throttled_micros: counted.map(|counted| counted.throttled_micros),
    }
}

fn memory_usage(
    counted: Option<cgroup::Memory>,
    told: Option<LimitsTold>,
    added_up: u64,
) -> MemoryUsage {
    let told = told.and_then(|told| told.memory_bytes);
    let limit = counted.and_then(|counted| counted.limit).or(told);
    let limit = limit.unwrap_or_else(processes::machine_memory);
    MemoryUsage {
        source: if counted.is_some() { Source::Cgroup } else { Source::Processes },
        used: counted.map_or(added_up, |counted| counted.used).min(limit),
        cache: counted.map(|counted| counted.cache),
        limit,
        peak: counted.and_then(|counted| counted.peak),
        oom_kills: counted.map(|counted| counted.oom_kills),
    }
}

/// The share of the allowed CPU time that was used between two samples, in per cent with two
/// digits. Rounding in the kernel and late wake-ups can show a little too much; that is cut.
#[expect(clippy::cast_precision_loss, reason = "figures far below 2^52")]
fn cpu_percent(before: Sample, now: Sample, cpu_millis: u64) -> f64 {
    let used = now.micros.saturating_sub(before.micros) as f64 / 1e6;
    let allowed = now.at.duration_since(before.at).as_secs_f64() * cpu_millis as f64 / 1000.0;
    if allowed <= 0.0 || now.source != before.source {
        return 0.0;
    }
    ((used / allowed * 10_000.0).round() / 100.0).clamp(0.0, 100.0)
}

/// The root file system.
fn disk() -> DiskUsage {
    rustix::fs::statvfs("/").map_or_else(
        |_| DiskUsage::default(),
        |disk| DiskUsage {
            used: disk.f_blocks.saturating_sub(disk.f_bfree).saturating_mul(disk.f_frsize),
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
            inodes_used: disk.f_files.saturating_sub(disk.f_ffree),
            inodes_total: disk.f_files,
        },
    )
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
    fn the_share_is_counted_against_the_allowed_time() {
        let at = Instant::now();
        let second = 1_000_000;
        let before = Sample { at, source: Source::Cgroup, micros: 0 };
        let after = |micros| Sample { at: at + Duration::from_secs(2), micros, ..before };
        let percent = |micros, millis| cpu_percent(before, after(micros), millis);
        assert!((percent(second, 1000) - 50.0).abs() < 0.01);
        assert!((percent(second, 2000) - 25.0).abs() < 0.01);
        assert!((percent(second * 9, 1000) - 100.0).abs() < 0.01);
        assert!(cpu_percent(before, before, 1000).abs() < 0.01);
        assert!(cpu_percent(after(second), Sample { micros: 0, ..after(0) }, 1000).abs() < 0.01);
        let other = Sample { source: Source::Processes, ..after(second) };
        assert!(cpu_percent(before, other, 1000).abs() < 0.01);
    }

    #[test]
    fn limits_that_were_told_replace_the_machines() {
        let limits = LimitsTold {
            memory_bytes: Some(64 << 40),
            cpu_millis: Some(1500),
            pids: Some(99),
            disk_bytes: None,
        };
        let metrics = measure(Some(limits));
        assert_eq!((metrics.mem_total, metrics.cpu_count), (64 << 40, 2));
        assert_eq!(metrics.mem_total_mib, 64 << 20);
        assert!(metrics.mem_used > 0 && metrics.disk_total >= metrics.disk_used);
        assert_eq!(metrics.usage.unwrap().processes.limit, Some(99));
        assert!(measure(None).mem_total < 64 << 40);
    }

    #[test]
    fn the_kernels_count_goes_before_what_was_told_and_added_up() {
        let told = LimitsTold {
            memory_bytes: Some(900),
            cpu_millis: Some(900),
            pids: None,
            disk_bytes: None,
        };
        let counted =
            cgroup::Memory { used: 10, cache: 5, limit: Some(100), peak: Some(50), oom_kills: 0 };
        let memory = memory_usage(Some(counted), Some(told), 77);
        assert_eq!((memory.source, memory.used, memory.limit), (Source::Cgroup, 10, 100));
        let memory = memory_usage(Some(cgroup::Memory { limit: None, ..counted }), Some(told), 77);
        assert_eq!((memory.used, memory.limit), (10, 900));
        let memory = memory_usage(None, Some(told), 77);
        assert_eq!((memory.source, memory.used, memory.cache), (Source::Processes, 77, None));
    }
}
