//! Typed messages, with descriptors, between the engine and what it talks to.
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
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. With `DONTWAIT`, a receiver that does not read is an error.
pub(crate) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    fdpass::send(socket, &bytes, descriptors, flags).map(|_| ())
}

/// Receives one message; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(
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
pub(crate) fn listen_at(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    // The name gets the mode that the socket has when it is bound.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    with_address(folder, name, |address| bind(&socket, address))?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// Connects to whoever listens at a name in a folder.
pub(crate) fn dial(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::Report;
    use crate::verbs::{Reply, Request, Verb};

    /// What a side that means harm sends arrives as a message or as an error, and nothing else.
    fn arrives<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let (near, far) = pair().unwrap();
        fdpass::send(&near, bytes, &[], SendFlags::empty()).unwrap();
        receive(&far, RecvFlags::empty())
    }

    proptest! {
        #[test]
        fn no_packet_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let _ = arrives::<Request>(&bytes);
            let _ = arrives::<Reply>(&bytes);
            let _ = arrives::<Report>(&bytes);
        }

        #[test]
        fn a_damaged_request_names_no_sandbox_that_could_not_be(
            place in 0usize..40,
            byte in any::<u8>(),
        ) {
            let id = crate::random_id().unwrap();
            let request = Request { number: 7, verb: Verb::Destroy { id } };
            let mut bytes = postcard::to_stdvec(&request).unwrap();
            let place = place % bytes.len();
            bytes[place] = byte;
            if let Ok(Some((Request { verb: Verb::Destroy { id }, .. }, _))) = arrives(&bytes) {
                // It becomes the name of a folder.
                prop_assert!(id.as_str().parse::<domain::SandboxId>().is_ok());
                prop_assert!(!id.as_str().contains(['/', '.', '\0']));
            }
        }
    }
}
