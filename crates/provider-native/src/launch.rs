//! How one sandbox comes to be.
//!
//! ```text
//! engine (root)      launcher (root)               first process
//!   fork ----------> enter the sandbox's cgroup
//!                    copy and mount the disk
//!                    become the sandbox's base id, keeping capabilities
//!                    clone into all namespaces --> waits
//!                    write its id maps
//!                    make its file systems ------> attach them, pivot, fork the spawners
//!                    place all in cgroups -------> give up capabilities, put filters on,
//!   <--- ready ----- wait for the guest <--------- execute the guest and the spawners
//!                    give up everything, become the supervisor
//! ```
//!
//! The launcher takes the base id *before* it makes the user namespace, so the kernel counts
//! what the sandbox uses (inotify, keys, namespaces) for that id and nobody else's; it keeps
//! its capabilities until the sandbox stands. Being that id also lets the overlay write to an
//! id-mapped disk.
//!
//! Start at [`start`], which the engine calls, then `launcher`, then `inside`.

mod cgroups;
pub(crate) mod identity;
pub(crate) mod import;
mod inside;
mod launcher;
mod layers;
mod wake;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use serde::{Deserialize, Serialize};
use sys_linux::namespace::{Namespaces, Side, fork, leave};

use crate::cgroup::Group;
use crate::disk::Storage;
use crate::failure::{Failure, Step};
use crate::home::Home;
use crate::ids::IdRange;
use crate::seccomp::Filters;
use crate::template::Ground;

/// The name of a supervisor's socket in its sandbox's folder.
pub(crate) const SUPERVISOR: &str = "supervisor.sock";

/// What the launcher is to make.
#[derive(Debug)]
pub(crate) struct Order {
    /// The home that it is for.
    pub(crate) home: Home,
    /// Where the sandbox's own files go; it is there, and empty unless it is made again.
    pub(crate) folder: PathBuf,
    /// Whether it ran before: then what it wrote is in the folder.
    pub(crate) again: bool,
    /// Whether its processes are restored from its images.
    pub(crate) wake: bool,
    /// The file in which its supervisor writes why it ended.
    pub(crate) ended: String,
    /// What it stands on.
    pub(crate) ground: Ground,
    /// The sealed disks over that, the lowest first.
    pub(crate) layers: Vec<Layer>,
    /// The file in the folder with its own disk.
    pub(crate) disk: String,
    /// The folder with the guest's program.
    pub(crate) guest: PathBuf,
    /// Where what it writes is kept.
    pub(crate) storage: Storage,
    /// The sandbox's ids.
    pub(crate) ids: IdRange,
    /// Its cgroups, which are there.
    pub(crate) group: Group,
    /// How many descriptors each of its processes may have; what is usual when unset.
    pub(crate) open_files: Option<u64>,
    /// How many processes it may have, where no cgroup counts them.
    pub(crate) processes: Option<u32>,
    /// Whether what it sends to the outside is led to the egress program.
    pub(crate) wires: bool,
}

/// A sealed disk to stand on.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The folder of its snapshot.
    pub(crate) folder: PathBuf,
    /// Whether somebody has seen already that it is what it was.
    pub(crate) seen: bool,
}

impl Order {
    /// Whether the sandbox has a reserve of processes: where cgroups count them. Counted by id,
    /// the sandbox's root has an allowance of its own, and that is as good.
    fn has_reserve(&self) -> bool {
        self.group.is_there() && self.processes.is_none()
    }

    /// The ids that the template's files must have on the host, where no mount shifts them.
    pub(crate) fn own_ids(&self) -> Option<IdRange> {
        (self.storage == Storage::Folder).then_some(self.ids)
    }
}

/// A launcher at work.
#[derive(Debug)]
pub(crate) struct Launching {
    /// The launcher, later the supervisor.
    pub(crate) supervisor: Pid,
    /// Readable once it ended.
    pub(crate) supervisor_descriptor: OwnedFd,
    /// A [`Report`] comes here; afterwards it is how the supervisor notices that the engine died.
    pub(crate) socket: OwnedFd,
}

/// What the launcher has to say, once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The guest answers. The descriptor that comes along is the first process's. With a second one
    /// its processes are there and do nothing until a byte is written to that; if none ever is,
    /// nothing is left of the attempt.
    Ready {
        /// The first process as the host counts.
        pid: i32,
        /// Where the time went: a step and its microseconds.
        steps: Vec<(String, u64)>,
    },
    /// Nothing is left of the attempt but what the order brought along.
    Failed(Failure),
}

/// Starts a launcher.
pub(crate) fn start(order: &Order, filters: &Filters) -> Result<Launching, Failure> {
    let step = "start a launcher";
    let (ours, theirs) = link::pair().step(step)?;
    match fork(Namespaces::NONE).step(step)? {
        Side::Child => {
            launcher::run(order, filters, &theirs);
            leave(70)
        }
        Side::Parent(supervisor) => {
            let held = pidfd_open(supervisor, PidfdFlags::empty());
            let supervisor_descriptor = held.inspect_err(|_| end(supervisor)).step(step)?;
            Ok(Launching { supervisor, supervisor_descriptor, socket: ours })
        }
    }
}

/// Ends a launcher that nobody could hold: its cgroup could not be removed while it is in there.
fn end(launcher: Pid) {
    let _ = kill_process(launcher, Signal::KILL);
    let _ = waitpid(Some(launcher), WaitOptions::empty());
}
