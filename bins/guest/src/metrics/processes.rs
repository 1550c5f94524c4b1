//! What the sandbox uses, added up from its processes: where there is no cgroup to ask.
//!
//! Memory of files, in the page cache and in `tmpfs`, cannot be seen this way.

use std::fs;

use super::read;

/// What all processes use.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// CPU time in microseconds.
    pub(super) cpu_micros: u64,
    /// Memory in bytes.
    pub(super) bytes: u64,
    /// Processes and threads.
    pub(super) count: u64,
}

/// Adds up all processes of the sandbox.
pub(super) fn add_up() -> Used {
    let mut used = Used::default();
    let mut all_ticks = 0;
    let Ok(entries) = fs::read_dir("/proc") else { return used };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        // A process may end between any two of these lines; then it counts as far as it was read.
        let stat = read(&format!("/proc/{pid}/stat")).unwrap_or_default();
        all_ticks += ticks(&stat).unwrap_or(0);
        used.count += threads(&stat).unwrap_or(0);
        used.bytes += read(&format!("/proc/{pid}/smaps_rollup"))
            .and_then(|rollup| proportional(&rollup))
            .or_else(|| read(&format!("/proc/{pid}/statm")).and_then(|statm| private(&statm)))
            .unwrap_or(0);
    }
    used.cpu_micros = all_ticks * (1_000_000 / rustix::param::clock_ticks_per_second().max(1));
    used
}

/// How long this process runs, in seconds.
pub(super) fn own_age() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "ticks of some years are far below 2^52")]
    let age = || {
        let stat = read("/proc/self/stat")?;
        let begun: u64 = field(&stat, 19)?.parse().ok()?;
        let begun = begun as f64 / rustix::param::clock_ticks_per_second() as f64;
        let now: f64 = read("/proc/uptime")?.split(' ').next()?.parse().ok()?;
        Some((now - begun).max(0.0))
    };
    age().unwrap_or(0.0)
}

/// CPU time of a process and of its children that were waited for. With the children the sum
/// over all processes never falls when one ends.
fn ticks(stat: &str) -> Option<u64> {
    field(stat, 0)?;
    Some((11..15).filter_map(|index| field(stat, index)?.parse::<u64>().ok()).sum())
}

fn threads(stat: &str) -> Option<u64> {
    field(stat, 17)?.parse().ok()
}

/// A field of a process's `stat`, counted from its state on.
fn field(stat: &str, index: usize) -> Option<&str> {
    // The name of the program may hold blanks and brackets; the last bracket ends it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(index)
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

/// All memory of the machine.
pub(super) fn machine_memory() -> u64 {
    read("/proc/meminfo").and_then(|text| kibibytes(&text, "MemTotal:")).unwrap_or(0)
}

/// The figure of a line such as `MemTotal:  123 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let figure: u64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    figure.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_after_the_last_bracket_and_include_ended_children() {
        let stat = "7 (a) b) 9) S 1 7 7 0 -1 4194560 10 20 0 0 100 20 3 4 20 0 6 0 5 6 7";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(threads(stat), Some(6));
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
    fn this_process_uses_something() {
        let used = add_up();
        assert!(used.bytes > 0 && used.count > 0, "{used:?}");
        assert!(own_age() < 3600.0);
    }
}
