//! What the guest asks the spawner for: a command and the descriptors it gets.
//!
//! The datagram itself is only a length. The command lies in a memory file that travels with
//! it, because arguments and environment may take 2 MiB and a datagram holds some 200 KiB.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use sys_linux::fdpass;

/// The largest command that is taken: what the kernel would take, and room to spare.
const LARGEST_COMMAND: usize = 32 << 20;

/// What to run, and as whom. All checks are done: the keeper does as it is told.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Command {
    /// The program's name and its arguments. Not empty.
    pub(crate) arguments: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(crate) environment: Vec<CString>,
    /// Where it starts.
    pub(crate) workdir: CString,
    /// The user.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
    /// All groups.
    pub(crate) groups: Vec<u32>,
    /// How gladly the kernel kills it when memory runs out.
    pub(crate) oom_score_adjustment: i32,
    /// Its standard input is a terminal, which is to be its own.
    pub(crate) terminal: bool,
}

/// A command with its descriptors.
#[derive(Debug)]
pub(crate) struct Request {
    /// What to run.
    pub(crate) command: Command,
    /// Its standard input.
    pub(crate) stdin: OwnedFd,
    /// Its standard output.
    pub(crate) stdout: OwnedFd,
    /// Its standard error.
    pub(crate) stderr: OwnedFd,
    /// Where its keeper reports and takes orders.
    pub(crate) control: OwnedFd,
    /// What it finds at 3, 4, 5, as far as there is something.
    pub(crate) further: Vec<OwnedFd>,
}

/// As many descriptors as a command can be given beside the usual three.
pub(crate) const MOST_FURTHER: usize = fdpass::MOST_DESCRIPTORS - USUAL;

/// Standard input, output and error, the keeper's end of the control socket, the command.
const USUAL: usize = 5;

impl Request {
    /// Sends the request without waiting. The descriptors are copied on the way.
    ///
    /// `body` comes from [`Command::to_file`], so that a full socket costs no second encoding.
    pub(crate) fn send(
        spawner: impl AsFd,
        body: &Body,
        [stdin, stdout, stderr, control]: [BorrowedFd<'_>; 4],
        further: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let usual: [_; USUAL] = [stdin, stdout, stderr, control, body.file.as_fd()];
        let mut descriptors = [stdin; USUAL + MOST_FURTHER];
        let (first, rest) = descriptors.split_at_mut(USUAL);
        first.copy_from_slice(&usual);
        for (place, descriptor) in rest.iter_mut().zip(further) {
            *place = *descriptor;
        }
        let descriptors = &descriptors[..USUAL + further.len().min(MOST_FURTHER)];
        let length = body.length.to_le_bytes();
        fdpass::send(spawner, &length, descriptors, SendFlags::DONTWAIT).map(|_| ())
    }

    /// Waits for a request. None means that the guest is gone.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Self>> {
        let mut length = [0; 8];
        let (size, mut descriptors) = fdpass::receive(socket, &mut length, RecvFlags::empty())?;
        if size == 0 {
            return Ok(None);
        }
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "not a request");
        let further = descriptors.split_off(descriptors.len().min(USUAL));
        let [stdin, stdout, stderr, control, body] =
            <[OwnedFd; USUAL]>::try_from(descriptors).map_err(|_| broken())?;
        let length = usize::try_from(u64::from_le_bytes(length)).map_err(|_| broken())?;
        if length > LARGEST_COMMAND {
            return Err(broken());
        }
        let mut bytes = vec![0; length];
        File::from(body).read_exact_at(&mut bytes, 0)?;
        let command: Command = postcard::from_bytes(&bytes).map_err(|_| broken())?;
        Ok(Some(Self { command, stdin, stdout, stderr, control, further }))
    }
}

/// An encoded command.
#[derive(Debug)]
pub(crate) struct Body {
    file: File,
    length: u64,
}

impl Command {
    /// Encodes the command into a memory file.
    pub(crate) fn to_file(&self) -> io::Result<Body> {
        let bytes = postcard::to_stdvec(self).map_err(io::Error::other)?;
        if bytes.len() > LARGEST_COMMAND {
            // What exec would say, had it been asked.
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::TOOBIG.raw_os_error()));
        }
        let mut file = File::from(memfd_create("command", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Body { file, length: bytes.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn a_command_of_two_mebibytes_arrives_whole() {
        let (guest, spawner) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let command = Command {
            arguments: vec![c"echo".into(), CString::new(vec![b'x'; 2 << 20]).unwrap()],
            environment: vec![c"A=1".into()],
            workdir: c"/".into(),
            uid: 1,
            gid: 2,
            groups: vec![2, 3],
            oom_score_adjustment: 500,
            terminal: true,
        };
        let null = File::open("/dev/null").unwrap();
        let body = command.to_file().unwrap();
        for further in 0..=MOST_FURTHER {
            let descriptors = vec![null.as_fd(); further];
            Request::send(&guest, &body, [null.as_fd(); 4], &descriptors).unwrap();
            let request = Request::receive(&spawner).unwrap().unwrap();
            assert_eq!(request.command, command);
            assert_eq!(request.further.len(), further);
        }
    }

    #[test]
    fn a_guest_that_is_gone_gives_no_request() {
        let (guest, spawner) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        drop(guest);
        assert!(Request::receive(&spawner).unwrap().is_none());
    }
}
