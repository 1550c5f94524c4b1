//! The first process, from its birth in the namespaces until it executes the guest.
//!
//! It has every capability in its own namespaces and none outside. Whatever it resolves in the
//! sandbox's tree it resolves beneath it by descriptor: the tree may be hostile.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Signal, chdir, fchdir, pivot_root, set_parent_process_death_signal, setsid};
use serde::{Deserialize, Serialize};
use sys_linux::descriptors::keep_only;
use sys_linux::mount::{Attributes, restrict};
use sys_linux::namespace::{Namespaces, Side, fork, leave, set_host_name};
use sys_linux::network::bring_loopback_up;

use super::Order;
use super::cgroups::Shown;
use super::identity;
use super::layers::{DEVICES, new_file_system};
use crate::disk::Storage;
use crate::failure::{Failure, Kind, Step};
use crate::landlock;
use crate::seccomp::Filters;

/// What the launcher tells the first process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// Its ids are mapped; here are its file systems.
    Attach,
    /// Everybody is in place.
    Go,
}

/// Files and folders of `/proc` that tell about the host, or reach it.
const HIDDEN: [&str; 14] = [
    "acpi",
    "asound",
    "cmdline",
    "diskstats",
    "fs",
    "kallsyms",
    "kcore",
    "keys",
    "latency_stats",
    "partitions",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];

/// Parts of `/proc` that can be read and not written.
const READ_ONLY: [&str; 4] = ["bus", "irq", "sys", "sysrq-trigger"];

/// No namespaces within namespaces: they widen what the kernel exposes, and cannot be dumped.
pub(super) const FORBIDDEN_NAMESPACES: [&str; 8] =
    ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

/// The first process's life before the guest. Comes back only when it failed.
pub(super) fn run(
    order: &Order,
    filters: &Filters,
    shown: &Shown,
    outside: &OwnedFd,
    ready: OwnedFd,
) {
    if let Err(failure) = become_guest(order, filters, shown, outside, ready) {
        let answer: Result<(), Failure> = Err(failure);
        let _ = link::send(outside, &answer, &[], SendFlags::empty());
    }
}

fn become_guest(
    order: &Order,
    filters: &Filters,
    shown: &Shown,
    outside: &OwnedFd,
    ready: OwnedFd,
) -> Result<(), Failure> {
    let mounts = await_word(outside)?;
    let [root, devices, guest, usr @ ..] = mounts.as_slice() else {
        return Err(Failure::new("attach", "a mount is missing", Kind::Broken));
    };
    attach(order, [root, devices, guest], usr.first(), shown)?;
    drop(mounts);
    bring_loopback_up().step("switch the loopback on")?;
    if order.wires {
        wiring::wire().step("lay the network's wires")?;
    }
    set_host_name("sandbox").step("name the host")?;
    stand_alone()?;

    let (gate, opened) = io::pipe().step("hold the spawners back")?;
    let (mut forked, forking) = io::pipe().step("hold the spawners back")?;
    let connect = || link::pair().step("connect guest and spawner");
    let (guests, spawners) = connect()?;
    let (reserves, reserve) =
        if order.has_reserve() { Some(connect()?).unzip() } else { (None, None) };
    if let Side::Child = fork(Namespaces::NONE).step("start the spawners")? {
        drop((opened, forked, guests, reserves, ready));
        let failed = become_spawners(order, filters, gate, forking, spawners, reserve);
        let _ = link::send(outside, &failed, &[], SendFlags::empty());
        leave(70)
    }
    drop((gate, forking, spawners, reserve));
    // Both are there once nobody holds the other end: now the launcher finds them.
    let _ = forked.read(&mut [0]).step("wait for the spawners")?;

    let done: Result<(), Failure> = Ok(());
    link::send(outside, &done, &[], SendFlags::empty()).step("answer the launcher")?;
    await_word(outside)?;
    drop(opened);
    identity::become_sandbox_root(order.ids)?;
    // No sandbox without a supervisor.
    set_parent_process_death_signal(Some(Signal::KILL)).step("bind to the supervisor")?;
    execute(filters, &["init"], [ready, guests].into_iter().chain(reserves).collect())
}

/// Becomes the spawner, and forks that of the reserve first: both are in one domain of Landlock, or
/// a command in the reserve could not send signals to those in the workload.
fn become_spawners(
    order: &Order,
    filters: &Filters,
    gate: io::PipeReader,
    forking: io::PipeWriter,
    guest: OwnedFd,
    reserve: Option<OwnedFd>,
) -> Result<(), Failure> {
    landlock::put_on()?;
    if let Some(reserve) = reserve
        && let Side::Child = fork(Namespaces::NONE).step("start the reserve's spawner")?
    {
        drop((forking, guest));
        return become_spawner(order, filters, gate, reserve, &["spawn", "--reserve"]);
    }
    drop(forking);
    become_spawner(order, filters, gate, guest, &["spawn"])
}

/// A spawner waits until it is in its cgroup: what it forks stays there.
fn become_spawner(
    order: &Order,
    filters: &Filters,
    mut gate: io::PipeReader,
    guest: OwnedFd,
    arguments: &[&str],
) -> Result<(), Failure> {
    let _ = gate.read(&mut [0]).step("wait for the gate")?;
    identity::limit_workload(order)?;
    identity::become_sandbox_root(order.ids)?;
    execute(filters, arguments, vec![guest])
}

/// The filters go on last: what comes before needs calls that they refuse.
fn execute(
    filters: &Filters,
    arguments: &[&str],
    descriptors: Vec<OwnedFd>,
) -> Result<(), Failure> {
    let step = "execute the guest";
    filters.put_on()?;
    keep_only(descriptors).step(step)?;
    let error =
        sys_linux::command::command("/run/soma/guest").arg0("soma-guest").args(arguments).exec();
    Err(error).step(step)
}

pub(super) fn await_word(outside: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    let step = "listen to the launcher";
    match link::receive::<Word>(outside, RecvFlags::empty()).step(step)? {
        Some((_, descriptors)) => Ok(descriptors),
        None => Err(Failure::new(step, "it is gone", Kind::Broken)),
    }
}

/// Attaches everything and makes it the root.
fn attach(
    order: &Order,
    [root, devices, guest]: [&OwnedFd; 3],
    usr: Option<&OwnedFd>,
    shown: &Shown,
) -> Result<(), Failure> {
    let step = "attach the root";
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)?;
    // Any folder that everybody can reach serves: the old tree is left in a moment.
    let to_path = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(root, "", CWD, "/usr", to_path).step(step)?;
    fchdir(root).step(step)?;
    if let Some(usr) = usr {
        place(usr, root, "usr")?;
    }
    place(devices, root, "dev")?;
    if order.storage == Storage::Folder {
        borrow_devices(devices)?;
    }
    place(guest, root, "run/soma")?;

    let own = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc = new_file_system("proc", &[("source", "proc")], own)?;
    place(&proc, root, "proc")?;
    let terminals = [("ptmxmode", "666"), ("mode", "620"), ("gid", "5")];
    // The last is the group of terminals, which is not there among one id.
    let terminals = if order.ids.is_single() { &terminals[..2] } else { &terminals };
    let no_programs = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    place(&new_file_system("devpts", terminals, no_programs)?, devices, "pts")?;
    let memory = [("source", "shm"), ("mode", "1777"), ("size", "1g")];
    let shared = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    place(&new_file_system("tmpfs", &memory, shared)?, devices, "shm")?;

    shown.attach(root)?;

    // Opened before they are covered, and lowered after: every mount that is not attached yet
    // counts as a namespace too.
    let allowances = open_allowances(&proc)?;
    cover(&proc, devices)?;
    forbid_namespaces(&allowances)?;

    pivot_root(".", ".").step("make it the root")?;
    unmount(".", UnmountFlags::DETACH).step("leave the host's tree")?;
    chdir("/").step("make it the root")
}

/// Puts the host's device files over the empty ones, where only root could make any.
fn borrow_devices(devices: &OwnedFd) -> Result<(), Failure> {
    let to_itself =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    for (name, ..) in DEVICES {
        let step = format!("borrow `/dev/{name}`");
        let host = rustix::fs::open("/dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let device = second_view(&host.step(&step)?, name).step(&step)?;
        let target = beneath(devices, name, OFlags::empty()).step(&step)?;
        move_mount(&device, "", &target, "", to_itself).step(&step)?;
    }
    Ok(())
}

/// Attaches a mount at a name beneath a folder, following no link on the way.
pub(super) fn place(mount: &OwnedFd, folder: &OwnedFd, name: &str) -> Result<(), Failure> {
    let step = format!("attach `{name}`");
    let target = beneath(folder, name, OFlags::DIRECTORY).step(&step)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", &target, "", flags).step(&step)
}

fn beneath(folder: impl AsFd, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat2(
        folder,
        name,
        OFlags::PATH | OFlags::CLOEXEC | flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The sandbox's own allowances of namespaces, one file for each kind.
fn open_allowances(proc: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    let mut allowances = Vec::with_capacity(FORBIDDEN_NAMESPACES.len());
    for kind in FORBIDDEN_NAMESPACES {
        let name = format!("sys/user/max_{kind}_namespaces");
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(proc, &name, flags, Mode::empty()) {
            // A kernel without this kind of namespace.
            Err(rustix::io::Errno::NOENT) => {}
            other => allowances.push(other.step(&format!("open `{name}`"))?),
        }
    }
    Ok(allowances)
}

/// Lowers them to none. The sandbox's root cannot raise them again: that takes a capability
/// which is given up.
fn forbid_namespaces(allowances: &[OwnedFd]) -> Result<(), Failure> {
    for allowance in allowances {
        rustix::io::write(allowance, b"0").step("forbid namespaces within")?;
    }
    Ok(())
}

/// Hides parts of `/proc` and makes others read-only.
fn cover(proc: &OwnedFd, devices: &OwnedFd) -> Result<(), Failure> {
    let to_itself =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    for name in HIDDEN {
        let step = format!("hide `/proc/{name}`");
        let Ok(target) = beneath(proc, name, OFlags::empty()) else { continue };
        let is_folder = rustix::fs::fstat(&target)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        let lid = if is_folder {
            new_file_system(
                "tmpfs",
                &[("size", "0"), ("mode", "555")],
                MountAttrFlags::MOUNT_ATTR_RDONLY,
            )?
        } else {
            second_view(devices, "null").step(&step)?
        };
        move_mount(&lid, "", &target, "", to_itself).step(&step)?;
    }
    for name in READ_ONLY {
        let step = format!("protect `/proc/{name}`");
        let Ok(target) = beneath(proc, name, OFlags::empty()) else { continue };
        let view = second_view(proc, name).step(&step)?;
        restrict(&view, Attributes::SAFE_READ_ONLY).step(&step)?;
        move_mount(&view, "", &target, "", to_itself).step(&step)?;
    }
    Ok(())
}

fn second_view(folder: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(folder, name, flags)
}

/// A session of its own, and nothing of the host on standard input, output and error.
fn stand_alone() -> Result<(), Failure> {
    let step = "leave the host's terminal and files";
    setsid().step(step)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null").step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&null).step(step)?;
    rustix::stdio::dup2_stderr(&null).step(step)
}
