//! The sandbox's own cgroups, shown inside at `/sys/fs/cgroup`.
//!
//! From within its cgroup namespace a sandbox sees its own groups and nothing above them; the
//! mounts are read-only, and no file in them belongs to anybody inside. Programs that size
//! themselves by their limits (Java, Go, Node) look here, and so do the guest's metrics.
//!
//! Only hierarchies in which the sandbox has groups of its own are shown: in any other its
//! namespace begins where the engine is, and the figures are the host's. A sandbox without any
//! stands all the same, and its guest measures otherwise.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use sys_linux::mount::{Attributes, restrict};

use super::inside::place;
use super::layers::new_file_system;
use crate::cgroup::Group;
use crate::failure::{Failure, Step};

/// What the mounts do not let through.
pub(super) const FLAGS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_RDONLY);

/// The hierarchies that a sandbox gets to see, by their controllers: none for version 2.
#[derive(Debug, Default)]
pub(super) struct Shown(Vec<Vec<String>>);

impl Shown {
    /// Those in which this process is in the sandbox's own group. Asked by the launcher, before
    /// the first process is born into a namespace that hides the names.
    pub(super) fn of(group: &Group) -> Self {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self(memberships.lines().filter_map(|line| controllers(line, group.folders())).collect())
    }

    /// Attaches them below `root`, as far as the kernel lets it.
    pub(super) fn attach(&self, root: &OwnedFd) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        let step = "show the cgroups";
        // A small file system of its own, because the sandbox's tree may be anybody's.
        let options = [("source", "sys"), ("mode", "555"), ("size", "64k")];
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let sys = new_file_system("tmpfs", &options, flags)?;
        place(&sys, root, "sys")?;
        let folder = make_folder(&make_folder(&sys, "fs").step(step)?, "cgroup").step(step)?;
        for controllers in &self.0 {
            let Ok(mount) = mount(controllers, FLAGS) else {
                continue;
            };
            match controllers.as_slice() {
                [] => place(&mount, &sys, "fs/cgroup")?,
                [first, others @ ..] => {
                    let name = controllers.join(",");
                    make_folder(&folder, &name).step(step)?;
                    place(&mount, &folder, &name)?;
                    // Under each of its names, as on every system with version 1.
                    if !others.is_empty() {
                        for alias in [first].into_iter().chain(others) {
                            rustix::fs::symlinkat(&name, &folder, alias).step(step)?;
                        }
                    }
                }
            }
        }
        restrict(&sys, Attributes::SAFE_READ_ONLY).step(step)
    }
}

/// The controllers of a line of `/proc/self/cgroup`, such as `4:memory:/soma/home/name`, when
/// the group that it names is one of these folders.
fn controllers(line: &str, folders: &[impl AsRef<Path>]) -> Option<Vec<String>> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    // A name is a hierarchy's own word for itself, and no controller.
    let known = !path.is_empty() && !controllers.starts_with("name=");
    let ours = || folders.iter().any(|folder| folder.as_ref().ends_with(path));
    (known && ours()).then(|| {
        let names = controllers.split(',').filter(|name| !name.is_empty());
        names.map(ToOwned::to_owned).collect()
    })
}

pub(super) fn mount(
    controllers: &[String],
    attributes: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let kind = if controllers.is_empty() { "cgroup2" } else { "cgroup" };
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "cgroup")?;
    for controller in controllers {
        fsconfig_set_flag(&context, controller.as_str())?;
    }
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn make_folder(parent: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    mkdirat(parent, name, Mode::from_raw_mode(0o555))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hierarchies_with_a_group_of_the_sandbox_are_shown() {
        let folders = ["/sys/fs/cgroup/memory/soma/h/a", "/sys/fs/cgroup/cpu,cpuacct/soma/h/a"];
        let shown = |line: &str| controllers(line, &folders);
        assert_eq!(shown("4:memory:/soma/h/a").unwrap(), ["memory"]);
        assert_eq!(shown("1:cpu,cpuacct:/soma/h/a").unwrap(), ["cpu", "cpuacct"]);
        assert_eq!(shown("0::/soma/h/a").unwrap(), [""; 0]);
        for other in ["0::/", "2:cpuset:/", "9:name=systemd:/soma/h/a", "4:memory:/soma/h/b", ""] {
            assert_eq!(shown(other), None, "{other}");
        }
    }
}
