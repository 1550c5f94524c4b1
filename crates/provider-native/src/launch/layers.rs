//! The file systems of a sandbox, made by the launcher and attached by the first process.
//!
//! Each is a mount that is attached nowhere, so nothing of it ever shows on the host. Kernels
//! before 6.15 take only attached mounts as layers of an overlay: for those the layers are
//! assembled in a mount namespace of the launcher's own, which it leaves again.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::mount::{Attributes, map_ids, restrict};

use super::Order;
use crate::disk::Storage;
use crate::failure::{Failure, Step};
use crate::missing;
use crate::template::{Folders, Ground};

/// What the first process attaches, in the order in which the descriptors travel.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) root: OwnedFd,
    /// None where the template brings its own.
    pub(super) usr: Option<OwnedFd>,
    pub(super) devices: OwnedFd,
    pub(super) guest: OwnedFd,
}

/// What the overlays are made of, beside the host's `/usr`.
#[derive(Debug)]
pub(super) struct Parts<'made> {
    /// The template's own files.
    pub(super) folders: &'made Folders,
    /// Where what the sandbox writes is kept.
    pub(super) storage: &'made OwnedFd,
    /// The sealed disks below that, the lowest first.
    pub(super) sealed: &'made [OwnedFd],
}

impl Layers {
    /// Makes all of them. `owner` is the sandbox's user namespace.
    pub(super) fn make(
        order: &Order,
        parts: &Parts<'_>,
        owner: BorrowedFd<'_>,
    ) -> Result<Self, Failure> {
        let outside = File::open("/proc/self/ns/mnt").step("remember the host's mounts")?;
        leave_hosts_mounts()?;
        let (root, usr) = match order.storage {
            Storage::Disk(_) => assemble_mapped(order, parts, owner)?,
            Storage::Folder => assemble_plain(order, parts)?,
        };
        let guest = guest(order)?;
        rustix::process::chdir("/").step("leave the layers")?;
        let devices = devices(order.storage)?;
        move_into_link_name_space(outside.as_fd(), Some(LinkNameSpaceType::Mount))
            .step("return to the host's mounts")?;
        Ok(Self { root, usr, devices, guest })
    }

    /// The descriptors in the order in which they travel.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let first = [&self.root, &self.devices, &self.guest].into_iter();
        first.chain(&self.usr).map(AsFd::as_fd).collect()
    }
}

fn leave_hosts_mounts() -> Result<(), Failure> {
    let step = "make a mount namespace";
    sys_linux::namespace::leave_mounts().step(step)?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)
}

/// The overlays: the template's own files, and the host's `/usr` where the template is the host's
/// own system. The ids of all layers are shifted into the sandbox's.
fn assemble_mapped(
    order: &Order,
    parts: &Parts<'_>,
    owner: BorrowedFd<'_>,
) -> Result<(OwnedFd, Option<OwnedFd>), Failure> {
    let mut lower = Vec::new();
    for (name, path) in lower_layers(order, parts) {
        let layer = open_layer(path)?;
        map_ids(&layer, Attributes::SAFE_READ_ONLY, owner)
            .map_err(|error| missing::mapped_ids(path, error))?;
        lower.push((name, layer));
    }
    map_ids(parts.storage, Attributes::SAFE, owner).step("map the disk's ids")?;
    for disk in parts.sealed {
        map_ids(disk, Attributes::SAFE_READ_ONLY, owner).step("map a sealed disk's ids")?;
    }
    gather(order, parts, &lower)?;
    // File handles that survive: what watches a file can be hibernated.
    overlays(&lower, parts.sealed.len(), &[("index", "on"), ("nfs_export", "on")])
}

/// The same overlays as a user can have them. Ids cannot be shifted: the template's files have
/// the sandbox's already, and those of the host's `/usr` belong to nobody inside. Folders of the
/// default template's over it do belong to somebody, so that files can be added and replaced.
fn assemble_plain(order: &Order, parts: &Parts<'_>) -> Result<(OwnedFd, Option<OwnedFd>), Failure> {
    let mut lower = Vec::new();
    for (name, path) in lower_layers(order, parts) {
        let layer = open_layer(path)?;
        restrict(&layer, Attributes::SAFE_READ_ONLY).step("protect the lower layers")?;
        lower.push((name, layer));
    }
    gather(order, parts, &lower)?;
    // What an overlay notes about files goes where a user may write notes.
    overlays(&lower, parts.sealed.len(), &[("userxattr", "")])
}

/// What is there before the sandbox writes anything, and what each is called meanwhile.
fn lower_layers<'made>(order: &Order, parts: &Parts<'made>) -> Vec<(&'static str, &'made Path)> {
    let mut layers = vec![("base", parts.folders.base.as_path())];
    if !matches!(order.ground, Ground::Imported(_)) {
        layers.push(("usr", Path::new("/usr")));
    }
    layers.extend(parts.folders.layer.as_deref().map(|layer| ("layer", layer)));
    layers
}

type Layer = (&'static str, OwnedFd);

fn overlays(
    lower: &[Layer],
    sealed: usize,
    options: &[(&str, &str)],
) -> Result<(OwnedFd, Option<OwnedFd>), Failure> {
    let over = |layer: &str, ground: &str| {
        let disks = (0..sealed).rev().map(|index| format!("{index}/{layer}/upper:"));
        disks.chain([ground.to_owned()]).collect::<String>()
    };
    let root = overlay(&over("root", "base"), "root", options)?;
    let has = |wanted: &str| lower.iter().any(|(name, _)| *name == wanted);
    let over_usr = if has("layer") { OVER_USR_TOO } else { OVER_USR };
    let over_usr = over("usr", over_usr);
    let usr = has("usr").then(|| overlay(&over_usr, "usr", options)).transpose()?;
    Ok((root, usr))
}

/// Puts layers at names that this process alone sees, and goes among them.
fn gather(order: &Order, parts: &Parts<'_>, lower: &[Layer]) -> Result<(), Failure> {
    let step = "assemble the layers";
    let places = new_file_system("tmpfs", &[("mode", "700")], MountAttrFlags::empty())?;
    let to_itself = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&places, "", CWD, order.home.mount_point(), to_itself).step(step)?;
    let lower = lower.iter().map(|(name, layer)| ((*name).to_owned(), layer));
    // A number is shorter than any name, and all of them fit into one option.
    let sealed = parts.sealed.iter().enumerate().map(|(index, disk)| (index.to_string(), disk));
    for (name, layer) in lower.chain(sealed).chain([("disk".to_owned(), parts.storage)]) {
        mkdirat(&places, &name, Mode::RWXU).step(step)?;
        move_mount(layer, "", &places, &name, to_itself).step(step)?;
    }
    // Options of an overlay split at commas and colons, which a path may hold: so the names are
    // relative.
    rustix::process::fchdir(&places).step(step)
}

/// What the template has of `/usr` lies over the host's.
const OVER_USR: &str = "base/usr:usr";
const OVER_USR_TOO: &str = "layer/usr:base/usr:usr";

/// The kernel reads no longer ones.
const LONGEST_OPTION: usize = 255;

fn overlay(lower: &str, layer: &str, more: &[(&str, &str)]) -> Result<OwnedFd, Failure> {
    let upper = format!("disk/{layer}/upper");
    let work = format!("disk/{layer}/work");
    let mut options = vec![("source", "soma"), ("upperdir", &*upper), ("workdir", &*work)];
    if lower.len() < LONGEST_OPTION {
        options.push(("lowerdir", lower));
    } else {
        // One by one, which kernels before 6.8 do not take.
        options.extend(lower.split(':').map(|layer| ("lowerdir+", layer)));
    }
    new_file_system(
        "overlay",
        &[&options, more].concat(),
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// The folder with the guest's program. An overlay that nobody can write to: it shows neither the
/// folder nor the disk of the host that the program lies on, and all sandboxes share its pages.
fn guest(order: &Order) -> Result<OwnedFd, Failure> {
    let step = "show the guest's program";
    let program = open_layer(&order.guest)?;
    restrict(&program, Attributes::SAFE_READ_ONLY).step(step)?;
    for name in ["guest", "nothing"] {
        mkdirat(CWD, name, Mode::RWXU).step(step)?;
    }
    let to_itself = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&program, "", CWD, "guest", to_itself).step(step)?;
    // An overlay without an upper layer wants two lower ones.
    new_file_system(
        "overlay",
        &[("source", "soma"), ("lowerdir", "guest:nothing")],
        MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// The device files that every program expects, and none that reaches anything.
pub(super) const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// The folder of the device files. Where only root could make them they are left empty here,
/// and the first process puts the host's own over them.
fn devices(storage: Storage) -> Result<OwnedFd, Failure> {
    let step = "make the device files";
    let options = [("source", "soma"), ("mode", "755"), ("size", "64k")];
    let devices = new_file_system("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    let all = Mode::from_raw_mode(0o666);
    for (name, major, minor) in DEVICES {
        let (kind, device) = match storage {
            Storage::Disk(_) => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
            Storage::Folder => (FileType::RegularFile, 0),
        };
        mknodat(&devices, name, kind, all, device).step(step)?;
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
        match *value {
            "" => fsconfig_set_flag(&context, *key).step(&step)?,
            value => fsconfig_set_string(&context, *key, value).step(&step)?,
        }
    }
    fsconfig_create(&context).step(&step)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step(&step)
}

/// A second view of a folder, attached nowhere.
pub(super) fn open_layer(path: &Path) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let opened = match open_tree(CWD, path, flags) {
        // A user cannot look below what is mounted there, so it comes along.
        Err(Errno::INVAL) => open_tree(CWD, path, flags | OpenTreeFlags::AT_RECURSIVE),
        other => other,
    };
    opened.step(&format!("open `{}` as a layer", path.display()))
}
