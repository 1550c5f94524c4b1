//! What is left to the host: below it, no sandbox is made.
//!
//! A sandbox's disk is a sparse file and its memory is taken as it is used, so a host that gives
//! out more than it has runs full later, in the middle of somebody's work. It refuses newcomers
//! first. What runs is not touched until a quarter of the reserve is gone (`engine/room.rs`).

use std::fs;
use std::path::Path;

use domain::Bytes;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Kind};

/// What is left to the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserves {
    /// Of the disk that sandboxes lie on; unset is 5% of it, and no less than 1 GiB.
    pub disk: Option<Bytes>,
    /// Of memory; unset is 5% of it, and no less than 256 MiB.
    pub memory: Option<Bytes>,
}

impl Reserves {
    /// Refuses when the host has less left than this.
    pub(crate) fn check(self, home: &Path) -> Result<(), Failure> {
        // What cannot be asked is not short as far as anybody knows.
        if let Some(room) = Room::on(home) {
            hold("disk", room.left, self.of_disk(room.size), "reserve_disk")?;
        }
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        if let (Some(total), Some(left)) =
            (named(&text, "MemTotal:"), named(&text, "MemAvailable:"))
        {
            let reserve = self.memory.unwrap_or_else(|| usual(total, 256 << 20));
            hold("memory", left, reserve, "reserve_memory")?;
        }
        Ok(())
    }

    /// What is to be left of a disk of this size.
    pub(crate) fn of_disk(self, size: Bytes) -> Bytes {
        self.disk.unwrap_or_else(|| usual(size, 1 << 30))
    }
}

/// What a file system of the host's holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// In all.
    pub(crate) size: Bytes,
    /// For whoever comes next.
    pub(crate) left: Bytes,
}

impl Room {
    /// That of the file system with this path, if it can be asked.
    pub(crate) fn on(path: &Path) -> Option<Self> {
        let disk = statvfs(path).ok()?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(disk.f_frsize));
        Some(Self { size: bytes(disk.f_blocks), left: bytes(disk.f_bavail) })
    }
}

fn usual(of: Bytes, least: u64) -> Bytes {
    Bytes((of.0 / 20).max(least))
}

fn hold(what: &str, left: Bytes, reserve: Bytes, setting: &str) -> Result<(), Failure> {
    if left >= reserve {
        return Ok(());
    }
    let (left, reserve) = (rounded(left), rounded(reserve));
    let cause = format!(
        "the host has {left} of {what} left, and {reserve} are kept for itself: delete sandboxes, \
         free some, or set `{setting}` lower"
    );
    Err(Failure::new("make the sandbox", cause, Kind::NoCapacity))
}

/// In whole mebibytes: nobody wants to read more of it.
pub(crate) fn rounded(bytes: Bytes) -> Bytes {
    Bytes(bytes.0 >> 20 << 20)
}

/// The figure of a line such as `MemTotal:  24682344 kB`.
fn named(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Bytes(kibibytes.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_has_less_than_its_reserve_refuses_and_says_what_to_do() {
        let here = Path::new("/");
        let nothing = Reserves { disk: Some(Bytes(0)), memory: Some(Bytes(0)) };
        assert_eq!(nothing.check(here), Ok(()));
        for (reserves, setting) in [
            (Reserves { disk: Some(Bytes(u64::MAX)), ..nothing }, "reserve_disk"),
            (Reserves { memory: Some(Bytes(u64::MAX)), ..nothing }, "reserve_memory"),
        ] {
            let failure = reserves.check(here).unwrap_err();
            assert_eq!(failure.kind, Kind::NoCapacity);
            assert!(failure.cause.contains(setting), "{failure}");
        }
    }

    #[test]
    fn a_small_host_keeps_more_of_itself() {
        assert_eq!(usual(Bytes::gibibytes(100), 1 << 30), Bytes::gibibytes(5));
        assert_eq!(usual(Bytes::gibibytes(4), 1 << 30), Bytes::gibibytes(1));
    }

    #[test]
    fn the_kernels_figures_are_read() {
        assert_eq!(named("MemFree: 1 kB\nMemTotal:   24 kB\n", "MemTotal:"), Some(Bytes(24 << 10)));
        assert_eq!(named("", "MemTotal:"), None);
    }
}
