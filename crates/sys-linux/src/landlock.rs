//! The kernel's rules that a process puts on itself.

use std::io;
use std::ptr;

/// Asks for the version instead of making a set of rules.
const CREATE_RULESET_VERSION: u32 = 1;

/// Which version of the rules this kernel has. Refused with `ENOSYS` where it was built without
/// them, and with `EOPNOTSUPP` where they were left out at boot.
pub fn version() -> io::Result<u32> {
    // SAFETY: with this flag the call reads nothing: the pointer must be null and the size zero.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}
