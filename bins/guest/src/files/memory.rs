//! Room on file systems that are memory, such as `/dev/shm`.
//!
//! What the guest writes there is charged to the guest, whose share is small: process 1 would end
//! for want of it, and the sandbox with it. So all that it writes there has one bound.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{FileError, FileErrorKind};

/// As much as the guest writes there, and is still there.
const MOST: u64 = 64 << 20;

/// What it wrote.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The kernel's number for `tmpfs`.
const TMPFS: u64 = 0x0102_1994;

/// Whether an open file lies in memory.
pub(crate) fn holds(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file)
        .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|kind| kind == TMPFS))
}

/// Takes room for so many bytes of `file`, which lies in memory and is to be called `path`.
pub(crate) fn take(file: impl AsFd, length: u64, path: &Path) -> Result<(), FileError> {
    let room = |used: u64| used.checked_add(length).filter(|sum| *sum <= MOST);
    let count = || WRITTEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
    if count() {
        return Ok(());
    }
    // Some of it may have been removed since: there is no more of ours than there is of all.
    if let Ok(system) = rustix::fs::fstatvfs(file) {
        let blocks = system.f_blocks.saturating_sub(system.f_bfree);
        WRITTEN.fetch_min(blocks.saturating_mul(system.f_frsize), Ordering::Relaxed);
    }
    if count() {
        return Ok(());
    }
    let path = path.display();
    Err(FileError::new(
        FileErrorKind::NoSpace,
        format!(
            "'{path}' would lie in memory, where at most {MOST} bytes can be uploaded: upload it \
             elsewhere and copy it from inside"
        ),
    ))
}
