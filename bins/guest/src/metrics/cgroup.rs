//! What the kernel has counted for the sandbox's workload, from its cgroup.
//!
//! The engine shows the sandbox's own cgroups at `/sys/fs/cgroup`, read-only: on version 2 one
//! tree, on version 1 one for each controller. Where it could not, all figures here are none.
//! Only files of the kernel count: whatever else lies at that place somebody inside has made.

use std::fs::File;
use std::io::Read as _;

use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};

/// Where the cgroups are.
const PLACE: &str = "/sys/fs/cgroup";

/// The part of them that commands are in.
const PART: &str = "workload";

/// What marks the kernel's own files, of both versions.
const KERNELS_OWN: [u64; 2] = [0x0027_e0eb, 0x6367_7270];

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) used_micros: u64,
    pub(super) throttled_periods: u64,
    pub(super) throttled_micros: u64,
    /// Thousandths of a processor; none is no limit.
    pub(super) limit_millis: Option<u64>,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// Without what can be given back.
    pub(super) used: u64,
    /// Files that are also on a disk.
    pub(super) cache: u64,
    pub(super) limit: Option<u64>,
    /// The most that was ever used, with the cache.
    pub(super) peak: Option<u64>,
    pub(super) oom_kills: u64,
}

/// Processes and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processes {
    pub(super) count: u64,
    pub(super) limit: Option<u64>,
}

/// How often the workload ran into its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strikes {
    /// Processes that the kernel killed for want of memory.
    pub(crate) oom_kills: u64,
    /// Processes that could not be made.
    pub(crate) refused_processes: u64,
}

/// How often it did so far; nothing where nobody counts.
pub(crate) fn strikes() -> Strikes {
    strikes_from(&kernel)
}

pub(super) fn cpu() -> Option<Cpu> {
    cpu_from(&kernel)
}

pub(super) fn memory() -> Option<Memory> {
    memory_from(&kernel)
}

pub(super) fn processes() -> Option<Processes> {
    processes_from(&kernel)
}

/// The text of a file, by the controller that it belongs to on version 1; an empty controller
/// is version 2.
type Source<'a> = &'a dyn Fn(&str, &str) -> Option<String>;

fn cpu_from(read: Source<'_>) -> Option<Cpu> {
    if let Some(stat) = read("", "cpu.stat") {
        let max = read("", "cpu.max");
        let limit = max.as_deref().and_then(|max| {
            let (quota, period) = max.trim().split_once(' ')?;
            millis(quota.parse().ok()?, period.parse().ok()?)
        });
        return Some(Cpu {
            used_micros: named(&stat, "usage_usec")?,
            throttled_periods: named(&stat, "nr_throttled").unwrap_or(0),
            throttled_micros: named(&stat, "throttled_usec").unwrap_or(0),
            limit_millis: limit,
        });
    }
    let used_nanos = number(&read("cpuacct", "cpuacct.usage")?)?;
    let stat = read("cpu", "cpu.stat").unwrap_or_default();
    let of = |file| number(&read("cpu", file)?);
    // A quota of -1, which is no number here, is none.
    let limit = of("cpu.cfs_quota_us").zip(of("cpu.cfs_period_us"));
    Some(Cpu {
        used_micros: used_nanos / 1000,
        throttled_periods: named(&stat, "nr_throttled").unwrap_or(0),
        throttled_micros: named(&stat, "throttled_time").unwrap_or(0) / 1000,
        limit_millis: limit.and_then(|(quota, period)| millis(quota, period)),
    })
}

fn millis(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}

fn memory_from(read: Source<'_>) -> Option<Memory> {
    if let Some(current) = read("", "memory.current") {
        let stat = read("", "memory.stat").unwrap_or_default();
        let events = read("", "memory.events").unwrap_or_default();
        // Memory files count as files, and cannot be given back.
        let cache = cached(named(&stat, "file"), named(&stat, "shmem"));
        return Some(Memory {
            used: number(&current)?.saturating_sub(cache),
            cache,
            limit: read("", "memory.max").as_deref().and_then(number),
            peak: read("", "memory.peak").as_deref().and_then(number),
            oom_kills: named(&events, "oom_kill").unwrap_or(0),
        });
    }
    let of = |file| read("memory", file);
    let stat = of("memory.stat").unwrap_or_default();
    let cache = cached(named(&stat, "total_cache"), named(&stat, "total_shmem"));
    let limit = of("memory.limit_in_bytes").as_deref().and_then(number);
    let control = of("memory.oom_control").unwrap_or_default();
    Some(Memory {
        used: number(&of("memory.usage_in_bytes")?)?.saturating_sub(cache),
        cache,
        // No limit is told as the largest number of pages.
        limit: limit.filter(|limit| *limit < 1 << 60),
        peak: of("memory.max_usage_in_bytes").as_deref().and_then(number),
        oom_kills: named(&control, "oom_kill").unwrap_or(0),
    })
}

fn cached(files: Option<u64>, of_memory: Option<u64>) -> u64 {
    files.unwrap_or(0).saturating_sub(of_memory.unwrap_or(0))
}

fn processes_from(read: Source<'_>) -> Option<Processes> {
    let of = |file| read("", file).or_else(|| read("pids", file));
    Some(Processes {
        count: number(&of("pids.current")?)?,
        limit: of("pids.max").as_deref().and_then(number),
    })
}

fn strikes_from(read: Source<'_>) -> Strikes {
    let memory = read("", "memory.events").or_else(|| read("memory", "memory.oom_control"));
    let processes = read("", "pids.events").or_else(|| read("pids", "pids.events"));
    let of = |text: Option<String>, name| text.and_then(|text| named(&text, name)).unwrap_or(0);
    Strikes { oom_kills: of(memory, "oom_kill"), refused_processes: of(processes, "max") }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The figure of a line such as `oom_kill 3`.
fn named(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?))
}

fn kernel(controller: &str, file: &str) -> Option<String> {
    let path = match controller {
        "" => format!("{PLACE}/{PART}/{file}"),
        _ => format!("{PLACE}/{controller}/{PART}/{file}"),
    };
    // A pipe that somebody put here would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = openat(CWD, path, flags, Mode::empty()).ok()?;
    let kind = u64::try_from(fstatfs(&file).ok()?.f_type).ok()?;
    if !KERNELS_OWN.contains(&kind) {
        return None;
    }
    let mut text = String::new();
    File::from(file).take(64 << 10).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files<'a>(all: &'a [(&'a str, &'a str, &'a str)]) -> impl Fn(&str, &str) -> Option<String> {
        move |controller, file| {
            let found = all.iter().find(|(of, name, _)| (*of, *name) == (controller, file))?;
            Some(found.2.to_owned())
        }
    }

    #[test]
    fn version_two_is_read() {
        let files = files(&[
            ("", "cpu.stat", "usage_usec 5000\nuser_usec 1\nnr_throttled 3\nthrottled_usec 70\n"),
            ("", "cpu.max", "150000 100000\n"),
            ("", "memory.current", "1000\n"),
            ("", "memory.stat", "anon 500\nfile 400\nshmem 100\nfile_mapped 9\n"),
            ("", "memory.max", "max\n"),
            ("", "memory.peak", "1200\n"),
            ("", "memory.events", "low 0\noom 1\noom_kill 2\n"),
            ("", "pids.current", "4\n"),
            ("", "pids.max", "512\n"),
        ]);
        let cpu = cpu_from(&files).unwrap();
        assert_eq!((cpu.used_micros, cpu.throttled_periods, cpu.throttled_micros), (5000, 3, 70));
        assert_eq!(cpu.limit_millis, Some(1500));
        let memory = memory_from(&files).unwrap();
        assert_eq!((memory.used, memory.cache, memory.limit), (700, 300, None));
        assert_eq!((memory.peak, memory.oom_kills), (Some(1200), 2));
        let processes = processes_from(&files).unwrap();
        assert_eq!((processes.count, processes.limit), (4, Some(512)));
    }

    #[test]
    fn version_one_is_read() {
        let files = files(&[
            ("cpuacct", "cpuacct.usage", "5000000\n"),
            ("cpu", "cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 70000\n"),
            ("cpu", "cpu.cfs_quota_us", "-1\n"),
            ("cpu", "cpu.cfs_period_us", "100000\n"),
            ("memory", "memory.usage_in_bytes", "1000\n"),
            ("memory", "memory.stat", "cache 9\nshmem 9\ntotal_cache 400\ntotal_shmem 100\n"),
            ("memory", "memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("pids", "pids.current", "4\n"),
            ("pids", "pids.max", "max\n"),
        ]);
        let cpu = cpu_from(&files).unwrap();
        assert_eq!((cpu.used_micros, cpu.throttled_periods, cpu.throttled_micros), (5000, 3, 70));
        assert_eq!(cpu.limit_millis, None);
        let memory = memory_from(&files).unwrap();
        assert_eq!((memory.used, memory.cache, memory.limit), (700, 300, None));
        assert_eq!((memory.peak, memory.oom_kills), (None, 2));
        let processes = processes_from(&files).unwrap();
        assert_eq!((processes.count, processes.limit), (4, None));
    }

    #[test]
    fn strikes_are_read_from_either_version() {
        let two = files(&[
            ("", "memory.events", "low 0\nmax 9\noom 1\noom_kill 2\n"),
            ("", "pids.events", "max 7\n"),
        ]);
        let one = files(&[
            ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("pids", "pids.events", "max 7\n"),
        ]);
        let strikes = Strikes { oom_kills: 2, refused_processes: 7 };
        assert_eq!((strikes_from(&two), strikes_from(&one)), (strikes, strikes));
        assert_eq!(strikes_from(&files(&[])), Strikes::default());
    }

    #[test]
    fn nothing_is_no_figure() {
        let nothing = files(&[]);
        assert_eq!(cpu_from(&nothing), None);
        assert_eq!(memory_from(&nothing), None);
        assert_eq!(processes_from(&nothing), None);
        let garbage = files(&[("", "cpu.stat", "\0"), ("", "memory.current", "-1")]);
        assert_eq!(cpu_from(&garbage), None);
        assert_eq!(memory_from(&garbage), None);
    }
}
