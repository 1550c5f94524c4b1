//! Which host ids the sandboxes' ids are mapped to.
//!
//! Two sandboxes share no id, so that the kernel's per-user counts (inotify, keys, processes)
//! belong to one of them. How many ids a sandbox has depends on who runs the engine:
//!
//! | engine of | ids of a sandbox | taken from |
//! |---|---|---|
//! | root | 0 to 65535 | between those that systemd gives to containers and 2^31, clear of what `/etc/subuid` and `/etc/subgid` promise to somebody else |
//! | a user with subordinate ids | 0 to 2046, and 65534 | the user's range, split among the sandboxes; larger parts of a larger range |
//! | a user without | 1000 | the user's own id: there is no root inside, and no `sudo` |
//!
//! An engine of a user lives in a user namespace ([`crate::rights`]), and its numbers here are
//! those of that namespace.

use std::collections::BTreeSet;
use std::fs;

/// How many ids a sandbox of root's has.
const WHOLE: u32 = 65_536;

/// The least that a sandbox of a user's has: the ids of the system's users, of `user` (1000) and
/// of those that packages make.
const SMALLEST: u32 = 2048;

/// A user's range serves so many sandboxes at one time, and more only if it has more parts of
/// the smallest size.
const SANDBOXES_OF_A_USER: u32 = 32;

/// The id that owns nothing, which programs expect to be there.
const NOBODY: u32 = 65_534;

/// The id of the unprivileged user inside, and of everybody where there is one id only.
pub(crate) const USER: u32 = 1000;

/// The first range is for Soma's own unprivileged programs.
const FIRST: u32 = 0x7000_0000;
const LAST: u32 = 0x7FFE_0000;

/// The id that Soma's own unprivileged programs run as when root starts them.
pub const PROGRAM_ID: u32 = FIRST + 1;

/// The id of the program that sandboxes reach the network through: another one, because it reads
/// what comes from inside sandboxes, and the daemon's files are none of its business.
pub(crate) const EGRESS_ID: u32 = FIRST + 2;

/// The ids of one sandbox: the first of them outside, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    pub(crate) base: u32,
    pub(crate) count: u32,
}

impl IdRange {
    /// Whether everybody inside is one and the same.
    pub(crate) fn is_single(self) -> bool {
        self.count == 1
    }

    /// What the kernel is told: inside, outside and count in each line.
    pub(crate) fn map(self) -> String {
        let Self { base, count } = self;
        match count {
            1 => format!("{USER} {base} 1"),
            WHOLE => format!("0 {base} {WHOLE}"),
            _ => format!("0 {base} {}\n{NOBODY} {} 1", count - 1, base + count - 1),
        }
    }

    /// Outside, the id that is `inside` in the sandbox. Whoever it does not have there is its
    /// first one.
    pub(crate) fn outside(self, inside: u32) -> u32 {
        match self.count {
            WHOLE => self.base + inside.min(WHOLE - 1),
            1 => self.base,
            count if inside == NOBODY => self.base + count - 1,
            count if inside < count - 1 => self.base + inside,
            _ => self.base,
        }
    }
}

/// Gives out ranges and takes them back.
#[derive(Debug)]
pub(crate) struct Ranges {
    taken: BTreeSet<u32>,
    promised: Vec<(u32, u32)>,
    first: u32,
    last: u32,
    size: u32,
    /// Where to begin looking. Root's engine goes round, so that a process that is still dying
    /// keeps its counts to itself; a user's begins at the first again, because each range has
    /// its own copy of the template.
    next: u32,
    goes_round: bool,
}

impl Ranges {
    /// All that root can give; reads what the host has promised elsewhere.
    ///
    /// Engines of several homes on one host know nothing of each other: the label lets each
    /// begin somewhere else.
    pub(crate) fn of_this_host(label: u64) -> Self {
        let mut promised = Vec::new();
        for path in ["/etc/subuid", "/etc/subgid"] {
            promised.extend(parse_promises(&fs::read_to_string(path).unwrap_or_default()));
        }
        let mut ranges = Self::between(FIRST + WHOLE, LAST, WHOLE);
        let start = u32::try_from(label % u64::from(ranges.count())).unwrap_or(0);
        ranges.next += start * WHOLE;
        Self { promised, goes_round: true, ..ranges }
    }

    /// Those of a user whose namespace has so many ids beside its root.
    pub(crate) fn of_a_user(ids: u32) -> Self {
        if ids < SMALLEST {
            return Self::between(0, 0, 1);
        }
        let size = 1 << (ids / SANDBOXES_OF_A_USER).max(1).ilog2();
        let size = size.clamp(SMALLEST, WHOLE);
        Self::between(1, 1 + (ids / size - 1) * size, size)
    }

    /// Whether a sandbox has one id only.
    pub(crate) fn are_single(&self) -> bool {
        self.size == 1
    }

    fn between(first: u32, last: u32, size: u32) -> Self {
        Self {
            taken: BTreeSet::new(),
            promised: Vec::new(),
            first,
            last,
            size,
            next: first,
            goes_round: false,
        }
    }

    fn count(&self) -> u32 {
        (self.last - self.first) / self.size + 1
    }

    /// A range that nobody has.
    pub(crate) fn take(&mut self) -> Option<IdRange> {
        let count = self.size;
        if count == 1 {
            // Everybody's: there is no other.
            return Some(IdRange { base: self.first, count });
        }
        let mut base = self.next;
        for _ in 0..self.count() {
            let behind = if base >= self.last { self.first } else { base + count };
            if self.is_free(base) {
                self.taken.insert(base);
                self.next = if self.goes_round { behind } else { self.first };
                return Some(IdRange { base, count });
            }
            base = behind;
        }
        None
    }

    /// Notes a range that a sandbox from before has.
    pub(crate) fn note(&mut self, range: IdRange) {
        self.taken.insert(range.base);
    }

    pub(crate) fn give_back(&mut self, range: IdRange) {
        self.taken.remove(&range.base);
    }

    fn is_free(&self, base: u32) -> bool {
        let overlaps = |(start, count): &(u32, u32)| {
            *start < base + self.size && base < start.saturating_add(*count)
        };
        !self.taken.contains(&base) && !self.promised.iter().any(overlaps)
    }
}

/// Reads `name:first:count` lines; what is not one is nobody's promise.
fn parse_promises(text: &str) -> impl Iterator<Item = (u32, u32)> {
    text.lines().filter_map(|line| parse_promise(line).map(|(_, first, count)| (first, count)))
}

/// One line of `/etc/subuid`: whose it is, the first id and how many.
pub(crate) fn parse_promise(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.split(':');
    let whose = fields.next()?;
    let first = fields.next()?.trim().parse().ok()?;
    let count = fields.next()?.trim().parse().ok()?;
    Some((whose, first, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(subuid: &str) -> Ranges {
        let promised = parse_promises(subuid).collect();
        Ranges { promised, ..Ranges::between(FIRST + WHOLE, LAST, WHOLE) }
    }

    fn all(ranges: &mut Ranges) -> Vec<IdRange> {
        std::iter::from_fn(|| ranges.take()).collect()
    }

    #[test]
    fn two_sandboxes_never_share_an_id() {
        for mut ranges in [ranges(""), Ranges::of_a_user(65_536), Ranges::of_a_user(1 << 22)] {
            let mut all = all(&mut ranges);
            all.sort_by_key(|range| range.base);
            assert!(all.len() >= 32);
            assert!(all.windows(2).all(|pair| pair[0].base + pair[0].count <= pair[1].base));
        }
    }

    #[test]
    fn a_range_promised_in_subuid_is_left_alone() {
        let mut ranges = ranges(&format!("alice:{}:10\ngarbage\nbob:1:x\n", FIRST + WHOLE + 5));
        assert_eq!(ranges.take().unwrap().base, FIRST + 2 * WHOLE);
    }

    #[test]
    fn ranges_end_and_begin_again_when_given_back() {
        let mut ranges = ranges("");
        let all = all(&mut ranges);
        assert_eq!(all.len(), 4094);
        ranges.give_back(all[7]);
        assert_eq!(ranges.take(), Some(all[7]));
        assert_eq!(ranges.take(), None);
    }

    #[test]
    fn a_users_range_is_split_and_never_left() {
        for (ids, size, sandboxes) in
            [(2048, 2048, 1), (65_535, 2048, 31), (65_536, 2048, 32), (1 << 21, 1 << 16, 32)]
        {
            let all = all(&mut Ranges::of_a_user(ids));
            assert_eq!(all.len(), sandboxes, "{ids}");
            assert!(all.iter().all(|range| range.base >= 1 && range.count == size), "{ids}");
            assert!(all.iter().all(|range| range.base + range.count <= ids + 1), "{ids}");
        }
    }

    #[test]
    fn without_subordinate_ids_everybody_is_the_same() {
        let mut ranges = Ranges::of_a_user(0);
        let (one, other) = (ranges.take().unwrap(), ranges.take().unwrap());
        assert!(one == other && one.is_single());
        assert_eq!(one.map(), "1000 0 1");
        assert_eq!((one.outside(0), one.outside(1000), one.outside(65_534)), (0, 0, 0));
    }

    #[test]
    fn a_part_of_a_range_still_has_nobody_in_it() {
        let range = IdRange { base: 10, count: 2048 };
        assert_eq!(range.map(), "0 10 2047\n65534 2057 1");
        assert_eq!((range.outside(0), range.outside(1000)), (10, 1010));
        assert_eq!((range.outside(NOBODY), range.outside(40_000)), (2057, 10));
        let whole = IdRange { base: 10, count: WHOLE };
        assert_eq!((whole.map().as_str(), whole.outside(NOBODY)), ("0 10 65536", 65_544));
    }
}
