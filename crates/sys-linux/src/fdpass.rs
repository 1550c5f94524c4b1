//! Descriptors and identities that come through sockets, or were there at the start.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::Pid;

/// The most descriptors that travel with one message.
pub const MOST_DESCRIPTORS: usize = 8;

/// Sends one message with descriptors (at most [`MOST_DESCRIPTORS`]) through a socket.
///
/// The receiver gets copies; the sender's stay open until it closes them.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors to send"));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Receives one message with the descriptors that came along, all of them close-on-exec.
///
/// Zero bytes mean that the other side is gone. A message that did not fit is an error, since
/// part of it is lost.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut short"));
    }
    Ok((message.bytes, descriptors))
}

/// The process at the other end of a unix socket when it was connected; none when that
/// process is outside of this one's pid namespace.
///
/// rustix has this call too, but its process id cannot be zero, which is just the answer that
/// matters here.
pub fn peer_process(socket: impl AsFd) -> io::Result<Option<Pid>> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or_default();
    // SAFETY: the pointers are to a `ucred` and to its size, both alive during the call, and
    // the kernel writes no more than that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(Pid::from_raw(credentials.pid)) } else { Err(io::Error::last_os_error()) }
}

/// Takes over a descriptor that was open when the program started, and makes it close-on-exec.
///
/// For the first lines of `main`, before anything else was opened: only then is it sure that
/// the number belongs to nobody. Each number below 64 is given once; others are refused.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    let bit = u32::try_from(number).ok().and_then(|number| 1u64.checked_shl(number));
    let refused = || io::Error::other(format!("descriptor {number} cannot be taken over"));
    let bit = bit.filter(|_| number > 2).ok_or_else(refused)?;
    if GIVEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(refused());
    }
    // SAFETY: F_SETFD touches the flags of a descriptor only, and fails on one that is not open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as the call above proved, and owned by nobody: the function is called
    // before the program opens anything, and gives each number once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::{Read, Write};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_descriptor_arrives_with_its_message() {
        let (here, there) = pair();
        let (mut reader, writer) = io::pipe().unwrap();
        send(&here, b"take it", &[writer.as_fd()], SendFlags::empty()).unwrap();
        drop(writer);

        let mut bytes = [0; 16];
        let (length, mut descriptors) = receive(&there, &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!(&bytes[..length], b"take it");
        assert_eq!(descriptors.len(), 1);
        std::fs::File::from(descriptors.remove(0)).write_all(b"through").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn a_message_that_does_not_fit_is_an_error() {
        let (here, there) = pair();
        send(&here, b"too long", &[], SendFlags::empty()).unwrap();
        let error = receive(&there, &mut [0; 3], RecvFlags::empty()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_closed_socket_gives_zero_bytes() {
        let (here, there) = pair();
        drop(here);
        assert_eq!(receive(&there, &mut [0; 3], RecvFlags::empty()).unwrap().0, 0);
    }

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (here, _there) = pair();
        assert_eq!(peer_process(&here).unwrap(), Some(rustix::process::getpid()));
    }

    #[test]
    fn standard_output_and_closed_numbers_cannot_be_taken_over() {
        assert!(inherited(1).is_err());
        assert!(inherited(63).is_err());
        assert!(inherited(64).is_err());
        assert!(inherited(-1).is_err());
    }
}
