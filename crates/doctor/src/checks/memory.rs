//! Free memory: the host's, or less where a cgroup of a container holds this process.

use std::fs;
use std::path::{Path, PathBuf};

use super::disk::amount;
use crate::finding::Finding;
use crate::mounts::{Mount, mounts};

const NAME: &str = "memory";

/// A sandbox that does nothing takes some 10 MiB, a Python that computes some 100.
const COMFORTABLE: u64 = 512 << 20;
const LEAST: u64 = 64 << 20;

pub(crate) fn check() -> Finding {
    let numbers = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(available) = available(&numbers) else {
        return Finding::unknown(NAME, "`/proc/meminfo` does not say").without(WITHOUT);
    };
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let held = mounts().iter().filter_map(|mount| left_in_group(mount, &membership)).min();
    judge(available, held)
}

const WITHOUT: &str =
    "makes fewer or smaller sandboxes; one that has no memory left is ended, the others go on";

fn judge(available: u64, held: Option<u64>) -> Finding {
    let (free, why) = match held {
        Some(held) if held < available => (held, ", all that this process's cgroup has left"),
        _ => (available, ""),
    };
    let says = format!("{} free{why}", amount(free));
    let finding = match free {
        free if free < LEAST => Finding::missing(NAME, says),
        free if free < COMFORTABLE => Finding::limited(NAME, says),
        _ => Finding::works(NAME, says),
    };
    finding.without(WITHOUT)
}

fn available(numbers: &str) -> Option<u64> {
    let line = numbers.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the groups of this process allow and do not use yet, the tightest of them.
fn left_in_group(mount: &Mount, membership: &str) -> Option<u64> {
    let (limit, usage) = match mount.kind.as_str() {
        "cgroup2" => ("memory.max", "memory.current"),
        "cgroup" if mount.has_option("memory") => {
            ("memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    let own = own_folder(mount, membership)?;
    let number = |folder: &Path, file: &str| -> Option<u64> {
        fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
    };
    own.ancestors()
        .take_while(|folder| folder.starts_with(&mount.path))
        .filter_map(|folder| Some(number(folder, limit)?.saturating_sub(number(folder, usage)?)))
        .min()
}

fn own_folder(mount: &Mount, membership: &str) -> Option<PathBuf> {
    let group = membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_it = match mount.kind.as_str() {
            "cgroup2" => controllers.is_empty(),
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        is_it.then_some(group)
    })?;
    Some(mount.path.join(Path::new(group).strip_prefix(&mount.root).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::mounts::parse;

    #[test]
    fn the_tighter_of_host_and_cgroup_counts() {
        let held = judge(8 << 30, Some(100 << 20));
        assert_eq!(held.state, State::Limited);
        assert!(held.says.starts_with("100 MiB free, all that this"), "{}", held.says);
        assert_eq!(judge(8 << 30, Some(u64::MAX)).says, "8.0 GiB free");
        assert_eq!(judge(1 << 20, None).state, State::Missing);
    }

    #[test]
    fn the_group_of_either_version_is_found() {
        let membership = "4:memory:/box/a\n0::/user.slice\n";
        let one = parse("1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n").remove(0);
        let two = parse("1 0 0:1 / /cg rw - cgroup2 cgroup2 rw\n").remove(0);
        assert_eq!(own_folder(&one, membership).unwrap(), Path::new("/cg/memory/box/a"));
        assert_eq!(own_folder(&two, membership).unwrap(), Path::new("/cg/user.slice"));
    }

    #[test]
    fn kibibytes_are_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
