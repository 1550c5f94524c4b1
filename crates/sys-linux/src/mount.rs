//! Mount attributes, which rustix does not wrap yet.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What a mount does not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// No set-user-id programs and no device files.
    pub const SAFE: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// As [`Self::SAFE`], and nothing can be written.
    pub const SAFE_READ_ONLY: Self = Self(Self::SAFE.0 | libc::MOUNT_ATTR_RDONLY);
    /// No set-user-id programs and nothing to write, but device files work: for `/dev`.
    pub const DEVICES: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_RDONLY);
}

/// Adds attributes to the one mount that `mount` refers to.
pub fn restrict(mount: impl AsFd, attributes: Attributes) -> io::Result<()> {
    set(mount.as_fd(), c"", 0, attributes.0, None)
}

/// Adds attributes to the mount and to all below it.
pub fn restrict_below(mount: impl AsFd, attributes: Attributes) -> io::Result<()> {
    set(mount.as_fd(), c"", libc::AT_RECURSIVE, attributes.0, None)
}

/// Adds attributes to a mount that is attached nowhere yet, and shifts the ids of its files
/// into the given user namespace.
pub fn map_ids(mount: impl AsFd, attributes: Attributes, user: impl AsFd) -> io::Result<()> {
    set(mount.as_fd(), c"", 0, attributes.0 | libc::MOUNT_ATTR_IDMAP, Some(user.as_fd()))
}

fn set(
    mount: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
    attributes: u64,
    user: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user.map_or(0, |user| u64::try_from(user.as_raw_fd()).unwrap_or(0)),
    };
    // SAFETY: the path is a C string and the structure has the size that is given; both outlive
    // the call, which reads them only. The descriptors are borrowed for as long.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
