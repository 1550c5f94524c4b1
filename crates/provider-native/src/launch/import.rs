//! A process that unpacks an image, and could do no harm if it did it wrong.
//!
//! ```text
//! engine (root)      importer (root)                   unpacker
//!   fork ----------> enter a cgroup of its own
//!                    become a free base id
//!                    clone into all namespaces ------> waits
//!                    write its id maps
//!                    a mount of the empty folder ----> makes it its root, the only thing it sees
//!                    waits                             gives up capabilities, puts filters on,
//!                                                      reads the archive and unpacks it,
//!   <--- its end --- writes all to the disk <--------- tells whoever sent it what became of it
//! ```
//!
//! The archive and the report are descriptors of the daemon's: no byte of either passes through
//! the engine. On the disk the files have the ids that a sandbox sees, because the mount shifts
//! them, as it does for sandboxes; where none can, they have those of the range that the unpacker
//! had.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use domain::{ImageReport, LARGEST_REPORT};
use image::Bounds;
use rustix::fs::CWD;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, move_mount, unmount,
};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, chdir, fchdir, getpid, pidfd_open,
    pivot_root, set_parent_process_death_signal, setrlimit, setsid, waitpid,
};
use serde::{Deserialize, Serialize};
use sys_linux::descriptors::close_all_but;
use sys_linux::mount::{Attributes, map_ids, restrict};
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::process::unblock_signals;

use super::identity;
use super::inside::Word;
use super::layers::open_layer;
use crate::cgroup::{Group, Part};
use crate::disk::Storage;
use crate::failure::{Failure, Kind, Step};
use crate::ids::IdRange;
use crate::missing;
use crate::seccomp::Filters;

/// More memory than this needs no unpacking: what is decompressed has a window, and a layer's
/// files are remembered by number.
pub(crate) const MEMORY: u64 = 1 << 30;

/// What is to be unpacked, and where.
#[derive(Debug)]
pub(crate) struct ImportOrder {
    /// An empty folder.
    pub(crate) tree: PathBuf,
    /// Ids that nobody else has now.
    pub(crate) ids: IdRange,
    /// Cgroups that are there and have limits.
    pub(crate) group: Group,
    /// Whether mounts shift ids.
    pub(crate) storage: Storage,
    pub(crate) bounds: Bounds,
    pub(crate) archive: OwnedFd,
    pub(crate) report: OwnedFd,
}

/// What became of an image, as the daemon reads it from its own descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// It was unpacked.
    Unpacked(Box<ImageReport>),
    /// It is not acceptable, for this reason.
    Refused(String),
    /// The host could not take it.
    Failed(String),
}

/// Starts it. The descriptor becomes readable when it ended: with code 0 if all is unpacked.
pub(crate) fn start(order: &ImportOrder, filters: &Filters) -> Result<OwnedFd, Failure> {
    let step = "start an import";
    match fork(Namespaces::NONE).step(step)? {
        Side::Child => {
            let engine = rustix::process::getppid();
            leave(i32::from(!run(order, filters, engine)))
        }
        Side::Parent(importer) => Ok(pidfd_open(importer, PidfdFlags::empty()).step(step)?),
    }
}

/// Whether it was unpacked and is safe on the disk.
fn run(order: &ImportOrder, filters: &Filters, engine: Option<Pid>) -> bool {
    let made = prepare(order, engine).and_then(|()| import(order, filters));
    if let Err(failure) = &made {
        tell(&order.report, &Outcome::Failed(failure.to_string()));
    }
    made.unwrap_or(false)
}

fn prepare(order: &ImportOrder, engine: Option<Pid>) -> Result<(), Failure> {
    let kept = [order.archive.as_raw_fd(), order.report.as_raw_fd()];
    close_all_but(&kept).step("close the engine's descriptors")?;
    // Nothing goes on for an engine that is gone, also if it went before this was said.
    set_parent_process_death_signal(Some(Signal::KILL)).step("bind to the engine")?;
    if rustix::process::getppid() != engine {
        return Err(Failure::new("bind to the engine", "it is gone", Kind::Broken));
    }
    unblock_signals().step("listen to signals again")?;
    identity::set_usual_limits(None)?;
    order.group.place(Part::Workload, getpid())
}

fn import(order: &ImportOrder, filters: &Filters) -> Result<bool, Failure> {
    identity::become_base(order.ids)?;
    // Changing ids forgets it.
    set_parent_process_death_signal(Some(Signal::KILL)).step("bind to the engine")?;
    let (ours, theirs) = link::pair().step("talk to the unpacker")?;
    let unpacker = match fork(Namespaces::ALL).map_err(missing::namespaces)? {
        Side::Child => {
            drop(ours);
            // A panic must not go on in what is the engine's code on the other side of the fork.
            let unpacked = catch_unwind(AssertUnwindSafe(|| unpack(order, filters, &theirs)));
            leave(i32::from(!matches!(unpacked, Ok(true))))
        }
        Side::Parent(unpacker) => unpacker,
    };
    drop(theirs);
    let process = format!("/proc/{}", unpacker.as_raw_pid());
    for file in ["uid_map", "gid_map"] {
        fs::write(format!("{process}/{file}"), order.ids.map()).step("map the image's ids")?;
    }
    let tree = open_layer(&order.tree)?;
    match order.storage {
        Storage::Disk(_) => {
            let user = File::open(format!("{process}/ns/user")).step("open the user namespace")?;
            map_ids(&tree, Attributes::SAFE, user.as_fd())
                .map_err(|error| missing::mapped_ids(&order.tree, error))?;
        }
        Storage::Folder => restrict(&tree, Attributes::SAFE).step("protect the image")?,
    }
    link::send(&ours, &Word::Attach, &[tree.as_fd()], SendFlags::empty())
        .step("talk to the unpacker")?;
    let status = waitpid(Some(unpacker), WaitOptions::empty()).step("wait for the unpacker")?;
    let well = status.and_then(|(_, status)| status.exit_status()) == Some(0);
    if well {
        let folder = File::open(&order.tree).step("write the image to the disk")?;
        rustix::fs::syncfs(&folder).step("write the image to the disk")?;
    }
    Ok(well)
}

/// The unpacker's life. Its last word is the report.
fn unpack(order: &ImportOrder, filters: &Filters, importer: &OwnedFd) -> bool {
    let outcome = match enter(order, filters, importer) {
        Err(failure) => Outcome::Failed(failure.to_string()),
        Ok((archive, root)) => match image::unpack(archive, &root, order.bounds) {
            Ok(report) => Outcome::Unpacked(Box::new(report)),
            Err(error @ image::ImageError::Write { .. }) => Outcome::Failed(error.to_string()),
            Err(error) => Outcome::Refused(error.to_string()),
        },
    };
    tell(&order.report, &outcome);
    matches!(outcome, Outcome::Unpacked(_))
}

/// Makes the empty folder all that there is, and gives up everything else.
fn enter(
    order: &ImportOrder,
    filters: &Filters,
    importer: &OwnedFd,
) -> Result<(File, OwnedFd), Failure> {
    let step = "enter the image's folder";
    set_parent_process_death_signal(Some(Signal::KILL)).step(step)?;
    let told = link::receive::<Word>(importer, RecvFlags::empty()).step(step)?;
    let tree = told.and_then(|(_, mut descriptors)| descriptors.pop());
    let tree = tree.ok_or_else(|| Failure::new(step, "its importer is gone", Kind::Broken))?;
    let null = File::options().read(true).write(true).open("/dev/null").step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&null).step(step)?;
    rustix::stdio::dup2_stderr(&null).step(step)?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)?;
    // Any folder that everybody can reach serves: the old tree is left in a moment.
    let to_path = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, "", CWD, "/usr", to_path).step(step)?;
    fchdir(&tree).step(step)?;
    pivot_root(".", ".").step(step)?;
    unmount(".", UnmountFlags::DETACH).step(step)?;
    chdir("/").step(step)?;
    // Before all that is not needed is closed by number.
    drop((tree, null));
    setsid().step(step)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));

    let root = OwnedFd::from(File::open("/").step(step)?);
    let archive = File::from(order.archive.try_clone().step(step)?);
    let kept = [&root, &order.report].map(AsRawFd::as_raw_fd);
    close_all_but(&[kept[0], kept[1], archive.as_raw_fd()]).step(step)?;
    for (resource, most) in
        [(Resource::As, 2 * MEMORY), (Resource::Fsize, order.bounds.bytes), (Resource::Nofile, 256)]
    {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).step(step)?;
    }
    identity::become_sandbox_root(order.ids)?;
    filters.put_on()?;
    Ok((archive, root))
}

/// Tells whoever sent the image; one that is gone needs no report.
fn tell(report: &OwnedFd, outcome: &Outcome) {
    let text = serde_json::to_vec(outcome).unwrap_or_default();
    let text = if text.len() <= LARGEST_REPORT {
        text
    } else {
        let reason = "the image says more about itself than can be kept".to_owned();
        serde_json::to_vec(&Outcome::Refused(reason)).unwrap_or_default()
    };
    if let Ok(report) = report.try_clone() {
        let _ = File::from(report).write_all(&text);
    }
}
