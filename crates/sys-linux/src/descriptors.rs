//! Descriptors at numbers that a program about to be executed expects.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::fcntl_dupfd_cloexec;

/// Puts the given descriptors at 3, 4, 5 ..., in this order, and closes every other but
/// standard input, output and error.
///
/// Takes ownership of all of them, and is for a process that executes another program next:
/// whatever else this process had open is gone afterwards.
pub fn keep_only(wanted: Vec<OwnedFd>) -> io::Result<()> {
    let count = RawFd::try_from(wanted.len()).map_err(io::Error::other)?;
    let first_free = 3 + count;
    // First out of the way of each other, then down to their places.
    let mut moved = Vec::with_capacity(wanted.len());
    for descriptor in wanted {
        // SAFETY: F_DUPFD only makes a new descriptor.
        let copy =
            unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first_free) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        moved.push(copy);
        std::mem::forget(descriptor);
    }
    for (place, copy) in (3..).zip(moved) {
        // SAFETY: `dup2` closes what was at `place`. Whoever owned that number is never used
        // again: this process only executes another program after this function.
        if unsafe { libc::dup2(copy, place) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    close_from(first_free)
}

/// Puts copies of the given descriptors at 3, 4, 5 ..., in this order, for the program that is
/// executed next. That execution closes every other but standard input, output and error.
///
/// Returns a copy of `kept`, which is out of their way. For a process that was forked and either
/// executes another program or leaves: owners of what was at those numbers must not be used or
/// dropped any more.
pub fn place(wanted: &[OwnedFd], kept: &OwnedFd) -> io::Result<OwnedFd> {
    let first_free = 3 + RawFd::try_from(wanted.len()).map_err(io::Error::other)?;
    let out_of_the_way = |descriptor: &OwnedFd| fcntl_dupfd_cloexec(descriptor, first_free);
    let kept = out_of_the_way(kept)?;
    let copies = wanted.iter().map(out_of_the_way).collect::<Result<Vec<_>, _>>()?;
    for (place, copy) in (3..).zip(&copies) {
        // SAFETY: `dup2` closes what was at `place`. Whoever owned that number is never used
        // again, as the caller promises.
        if unsafe { libc::dup2(copy.as_raw_fd(), place) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    crate::process::close_on_execute_from(first_free)?;
    Ok(kept)
}

/// Closes every descriptor but standard input, output and error and the given ones.
///
/// For a process that was forked and shares nothing else with its parent: owners of the closed
/// descriptors that were copied along with the memory must not be used or dropped any more.
pub fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let mut kept: Vec<RawFd> = kept.iter().copied().filter(|number| *number > 2).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut first = 3;
    for number in kept {
        if number > first {
            close_range(first, number - 1)?;
        }
        first = number + 1;
    }
    close_from(first)
}

fn close_from(first: RawFd) -> io::Result<()> {
    close_range(first, RawFd::MAX)
}

fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    // SAFETY: closing is what the callers of this module asked for; see there.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
