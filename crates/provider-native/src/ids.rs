//! Which host ids the sandboxes' ids are mapped to.
//!
//! Every sandbox sees ids 0 to 65535; on the host they are a range of its own, so that two
//! sandboxes share no user for the kernel's per-user counts. Ranges lie between those that
//! systemd gives to containers and 2^31, and clear of what `/etc/subuid` and `/etc/subgid`
//! promise to somebody else.

use std::collections::BTreeSet;
use std::fs;

/// How many ids one sandbox has.
pub(crate) const RANGE: u32 = 65_536;

/// The first range is for Soma's own unprivileged programs.
const FIRST: u32 = 0x7000_0000;
const LAST: u32 = 0x7FFE_0000;

/// The id that Soma's own unprivileged programs run as when root starts them.
pub const PROGRAM_ID: u32 = FIRST + 1;

/// Gives out ranges and takes them back.
#[derive(Debug)]
pub(crate) struct Ranges {
    taken: BTreeSet<u32>,
    promised: Vec<(u32, u32)>,
    next: u32,
}

impl Ranges {
    /// Reads what the host has promised elsewhere.
    ///
    /// Engines of several homes on one host know nothing of each other: the label lets each
    /// begin somewhere else.
    pub(crate) fn of_this_host(label: u64) -> Self {
        let mut promised = Vec::new();
        for path in ["/etc/subuid", "/etc/subgid"] {
            promised.extend(parse_promises(&fs::read_to_string(path).unwrap_or_default()));
        }
        let count = u64::from((LAST - FIRST) / RANGE);
        let start = u32::try_from(label % count).unwrap_or(0);
        Self { taken: BTreeSet::new(), promised, next: FIRST + RANGE + start * RANGE }
    }

    /// A range that nobody has, as its first id.
    ///
    /// Goes round instead of reusing the lowest: a process that is still dying keeps its
    /// counts to itself.
    pub(crate) fn take(&mut self) -> Option<u32> {
        for _ in 0..=(LAST - FIRST) / RANGE {
            let base = self.next;
            self.next = if base >= LAST { FIRST + RANGE } else { base + RANGE };
            if self.is_free(base) {
                self.taken.insert(base);
                return Some(base);
            }
        }
        None
    }

    /// Notes a range that a sandbox from before has.
    pub(crate) fn note(&mut self, base: u32) {
        self.taken.insert(base);
    }

    pub(crate) fn give_back(&mut self, base: u32) {
        self.taken.remove(&base);
    }

    fn is_free(&self, base: u32) -> bool {
        let overlaps = |(start, count): &(u32, u32)| {
            *start < base + RANGE && base < start.saturating_add(*count)
        };
        !self.taken.contains(&base) && !self.promised.iter().any(overlaps)
    }
}

/// Reads `name:first:count` lines; what is not one is nobody's promise.
fn parse_promises(text: &str) -> impl Iterator<Item = (u32, u32)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(1);
        let first = fields.next()?.trim().parse().ok()?;
        let count = fields.next()?.trim().parse().ok()?;
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(promises: &str) -> Ranges {
        Ranges {
            taken: BTreeSet::new(),
            promised: parse_promises(promises).collect(),
            next: FIRST + RANGE,
        }
    }

    #[test]
    fn two_sandboxes_never_share_an_id() {
        let mut ranges = ranges("");
        let (first, second) = (ranges.take().unwrap(), ranges.take().unwrap());
        assert!(second >= first + RANGE);
    }

    #[test]
    fn a_range_promised_in_subuid_is_left_alone() {
        let mut ranges = ranges(&format!("alice:{}:10\ngarbage\nbob:1:x\n", FIRST + RANGE + 5));
        assert_eq!(ranges.take(), Some(FIRST + 2 * RANGE));
    }

    #[test]
    fn ranges_end_and_begin_again_when_given_back() {
        let mut ranges = ranges("");
        let all: Vec<u32> = std::iter::from_fn(|| ranges.take()).collect();
        assert_eq!(all.len(), 4094);
        ranges.give_back(all[7]);
        assert_eq!(ranges.take(), Some(all[7]));
        assert_eq!(ranges.take(), None);
    }
}
