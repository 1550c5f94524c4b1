//! The one interface of a sandbox.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Switches `lo` on in this process's network namespace, which gives it its addresses.
pub fn bring_loopback_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: the structure is plain data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *place = letter.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(io::Error::other)?;
    // SAFETY: the request reads one `ifreq`, whose name ends with a zero, and which outlives
    // the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets a socket listen for connections to addresses that are nobody's here, and answer as them.
pub fn listen_for_all(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    // SAFETY: the option reads one integer, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_IP,
            libc::IP_TRANSPARENT,
            (&raw const on).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
