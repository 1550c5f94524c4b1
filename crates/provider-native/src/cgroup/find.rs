//! Where this host's cgroups are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::Limit;

use super::files::{remove_folder, write};
use crate::failure::{Failure, Kind, Step};
use crate::rights::Rights;

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
    /// None where there are no cgroups for us.
    roots: Vec<PathBuf>,
    label: String,
    missing: Vec<Limit>,
}

/// What limits need, and freezing on version 1, where it is a controller.
const CONTROLLERS_OF_VERSION_ONE: [&str; 4] = ["memory", "cpu", "pids", "freezer"];
/// Each is also the name of the limit that it holds.
const CONTROLLERS: [(&str, Limit); 3] =
    [("memory", Limit::Memory), ("cpu", Limit::Cpus), ("pids", Limit::Pids)];

/// Where an engine that shares its cgroup with nobody puts itself: on version 2 a group with
/// processes of its own cannot have parts with limits.
const ENGINE: &str = "soma-engine";
/// Counts what is used, for metrics; a sandbox does without where it is not mounted.
const COUNTER_OF_VERSION_ONE: &str = "cpuacct";

impl Hierarchies {
    /// Finds them for the home with this label. What is not there is no limit's to hold, which
    /// [`Self::missing`] says.
    pub(crate) fn find(rights: Rights, label: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let chosen = match rights {
            Rights::Root => choose(&mounts, &controllers_of),
            Rights::User { .. } => choose_delegated(&mounts, &controllers_of),
        };
        Self { label: label.to_owned(), ..chosen }
    }

    /// The limits that these cgroups do not hold.
    pub(crate) fn missing(&self) -> &[Limit] {
        &self.missing
    }

    /// Makes Soma's own folders, with all controllers that their children need.
    pub(crate) fn make_homes(&mut self, rights: Rights) -> Result<(), Failure> {
        let settled = match rights {
            // In a container they may be there to look at only.
            Rights::Root => self
                .roots
                .iter()
                .try_for_each(|root| fs::create_dir_all(root.join("soma")).step("make a cgroup")),
            Rights::User { .. } => self.settle_beside_ourselves(),
        };
        if settled.is_err() {
            // Nothing in there can be limited: somebody else's it is, or is in it too.
            *self = Self { label: self.label.clone(), ..Self::none() };
        }
        let wanted = self.controllers();
        for root in &self.roots {
            let parent = root.join("soma");
            let home = parent.join(&self.label);
            fs::create_dir_all(&home).map_err(|error| {
                let step = format!("make the cgroup `{}`", home.display());
                Failure::new(step, error, Kind::Unsupported)
            })?;
            if self.version == Version::Two {
                for folder in [root, &parent, &home] {
                    write(&folder.join("cgroup.subtree_control"), &wanted)?;
                }
            }
        }
        Ok(())
    }

    /// In a cgroup that was delegated to us, makes room for its parts by leaving it for one, with
    /// the daemon that started us.
    fn settle_beside_ourselves(&self) -> Result<(), Failure> {
        let Some(root) = self.roots.first() else { return Ok(()) };
        let own = root.join(ENGINE);
        fs::create_dir_all(&own).step("make a cgroup")?;
        let processes = own.join("cgroup.procs");
        write(&processes, &std::process::id().to_string())?;
        for process in fs::read_to_string(root.join("cgroup.procs")).unwrap_or_default().lines() {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            if name.trim_end() == "soma" {
                // One that is gone by now needs no moving; whoever stays is met below.
                let _ = write(&processes, process);
            }
        }
        write(&root.join("cgroup.subtree_control"), &self.controllers())
    }

    /// The controllers that are there, as version 2 wants them named.
    pub(super) fn controllers(&self) -> String {
        let there = CONTROLLERS.iter().filter(|(_, limit)| !self.missing.contains(limit));
        there.map(|(name, _)| format!("+{name}")).collect::<Vec<_>>().join(" ")
    }

    fn none() -> Self {
        let missing = CONTROLLERS.map(|(_, limit)| limit).to_vec();
        Self { version: Version::Two, roots: Vec::new(), label: String::new(), missing }
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

fn controllers_of(root: &Path) -> String {
    fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
}

/// Version 2 where it has all controllers, else what there is of version 1.
fn choose(mounts: &str, controllers_of: &dyn Fn(&Path) -> String) -> Hierarchies {
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    for mount in mounts.iter().filter(|mount| mount.kind == "cgroup2") {
        if missing_in(&controllers_of(&mount.path)).is_empty() {
            let roots = vec![mount.path.clone()];
            return Hierarchies { roots, missing: Vec::new(), ..Hierarchies::none() };
        }
    }
    let mut roots = Vec::new();
    let mut there = Vec::new();
    for controller in CONTROLLERS_OF_VERSION_ONE.into_iter().chain([COUNTER_OF_VERSION_ONE]) {
        let root = mounts
            .iter()
            .filter(|mount| mount.kind == "cgroup")
            .find(|mount| mount.options.split(',').any(|option| option == controller));
        let Some(root) = root else { continue };
        there.push(controller);
        if !roots.contains(&root.path) {
            roots.push(root.path.clone());
        }
    }
    let missing = missing_in(&there.join(" "));
    Hierarchies { version: Version::One, roots, missing, ..Hierarchies::none() }
}

/// The cgroup of version 2 that this process is in, where it may be changed by its user. On
/// version 1 nobody but root moves processes of another id, as a sandbox's are.
fn choose_delegated(mounts: &str, controllers_of: &dyn Fn(&Path) -> String) -> Hierarchies {
    let mount = mounts.lines().filter_map(Mount::parse).find(|mount| mount.kind == "cgroup2");
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/").map(ToOwned::to_owned));
    let (Some(mount), Some(own)) = (mount, own) else { return Hierarchies::none() };
    let root = mount.path.join(own.trim_end_matches(&format!("/{ENGINE}")));
    let writable = ["", "cgroup.procs", "cgroup.subtree_control"]
        .iter()
        .all(|name| rustix::fs::access(root.join(name), rustix::fs::Access::WRITE_OK).is_ok());
    let missing = missing_in(&controllers_of(&root));
    if !writable || missing.len() == CONTROLLERS.len() {
        return Hierarchies::none();
    }
    Hierarchies { roots: vec![root], missing, ..Hierarchies::none() }
}

/// The limits whose controllers are not among these.
fn missing_in(there: &str) -> Vec<Limit> {
    let has = |name: &str| there.split_whitespace().any(|controller| controller == name);
    CONTROLLERS.iter().filter(|(name, _)| !has(name)).map(|(_, limit)| *limit).collect()
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
        let found = choose(HYBRID, &|_| "hugetlb".into());
        assert_eq!((found.version, found.missing()), (Version::One, &[][..]));
        assert_eq!(found.roots.len(), 4);
        assert_eq!(found.roots[0], Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn version_two_is_taken_where_it_has_the_controllers() {
        let found = choose(HYBRID, &|_| "cpu io memory pids".into());
        assert_eq!((found.version, found.missing()), (Version::Two, &[][..]));
        assert_eq!(found.roots, [Path::new("/sys/fs/cgroup/unified")]);
        assert_eq!(found.controllers(), "+memory +cpu +pids");
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_placed_once() {
        let mounts = "\
30 24 0:26 / /cg/all rw - cgroup cgroup rw,cpu,cpuacct,memory,pids
33 24 0:29 / /cg/freezer rw - cgroup cgroup rw,freezer
";
        let found = choose(mounts, &|_| String::new());
        assert_eq!(found.roots, [Path::new("/cg/all"), Path::new("/cg/freezer")]);
    }

    #[test]
    fn what_no_controller_holds_is_said() {
        let found = choose("garbage\n", &|_| String::new());
        assert_eq!(found.missing(), [Limit::Memory, Limit::Cpus, Limit::Pids]);
        let without_memory = HYBRID.replace("rw,memory", "rw,blkio");
        let found = choose(&without_memory, &|_| String::new());
        assert_eq!((found.missing(), found.roots.len()), (&[Limit::Memory][..], 3));
    }
}
