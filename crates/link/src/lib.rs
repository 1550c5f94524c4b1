//! Typed messages, with descriptors, between programs of ours on one machine.
//!
//! One message is one packet of a `SOCK_SEQPACKET` socket: no lengths to trust, no streams to
//! fall out of step with.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, socket_with, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sys_linux::fdpass;

/// No message of ours comes near it; what is larger is not ours.
const LARGEST: usize = 128 * 1024;

/// Two ends of a new connection.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. With `DONTWAIT`, a receiver that does not read is an error.
pub fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    fdpass::send(socket, &bytes, descriptors, flags).map(|_| ())
}

/// Receives one message; `None` when the other side is gone.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LARGEST];
    let (length, descriptors) = fdpass::receive(socket, &mut bytes, flags)?;
    if length == 0 {
        return Ok(None);
    }
    let message = postcard::from_bytes(&bytes[..length])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptors)))
}

/// Listens at a name in a folder, for our own user alone. Accepting does not wait.
pub fn listen_at(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    // The name gets the mode that the socket has when it is bound.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    with_address(folder, name, |address| bind(&socket, address))?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Connects to whoever listens at a name in a folder.
pub fn dial(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
    with_address(folder, name, |address| connect(&socket, address))?;
    Ok(socket)
}

/// The same without waiting: where too many wait to be let in, that is an error.
pub fn dial_at_once(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    with_address(folder, name, |address| connect(&socket, address))?;
    Ok(socket)
}

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket's path may have 108 bytes at most, a home any number: so by way of its folder.
fn with_address(
    folder: &Path,
    name: &str,
    act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let folder = File::open(folder)?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(act(&SocketAddrUnix::new(path)?)?)
}
