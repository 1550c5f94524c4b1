//! The file systems of a sandbox, made by the launcher and attached by the first process.
//!
//! Each is a mount that is attached nowhere, so nothing of it ever shows on the host. Kernels
//! before 6.15 take only attached mounts as layers of an overlay: for those the layers are
//! assembled in a mount namespace of the launcher's own, which it leaves again.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat, symlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount,
    open_tree,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::mount::{Attributes, map_ids, restrict};

use super::Order;
use crate::failure::{Failure, Step};
use crate::missing;

/// What the first process attaches, in the order in which the descriptors travel.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) root: OwnedFd,
    pub(super) usr: OwnedFd,
    pub(super) devices: OwnedFd,
    pub(super) guest: OwnedFd,
}

impl Layers {
    /// Makes all of them. `owner` is the sandbox's user namespace, `disk` its mounted disk.
    pub(super) fn make(
        order: &Order,
        disk: &OwnedFd,
        owner: BorrowedFd<'_>,
    ) -> Result<Self, Failure> {
        let outside = File::open("/proc/self/ns/mnt").step("remember the host's mounts")?;
        leave_hosts_mounts()?;
        let (root, usr) = assemble(order, disk, owner)?;
        let devices = devices()?;
        let guest = open_layer(&order.guest)?;
        restrict(&guest, Attributes::SAFE_READ_ONLY).step("protect the guest's program")?;
        move_into_link_name_space(outside.as_fd(), Some(LinkNameSpaceType::Mount))
            .step("return to the host's mounts")?;
        Ok(Self { root, usr, devices, guest })
    }

    /// The descriptors in the order in which they travel.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [self.root.as_fd(), self.usr.as_fd(), self.devices.as_fd(), self.guest.as_fd()]
    }
}

fn leave_hosts_mounts() -> Result<(), Failure> {
    let step = "make a mount namespace";
    sys_linux::namespace::leave_mounts().step(step)?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)
}

/// The two overlays: the template's own files, and the host's `/usr`.
fn assemble(
    order: &Order,
    disk: &OwnedFd,
    owner: BorrowedFd<'_>,
) -> Result<(OwnedFd, OwnedFd), Failure> {
    let step = "assemble the layers";
    // A place for three mounts, seen by this process alone.
    let places = new_file_system("tmpfs", &[("mode", "700")], MountAttrFlags::empty())?;
    for name in ["base", "usr", "disk"] {
        mkdirat(&places, name, Mode::RWXU).step(step)?;
    }
    let base = open_layer(&order.base)?;
    map_ids(&base, Attributes::SAFE_READ_ONLY, owner)
        .map_err(|error| missing::mapped_ids(&order.base, error))?;
    let hosts_usr = Path::new("/usr");
    let usr = open_layer(hosts_usr)?;
    map_ids(&usr, Attributes::SAFE_READ_ONLY, owner)
        .map_err(|error| missing::mapped_ids(hosts_usr, error))?;
    map_ids(disk, Attributes::SAFE, owner).step("map the disk's ids")?;

    let to_itself = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&places, "", CWD, order.home.mount_point(), to_itself).step(step)?;
    for (mount, name) in [(&base, "base"), (&usr, "usr"), (disk, "disk")] {
        move_mount(mount, "", &places, name, to_itself).step(step)?;
    }
    // Options of an overlay split at commas and colons, which a path may hold: so the names
    // are relative.
    rustix::process::fchdir(&places).step(step)?;
    let root = overlay("base", "root")?;
    let usr = overlay("usr", "usr")?;
    rustix::process::chdir("/").step(step)?;
    Ok((root, usr))
}

fn overlay(lower: &str, layer: &str) -> Result<OwnedFd, Failure> {
    let upper = format!("disk/{layer}/upper");
    let work = format!("disk/{layer}/work");
    new_file_system(
        "overlay",
        &[
            ("source", "soma"),
            ("lowerdir", lower),
            ("upperdir", &upper),
            ("workdir", &work),
            // File handles that survive: what watches a file can be hibernated.
            ("index", "on"),
            ("nfs_export", "on"),
        ],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// The device files that every program expects, and none that reaches anything.
fn devices() -> Result<OwnedFd, Failure> {
    let step = "make the device files";
    let options = [("source", "soma"), ("mode", "755"), ("size", "64k")];
    let devices = new_file_system("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    let all = Mode::from_raw_mode(0o666);
    for (name, major, minor) in [
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
    ] {
        let device = rustix::fs::makedev(major, minor);
        mknodat(&devices, name, FileType::CharacterDevice, all, device).step(step)?;
        // The mask of whoever started the engine has no say.
        rustix::fs::chmodat(&devices, name, all, rustix::fs::AtFlags::empty()).step(step)?;
    }
    for name in ["pts", "shm"] {
        mkdirat(&devices, name, Mode::from_raw_mode(0o755)).step(step)?;
    }
    for (target, name) in [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ] {
        symlinkat(target, &devices, name).step(step)?;
    }
    restrict(&devices, Attributes::DEVICES).step(step)?;
    Ok(devices)
}

/// A new file system, mounted but attached nowhere.
pub(super) fn new_file_system(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, Failure> {
    let step = format!("mount the file system {kind}");
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(|error| missing::file_system(kind, error))?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value).step(&step)?;
    }
    fsconfig_create(&context).step(&step)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(&step)
}

/// A second view of a folder, attached nowhere.
fn open_layer(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, path, flags).step(&format!("open `{}` as a layer", path.display()))
}
