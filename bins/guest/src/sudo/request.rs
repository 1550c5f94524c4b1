//! What the shim asks for, and what it is told.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use sys_linux::fdpass;

/// The message that asks whether the caller may use `sudo`. The conversation comes along.
pub(super) const ASK: &[u8] = b"ask";

/// The message that asks to run a program. [`Parts`] come along.
pub(super) const RUN: &[u8] = b"run";

/// The largest [`Wish`] that is taken: more than the kernel takes for arguments and environment.
const LARGEST_WISH: u64 = 8 << 20;

/// The longest thing that is said in a conversation.
const LONGEST_REPLY: usize = 4096;

/// What neither grows, shrinks nor changes: reading it can neither wait nor see two versions.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// What to run, and as whom.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wish {
    /// The program as it was called: a path, or a name to be found in the environment's `PATH`.
    pub(super) program: CString,
    /// Its arguments, with the name that it sees first. Not empty.
    pub(super) arguments: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(super) environment: Vec<CString>,
    /// Where to go from the caller's working folder, as the new user.
    pub(super) workdir: Option<CString>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    /// What new files do not get.
    pub(super) mask: u32,
    /// Standard output is a terminal made for this program alone, to be its own.
    pub(super) terminal: bool,
    /// The program stays when the shim is gone.
    pub(super) background: bool,
}

/// What comes along with [`RUN`], in this order.
#[derive(Debug)]
pub(super) struct Parts {
    /// Where the shim listens. First, so that a refusal finds it in both messages.
    pub(super) conversation: OwnedFd,
    /// The encoded [`Wish`].
    pub(super) wish: OwnedFd,
    /// The caller's working folder.
    pub(super) folder: OwnedFd,
    /// Standard input, output and error.
    pub(super) stdio: [OwnedFd; 3],
}

impl Parts {
    /// How many they are.
    pub(super) const COUNT: usize = 6;

    /// Tells them apart. None when they are not as many as they must be.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [conversation, wish, folder, stdin, stdout, stderr] = descriptors.try_into().ok()?;
        Some(Self { conversation, wish, folder, stdio: [stdin, stdout, stderr] })
    }

    /// Sends them to the guest.
    pub(super) fn send(&self, door: impl AsFd) -> io::Result<()> {
        let [stdin, stdout, stderr] = &self.stdio;
        let along = [&self.conversation, &self.wish, &self.folder, stdin, stdout, stderr];
        let along = along.map(AsFd::as_fd);
        fdpass::send(door, RUN, &along, SendFlags::empty()).map(|_| ())
    }
}

impl Wish {
    /// Encodes the wish into a memory file that nobody can change any more.
    pub(super) fn to_file(&self) -> io::Result<OwnedFd> {
        let bytes = postcard::to_stdvec(self).map_err(io::Error::other)?;
        if bytes.len() as u64 > LARGEST_WISH {
            return Err(rustix::io::Errno::TOOBIG.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("sudo", flags)?);
        file.write_all(&bytes)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(file.into())
    }

    /// Reads what [`Wish::to_file`] has written, or anything that somebody claims to be it.
    pub(super) fn from_file(file: OwnedFd) -> io::Result<Self> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "the request makes no sense");
        // Only a memory file can have these.
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(broken());
        }
        let file = File::from(file);
        let length = file.metadata()?.len();
        if length > LARGEST_WISH {
            return Err(broken());
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| broken())?];
        file.read_exact_at(&mut bytes, 0)?;
        let wish: Self = postcard::from_bytes(&bytes).map_err(|_| broken())?;
        if wish.arguments.is_empty() { Err(broken()) } else { Ok(wish) }
    }
}

/// What the shim is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The caller may use `sudo`: the answer to [`ASK`].
    Allowed,
    /// It is not done, and why. The last reply.
    Refused(String),
    /// The program runs.
    Started,
    /// The program was stopped, as with Ctrl-Z.
    Stopped,
    /// The program ended by itself. The last reply.
    Exited(i32),
    /// A signal ended the program. The last reply.
    Signalled(i32),
}

impl Reply {
    /// Says it without waiting: a shim that does not listen misses it.
    pub(super) fn send(&self, conversation: impl AsFd) {
        if let Ok(bytes) = postcard::to_stdvec(self) {
            let _ = fdpass::send(conversation, &bytes, &[], SendFlags::DONTWAIT);
        }
    }

    /// Waits for the next reply. None means that nobody is there any more.
    pub(super) fn receive(conversation: impl AsFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; LONGEST_REPLY];
        let (length, _) = fdpass::receive(conversation, &mut bytes, RecvFlags::empty())?;
        if length == 0 {
            return Ok(None);
        }
        postcard::from_bytes(&bytes[..length]).map(Some).map_err(io::Error::other)
    }

    /// A refusal, no longer than a reply may be.
    pub(super) fn refused(why: &str) -> Self {
        Self::Refused(why.chars().take(LONGEST_REPLY / 8).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::sudo) fn wish() -> Wish {
        Wish {
            program: c"id".into(),
            arguments: vec![c"id".into(), c"-u".into()],
            environment: vec![c"PATH=/usr/bin".into()],
            workdir: Some(c"/tmp".into()),
            uid: 0,
            gid: 0,
            groups: vec![0],
            mask: 0o22,
            terminal: false,
            background: false,
        }
    }

    fn sealed(bytes: &[u8]) -> OwnedFd {
        let file = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        fcntl_add_seals(&file, SEALS).unwrap();
        file.into()
    }

    #[test]
    fn a_wish_arrives_as_it_was_made() {
        assert_eq!(Wish::from_file(wish().to_file().unwrap()).unwrap(), wish());
    }

    #[test]
    fn a_wish_of_two_mebibytes_arrives_and_one_that_is_too_large_does_not() {
        let large =
            |size| Wish { arguments: vec![CString::new(vec![b'x'; size]).unwrap()], ..wish() };
        assert_eq!(Wish::from_file(large(2 << 20).to_file().unwrap()).unwrap(), large(2 << 20));
        assert!(large(9 << 20).to_file().is_err());
    }

    #[test]
    fn what_could_change_or_make_the_reader_wait_is_not_read() {
        let bytes = postcard::to_stdvec(&wish()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        assert!(Wish::from_file(file.into()).is_err());
        let (reader, _writer) = io::pipe().unwrap();
        assert!(Wish::from_file(reader.into()).is_err());
        let open = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Wish::from_file(open).is_err());
    }

    #[test]
    fn a_memory_file_without_end_is_not_read() {
        let file = memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let file = File::from(file);
        file.set_len(1 << 50).unwrap();
        fcntl_add_seals(&file, SEALS).unwrap();
        assert!(Wish::from_file(file.into()).is_err());
    }

    #[test]
    fn a_program_without_a_name_is_no_wish() {
        let empty = Wish { arguments: Vec::new(), ..wish() };
        assert!(Wish::from_file(empty.to_file().unwrap()).is_err());
    }

    #[test]
    fn a_long_refusal_still_fits_into_a_reply() {
        let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
        Reply::refused(&"ü€".repeat(100_000)).send(&here);
        assert!(matches!(Reply::receive(&there).unwrap(), Some(Reply::Refused(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Wish::from_file(sealed(&bytes));
        }
    }
}
