//! Where this host's cgroups are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{remove_folder, write};
use crate::failure::{Failure, Kind};

/// The two designs of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The cgroup hierarchies that Soma uses, and its own folder in each.
#[derive(Debug, Clone)]
pub(crate) struct Hierarchies {
    version: Version,
    roots: Vec<PathBuf>,
    label: String,
}

/// What limits need, and freezing on version 1, where it is a controller.
const CONTROLLERS_OF_VERSION_ONE: [&str; 4] = ["memory", "cpu", "pids", "freezer"];
const CONTROLLERS_OF_VERSION_TWO: [&str; 3] = ["memory", "cpu", "pids"];

impl Hierarchies {
    /// Finds them for the home with this label.
    pub(crate) fn find(label: &str) -> Result<Self, Failure> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let controllers_of =
            |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let (version, roots) = choose(&mounts, &controllers_of).map_err(|missing| {
            let cause = format!(
                "the controller `{missing}` is not mounted; mount it, for example with \
                 `mount -t cgroup2 none /sys/fs/cgroup`"
            );
            Failure::new("find cgroups for the limits", cause, Kind::Unsupported)
        })?;
        Ok(Self { version, roots, label: label.to_owned() })
    }

    /// Makes Soma's own folders, with all controllers that their children need.
    pub(crate) fn make_homes(&self) -> Result<(), Failure> {
        for root in &self.roots {
            let parent = root.join("soma");
            let home = parent.join(&self.label);
            fs::create_dir_all(&home).map_err(|error| {
                let step = format!("make the cgroup `{}`", home.display());
                Failure::new(step, error, Kind::Unsupported)
            })?;
            if self.version == Version::Two {
                for folder in [root, &parent, &home] {
                    write(&folder.join("cgroup.subtree_control"), "+memory +cpu +pids")?;
                }
            }
        }
        Ok(())
    }

    /// The names of the sandboxes that have a cgroup.
    pub(crate) fn names(&self) -> Vec<String> {
        let Some(home) = self.homes().next() else { return Vec::new() };
        let Ok(entries) = fs::read_dir(home) else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Removes Soma's own folders where nothing is left in them.
    pub(crate) fn remove_homes(&self) -> io::Result<()> {
        for (root, home) in self.roots.iter().zip(self.homes()) {
            remove_folder(&home)?;
            // Another home on this host may still use it.
            let _ = remove_folder(&root.join("soma"));
        }
        Ok(())
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Soma's folder in each hierarchy.
    pub(super) fn homes(&self) -> impl Iterator<Item = PathBuf> {
        self.roots.iter().map(|root| root.join("soma").join(&self.label))
    }
}

/// Version 2 where it has the controllers, else version 1; or the name of what is missing.
fn choose(
    mounts: &str,
    controllers_of: &dyn Fn(&Path) -> String,
) -> Result<(Version, Vec<PathBuf>), &'static str> {
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup2") {
        let there = controllers_of(&mount.path);
        let has = |wanted: &&str| there.split_whitespace().any(|name| name == *wanted);
        if CONTROLLERS_OF_VERSION_TWO.iter().all(has) {
            return Ok((Version::Two, vec![mount.path.clone()]));
        }
    }
    let mut roots = Vec::new();
    for controller in CONTROLLERS_OF_VERSION_ONE {
        let root = mounts
            .iter()
            .filter(|mount| mount.kind == "cgroup")
            .find(|mount| mount.options.split(',').any(|option| option == controller))
            .ok_or(controller)?;
        if !roots.contains(&root.path) {
            roots.push(root.path.clone());
        }
    }
    Ok((Version::One, roots))
}

/// One line of `mountinfo`.
struct Mount<'line> {
    path: PathBuf,
    kind: &'line str,
    options: &'line str,
}

impl<'line> Mount<'line> {
    fn parse(line: &'line str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let path = PathBuf::from(before.split(' ').nth(4)?);
        let mut after = after.split(' ');
        Some(Self { path, kind: after.next()?, options: after.nth(1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 24 0:29 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
34 24 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn version_one_is_taken_where_version_two_has_no_controllers() {
        let (version, roots) = choose(HYBRID, &|_| "hugetlb".into()).unwrap();
        assert_eq!(version, Version::One);
        assert_eq!(roots.len(), 4);
        assert_eq!(roots[0], Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn version_two_is_taken_where_it_has_the_controllers() {
        let (version, roots) = choose(HYBRID, &|_| "cpu io memory pids".into()).unwrap();
        assert_eq!(version, Version::Two);
        assert_eq!(roots, [Path::new("/sys/fs/cgroup/unified")]);
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_placed_once() {
        let mounts = "\
30 24 0:26 / /cg/all rw - cgroup cgroup rw,cpu,cpuacct,memory,pids
33 24 0:29 / /cg/freezer rw - cgroup cgroup rw,freezer
";
        let (_, roots) = choose(mounts, &|_| String::new()).unwrap();
        assert_eq!(roots, [Path::new("/cg/all"), Path::new("/cg/freezer")]);
    }

    #[test]
    fn a_missing_controller_is_named() {
        assert_eq!(choose("garbage\n", &|_| String::new()).unwrap_err(), "memory");
    }
}
