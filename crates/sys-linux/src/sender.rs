//! Messages with the kernel's word on who sent them.
//!
//! rustix reads such credentials too, but its process id cannot be zero, and zero is what the
//! kernel says of a sender outside of the receiver's pid namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::net::sockopt::set_socket_passcred;
use rustix::process::Pid;

/// The most descriptors that the kernel takes along with one message.
const MOST_OF_KERNEL: usize = 253;

/// Room for credentials and for all descriptors that can come, in units as aligned as the
/// kernel's records are. Those without room would be closed by the kernel within the call, which
/// may take its time.
const ROOM: usize = (32 + 16 + MOST_OF_KERNEL * size_of::<i32>()).div_ceil(size_of::<u64>());

/// One message.
#[derive(Debug)]
pub struct Received {
    /// How many bytes it had.
    pub length: usize,
    /// The descriptors that came along, all of them close-on-exec. Whoever sent them chose what
    /// they are: closing one may take its time.
    pub descriptors: Vec<OwnedFd>,
    /// Who sent it.
    pub sender: Option<Sender>,
    /// Part of it did not fit and is lost.
    pub cut: bool,
}

/// A process that sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Its id; none when it is outside of this process's pid namespace.
    pub pid: Option<Pid>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Has the kernel say with every message who sent it.
pub fn ask_for_senders(socket: impl AsFd) -> io::Result<()> {
    Ok(set_socket_passcred(socket, true)?)
}

/// Receives one message without waiting.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Received> {
    let mut room = [0u64; ROOM];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` is plain data, for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&room);
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header points to one part and to the room for records, each with its length,
    // and all of them live during the call.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        length,
        descriptors: Vec::new(),
        sender: None,
        cut: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
    };
    // SAFETY: the header is as the kernel has left it.
    let mut record = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !record.is_null() {
        // SAFETY: the macros gave a record that lies in `room`, which is aligned for it.
        let (head, data) = unsafe { (ptr::read(record), libc::CMSG_DATA(record)) };
        // SAFETY: computes a length from a number.
        let before = unsafe { libc::CMSG_LEN(0) } as usize;
        let size = head.cmsg_len.saturating_sub(before);
        match (head.cmsg_level, head.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                // SAFETY: the kernel wrote `size` bytes of numbers here, into room of ours.
                let numbers = unsafe { std::slice::from_raw_parts(data, size) };
                for number in numbers.as_chunks().0 {
                    // SAFETY: each of them is a new descriptor, nobody's yet.
                    let own = unsafe { OwnedFd::from_raw_fd(i32::from_ne_bytes(*number)) };
                    received.descriptors.push(own);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if size >= size_of::<libc::ucred>() => {
                // SAFETY: the kernel wrote a `ucred` here, as long as was checked.
                let sender = unsafe { ptr::read_unaligned(data.cast::<libc::ucred>()) };
                let pid = Pid::from_raw(sender.pid);
                received.sender = Some(Sender { pid, uid: sender.uid, gid: sender.gid });
            }
            _ => {}
        }
        // SAFETY: as for the first record.
        record = unsafe { libc::CMSG_NXTHDR(&raw const message, record) };
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdpass::{MOST_DESCRIPTORS, send};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
    use rustix::process::{getgid, getpid, getuid};

    fn pair() -> (OwnedFd, OwnedFd) {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        ask_for_senders(&there).unwrap();
        (here, there)
    }

    #[test]
    fn a_message_tells_who_sent_it_and_brings_its_descriptors() {
        let (here, there) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(&here, b"word", &[null.as_fd(); MOST_DESCRIPTORS], SendFlags::empty()).unwrap();
        let mut bytes = [0; 16];
        let received = receive(&there, &mut bytes).unwrap();
        assert_eq!(&bytes[..received.length], b"word");
        assert_eq!((received.descriptors.len(), received.cut), (MOST_DESCRIPTORS, false));
        let sender = received.sender.unwrap();
        assert_eq!(sender.pid, Some(getpid()));
        assert_eq!((sender.uid, sender.gid), (getuid().as_raw(), getgid().as_raw()));
    }

    #[test]
    fn what_did_not_fit_is_said_to_be_cut() {
        let (here, there) = pair();
        send(&here, b"too long", &[], SendFlags::empty()).unwrap();
        assert!(receive(&there, &mut [0; 3]).unwrap().cut);
    }

    #[test]
    fn an_empty_socket_says_so_at_once() {
        let (_here, there) = pair();
        assert_eq!(receive(&there, &mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
