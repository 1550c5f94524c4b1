//! Reaching into a sandbox's namespaces, and coming back.
//!
//! Between going and coming back nothing else happens: the engine has one thread. If it could
//! not come back it would go on inside somebody's sandbox, so then it ends at once.

use std::fs::File;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::namespace::{leave, set_host_name};

/// The guest's socket: abstract, so it belongs to the sandbox's network namespace and to no
/// file system that user code could touch.
const GUEST: &[u8] = b"soma-guest";

/// Connects to the guest from inside the sandbox's network namespace.
///
/// Never waits: a sandbox could make its guest's queue full for ever.
pub(super) fn dial_guest(sandbox: &File, own: &File) -> io::Result<OwnedFd> {
    dial_name(sandbox, own, GUEST)
}

/// Connects to where the guest tells whose a connection is, and nothing else. A guest of an earlier
/// version has no such place.
pub(super) fn dial_whose(sandbox: &File, own: &File) -> io::Result<OwnedFd> {
    dial_name(sandbox, own, domain::WHOSE)
}

fn dial_name(sandbox: &File, own: &File, name: &[u8]) -> io::Result<OwnedFd> {
    within(sandbox, own, LinkNameSpaceType::Network, || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(socket)
    })
}

/// The sockets at which what a sandbox sends to the outside arrives.
pub(super) fn listen_inside(sandbox: &File, own: &File) -> io::Result<[OwnedFd; 2]> {
    let sockets = within(sandbox, own, LinkNameSpaceType::Network, wiring::listen)?;
    Ok(sockets.into())
}

/// Connects to a port of a sandbox, as another sandbox would that may.
///
/// Never waits: the connection may still be on its way.
pub(super) fn dial_port(sandbox: &File, own: &File, port: u16) -> io::Result<OwnedFd> {
    within(sandbox, own, LinkNameSpaceType::Network, || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match connect(&socket, &SocketAddrV4::new(wiring::OWN, port)) {
            Err(rustix::io::Errno::INPROGRESS) | Ok(()) => Ok(socket),
            Err(error) => Err(error.into()),
        }
    })
}

/// Gives the sandbox its host name.
pub(super) fn name_host(sandbox: &File, own: &File, name: &str) -> io::Result<()> {
    within(sandbox, own, LinkNameSpaceType::HostNameAndNISDomainName, || set_host_name(name))
}

fn within<T>(
    sandbox: &File,
    own: &File,
    kind: LinkNameSpaceType,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    move_into_link_name_space(sandbox.as_fd(), Some(kind))?;
    let result = act();
    if move_into_link_name_space(own.as_fd(), Some(kind)).is_err() {
        leave(70);
    }
    result
}
