//! What becomes of a file's bytes on their way to the disk.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{fstatfs, fsync};

/// File systems with one journal for everything, in which nothing overtakes what was before it.
const IN_ORDER: [i64; 2] = [0xef53, 0x5846_5342];

/// Sees to it that no later change of the file's folder reaches the disk before what the file has
/// now. That all of it is there is certain only when the folder is synchronised.
///
/// Where a journal keeps the order this waits for the bytes alone, and the folder's wait for the
/// journal is the only one; elsewhere it waits for everything.
pub fn write_out(file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd();
    if !fstatfs(file).is_ok_and(|found| IN_ORDER.contains(&found.f_type)) {
        return Ok(fsync(file)?);
    }
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call has numbers and an open descriptor as its arguments, and no memory.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
