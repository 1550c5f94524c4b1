//! Work that takes its time, done in a process of its own: nobody else waits for it.
//!
//! It ends with the engine. What it leaves half done is for the next engine to finish or to undo.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_open,
    set_parent_process_death_signal, waitid,
};
use sys_linux::descriptors::close_all_but;
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::process::unblock_signals;

use crate::failure::{Failure, Kind, Step};

/// Work under way.
pub(super) struct Errand {
    process: OwnedFd,
    said: io::PipeReader,
}

impl Errand {
    /// Begins it.
    pub(super) fn start(
        step: &str,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let (said, mut say) = io::pipe().step(step)?;
        let engine = getpid();
        match fork(Namespaces::NONE).step(step)? {
            Side::Child => {
                let done = set_parent_process_death_signal(Some(Signal::KILL))
                    .map_err(io::Error::from)
                    .and_then(|()| close_all_but(&[say.as_raw_fd()]))
                    .and_then(|()| unblock_signals())
                    .step(step)
                    .and_then(|()| match getppid() {
                        Some(parent) if parent == engine => act(),
                        _ => leave(70),
                    });
                if let Err(failure) = done {
                    let _ = say.write_all(&serde_json::to_vec(&failure).unwrap_or_default());
                    leave(1);
                }
                leave(0)
            }
            Side::Parent(process) => {
                drop(say);
                Ok(Self { process: pidfd_open(process, PidfdFlags::empty()).step(step)?, said })
            }
        }
    }

    /// Readable when it is over.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// What became of it, once it is over.
    pub(super) fn finish(mut self, step: &str) -> Result<(), Failure> {
        let status = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let mut said = Vec::new();
        let _ = self.said.read_to_end(&mut said);
        if status.ok().flatten().and_then(|status| status.exit_status()) == Some(0) {
            return Ok(());
        }
        let killed = |_| Failure::new(step, "what did it was killed", Kind::Broken);
        Err(serde_json::from_slice(&said).unwrap_or_else(killed))
    }
}
