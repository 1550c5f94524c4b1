//! What is done when the host's disk runs low while sandboxes run.
//!
//! ```text
//! left of the host's disk
//!   more than the reserve        all is as usual
//!   less than the reserve        no sandbox is made or started (`reserves`)
//!   less than 3/4 of it          disks take no more: what needs room there gets `ENOSPC`
//!   less than half of it         who uses up more all the same is stopped; its files stay
//! ```
//!
//! Nobody's writes are lost that way: a disk whose host is full breaks, after programs were told
//! that all went well. The last step is for those who had room promised to them before
//! (`fallocate`), which no file system takes back: what was promised and is not there yet is told
//! by what their disk holds, beside what it takes up on the host.
//!
//! The engine looks as often as it takes to be there in time, at the pace of a fast disk. What
//! programs have written and the kernel has not put down yet counts as taken. Where sandboxes have no
//! disks of their own there is nothing to do: a program that finds the host full is told so by the
//! host's file system.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use domain::Bytes;
use rustix::fs::statvfs;

use super::bodies::{Body, Stage};
use super::{Engine, Key, log};
use crate::disk::{NAME, set_closed};
use crate::reserves::{Reserves, Room};

/// Nothing fills a host faster than this, in bytes a second.
const FASTEST: u64 = 2 << 30;

/// How often the engine looks: at most, at least, and while disks are closed and there is no hurry.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(30);
const CALM: Duration = Duration::from_secs(1);

/// Who has less than this to come does no harm, in bytes.
const HARMLESS: u64 = 8 << 20;

/// What the engine knows about the room on its host.
pub(super) struct Watch {
    /// What is left to the host, as was last asked for.
    reserves: Reserves,
    look_after: Instant,
    /// Whether disks are closed; unknown until the first look, since an engine before this one may
    /// have closed them.
    closed: Option<bool>,
    /// Bodies that were told to end.
    stopped: BTreeSet<Key>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let (reserves, stopped) = (Reserves::default(), BTreeSet::new());
        Self { reserves, look_after: Instant::now(), closed: None, stopped }
    }

    /// From now on so much is left to the host.
    pub(super) fn leave(&mut self, reserves: Reserves) {
        if self.reserves != reserves {
            self.reserves = reserves;
            self.look_after = Instant::now();
        }
    }

    /// What is left to the host.
    pub(super) fn reserves(&self) -> Reserves {
        self.reserves
    }

    /// When to look next.
    pub(super) fn look_after(&self) -> Instant {
        self.look_after
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed == Some(true)
    }
}

/// What is to be done with so much left, beside a reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    close: bool,
    stop: bool,
    look_again: Duration,
}

impl Verdict {
    fn on(Bytes(left): Bytes, Bytes(reserve): Bytes, is_closed: bool) -> Self {
        let eighth = reserve / 8;
        // Opened with a little more than they were closed at, or both would alternate.
        let close = left < if is_closed { 7 * eighth } else { 6 * eighth };
        let stop = left < 4 * eighth;
        let spare = Duration::from_millis(left.saturating_sub(6 * eighth) / (FASTEST / 1000));
        let look_again = match (close, left < 6 * eighth) {
            (true, false) => CALM,
            _ => spare.clamp(SOONEST, LATEST),
        };
        Self { close, stop, look_again }
    }
}

impl Engine {
    /// Looks at what is left of the host's disk, when it is time to.
    pub(super) fn keep_room(&mut self) {
        let now = Instant::now();
        if now < self.room.look_after {
            return;
        }
        self.room.look_after = now + LATEST;
        if !self.host.rights.is_root() {
            return;
        }
        let Some(room) = Room::on(self.host.options.home.path()) else { return };
        let unwritten: u64 = self.bodies.values().map(|body| body.group.unwritten().0).sum();
        let left = Bytes(room.left.0.saturating_sub(unwritten));
        let reserve = self.room.reserves.of_disk(room.size);
        let verdict = Verdict::on(left, reserve, self.room.is_closed());
        self.room.look_after = now + verdict.look_again;
        if self.room.closed != Some(verdict.close) {
            self.room.closed = Some(verdict.close);
            self.room.stopped.clear();
            self.set_disks_closed();
        }
        if verdict.stop {
            self.stop_who_writes_most();
        }
    }

    /// Closes all disks, or opens them. Asked again for each that comes later.
    pub(super) fn set_disks_closed(&mut self) {
        let closed = self.room.is_closed();
        let changed = set_closed(self.host.options.home.path(), closed);
        if changed.done > 0 {
            let (done, what) = (changed.done, if closed { "closed" } else { "open again" });
            log(&format!("room on the host's disk: {done} disks of sandboxes are {what}"));
        }
        if changed.refused > 0 {
            let refused = changed.refused;
            log(&format!("the host's disk runs low, and {refused} disks cannot be closed"));
        }
    }

    /// Of those who were promised room that is not there yet.
    fn stop_who_writes_most(&mut self) {
        let bodies = self.bodies.iter().filter(|(key, body)| {
            !self.room.stopped.contains(key) && body.owner.is_some() && promised(body) > HARMLESS
        });
        let writes = bodies.map(|(key, body)| (body.group.unwritten(), *key));
        let Some((_, key)) = writes.filter(|(unwritten, _)| unwritten.0 > HARMLESS).max() else {
            return;
        };
        // Once: it takes a moment to end, and the next one is another's.
        self.room.stopped.insert(key);
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let who = body.owner.as_ref().map_or("", |id| id.as_str());
        log(&format!("the host's disk is nearly full: `{who}` goes on writing, and is stopped"));
        if let Err(failure) = body.order(b"F") {
            log(&failure.to_string());
        }
        body.let_go();
    }
}

/// What a body's disk has given out and will not take up on the host by what is written so far, in
/// bytes.
fn promised(body: &Body) -> u64 {
    let Stage::Ready(reach) = &body.stage else { return 0 };
    // The kernel's own figures, of the disk below the root of the first process.
    let root = statvfs(format!("/proc/{}/root", reach.first.as_raw_pid()));
    let taken_up = fs::metadata(body.folder.join(NAME)).map(|disk| disk.blocks() * 512);
    let (Ok(root), Ok(taken_up)) = (root, taken_up) else { return 0 };
    let holds = root.f_blocks.saturating_sub(root.f_bfree).saturating_mul(root.f_frsize);
    holds.saturating_sub(taken_up).saturating_sub(body.group.unwritten().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_closed_in_time_and_opened_again_with_some_to_spare() {
        let reserve = Bytes::gibibytes(8);
        let on =
            |gibibytes, is_closed| Verdict::on(Bytes::gibibytes(gibibytes), reserve, is_closed);
        assert!(!on(6, false).close);
        assert!(on(5, false).close && !on(4, true).stop);
        assert!(on(3, true).close && on(3, true).stop);
        // Between the two it stays what it was.
        assert!(on(6, true).close && !on(7, true).close);
        // Nothing is left to the host: nothing is ever closed.
        assert!(!Verdict::on(Bytes(0), Bytes(0), false).close);
    }

    #[test]
    fn the_engine_looks_again_before_anybody_can_have_used_it_up() {
        let reserve = Bytes::gibibytes(8);
        let after = |left| Verdict::on(left, reserve, false).look_again;
        assert_eq!(after(Bytes::gibibytes(6)), SOONEST);
        assert_eq!(after(Bytes::gibibytes(16)).as_secs(), 5);
        assert_eq!(after(Bytes::gibibytes(900)), LATEST);
        assert_eq!(Verdict::on(Bytes(0), reserve, true).look_again, SOONEST);
        assert_eq!(Verdict::on(Bytes::gibibytes(6), reserve, true).look_again, CALM);
    }
}
