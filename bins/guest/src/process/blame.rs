//! Why a command failed, as far as its sandbox shows it.
//!
//! The kernel counts how often the sandbox ran into its limits. What was counted while a command
//! ran, and a disk that is full when it ends, are named as the cause of its failure. Several
//! commands at a time share the counts: then each that fails meanwhile is told of it, and the
//! words say "the sandbox" and not "the command".

use domain::Cause;
use rustix::fs::{CWD, Mode, OFlags, StatVfs, openat, statvfs};
use rustix::io::Errno;

use super::ending::Exit;
use crate::metrics::{Strikes, strikes};

/// A disk with less room than this, in bytes, is full: what is written at once is often more.
const FULL: u64 = 256 << 10;

/// So many blocks at the most a file system keeps for itself, where nobody asked for more.
const MOST_SET_ASIDE: u64 = 4096;

/// What was counted when a command began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before(Strikes);

impl Before {
    /// Counts now.
    pub(crate) fn now() -> Self {
        Self(strikes())
    }

    /// Why a command that began then and ended so has failed, if that can be seen.
    pub(crate) fn blame(self, exit: Exit) -> Option<Cause> {
        const BUS_ERROR: i32 = 7;
        if exit == Exit::Code(0) {
            return None;
        }
        let now = strikes();
        if now.oom_kills > self.0.oom_kills {
            return Some(Cause::OutOfMemory);
        }
        match exit {
            // A file that is written through memory: the kernel has no other way to say it.
            Exit::Code(_) | Exit::Signal(BUS_ERROR) => {}
            Exit::Signal(_) => return None,
        }
        if now.refused_processes > self.0.refused_processes {
            return Some(Cause::ProcessLimit);
        }
        if is_broken() {
            return Some(Cause::DiskFailed);
        }
        full(statvfs("/").ok(), statvfs("/dev/shm").ok())
    }
}

/// Whether the disk can only be read. Nothing tells but to try: the overlay above it is as it was.
fn is_broken() -> bool {
    // A file without a name, which is gone with its descriptor.
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    matches!(openat(CWD, "/", flags, Mode::RUSR), Err(Errno::ROFS | Errno::IO))
}

fn full(disk: Option<StatVfs>, shared: Option<StatVfs>) -> Option<Cause> {
    let room = |disk: &StatVfs| disk.f_bavail.saturating_mul(disk.f_frsize);
    match disk {
        // More than the kernel ever sets aside by itself is set aside: by the engine, which closed
        // the disk.
        Some(disk) if disk.f_bavail == 0 && disk.f_bfree > MOST_SET_ASIDE => {
            return Some(Cause::HostDiskFull);
        }
        Some(disk) if room(&disk) < FULL => return Some(Cause::DiskFull),
        // Some file systems make them as they need them, and count none.
        Some(disk) if disk.f_files > 0 && disk.f_favail == 0 => return Some(Cause::InodesFull),
        _ => {}
    }
    shared
        .filter(|shared| shared.f_blocks > 0 && room(shared) == 0)
        .map(|_| Cause::SharedMemoryFull)
}
