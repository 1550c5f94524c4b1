//! A process that does nothing but hold a user namespace, for a parent that maps its ids.

use std::fs::{self, File};
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use sys_linux::namespace::{Namespaces, Side, fork, leave};

use crate::attempt::{Refusal, Step};

/// The process; it ends when this is dropped. For use in an attempt.
#[derive(Debug)]
pub(crate) struct Holder {
    pid: Pid,
    _awake: OwnedFd,
}

impl Holder {
    pub(crate) fn start() -> Result<Self, Refusal> {
        let step = "make a user namespace";
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).step(step)?;
        match fork(Namespaces::USER).step(step)? {
            Side::Parent(pid) => Ok(Self { pid, _awake: ours }),
            Side::Child => {
                drop(ours);
                let _ = set_parent_process_death_signal(Some(Signal::KILL));
                // Returns when the parent is gone or drops its end.
                let _ = rustix::io::read(&theirs, &mut [0; 1]);
                leave(0)
            }
        }
    }

    /// The number by which others reach it.
    pub(crate) fn number(&self) -> String {
        self.pid.as_raw_nonzero().to_string()
    }

    /// Gives it a range of ids, users and groups alike, as only root can.
    pub(crate) fn map(&self, first: u32, count: u32) -> Result<(), Refusal> {
        let step = format!("map {count} ids from {first} on");
        let line = format!("0 {first} {count}");
        for file in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{file}", self.number()), &line).step(&step)?;
        }
        Ok(())
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> Result<File, Refusal> {
        File::open(format!("/proc/{}/ns/user", self.number())).step("open the user namespace")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}
