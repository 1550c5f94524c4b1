//! What is left on the host of a home whose daemon and engine have ended: nothing.
//!
//! Unlike [`crate::support`], which asks who descends from the engine, this finds also what lost
//! its parents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::Home;

/// How long what goes away by itself may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// By what a home's traces on the host are known.
pub(super) struct Traces {
    home: PathBuf,
    /// The name of its cgroups' folder.
    label: String,
}

impl Traces {
    /// Those of the home that has this sandbox.
    pub(super) fn of(home: &Home, sandbox: &str) -> Self {
        let first = home.first_process(&sandbox.parse().unwrap());
        let groups = fs::read_to_string(format!("/proc/{first}/cgroup")).unwrap();
        let label = groups.lines().find_map(|line| line.split_once("/soma/")?.1.split('/').next());
        Self { home: home.path().to_owned(), label: label.unwrap().to_owned() }
    }

    /// Checks that no process and no cgroup of the home is left.
    #[track_caller]
    pub(super) fn assert_none(&self) {
        settles("processes of the home", || self.processes(), &[]);
        settles("cgroups of the home", || self.groups(), &[]);
    }

    /// Checks that every cgroup of the home is some sandbox's, or is prepared for one.
    #[track_caller]
    pub(super) fn assert_no_group(&self) {
        settles("cgroups that are nobody's", || self.groups_of_nobody(), &[]);
    }

    /// Puts a process into cgroups of the home that are nobody's.
    pub(super) fn forge(&self, process: u32) {
        for group in self.groups() {
            let group = group.join("nobodys");
            fs::create_dir(&group).unwrap();
            fs::write(group.join("cgroup.procs"), process.to_string()).unwrap();
        }
    }

    /// Processes that were started for the home, are in its cgroups or stand on its files.
    fn processes(&self) -> Vec<(u32, String)> {
        let name = self.home.to_str().unwrap().as_bytes();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_own = |process: &u32| {
            let holds = |file: &str, what: &[u8]| {
                let text = fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
                text.windows(what.len()).any(|window| window == what)
            };
            *process != std::process::id()
                && (holds("cmdline", name)
                    || holds("cgroup", self.label.as_bytes())
                    || holds("mountinfo", name))
        };
        let named = |process: u32| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            (process, name.trim_end().to_owned())
        };
        numbers.filter(is_own).map(named).collect()
    }

    /// The cgroups of the home, in every hierarchy.
    fn groups(&self) -> Vec<PathBuf> {
        let top = PathBuf::from("/sys/fs/cgroup");
        let hierarchies = folders_in(&top).into_iter().map(|name| top.join(name));
        let own = [top.clone()].into_iter().chain(hierarchies);
        let own = own.map(|root| root.join("soma").join(&self.label));
        own.filter(|folder| folder.exists()).collect()
    }

    /// The cgroups of the home that no folder of it names.
    fn groups_of_nobody(&self) -> Vec<String> {
        // In this order: what is prepared becomes a sandbox's, and not the other way round.
        let groups = self.groups().into_iter().flat_map(|group| folders_in(&group));
        let groups: BTreeSet<String> = groups.collect();
        let prepared = folders_in(&self.home.join("prepared"));
        let sandboxes = self.home.join("sandboxes");
        let manifest = |id: &String| {
            fs::read_to_string(sandboxes.join(id).join("manifest.json")).unwrap_or_default()
        };
        let manifests: String = folders_in(&sandboxes).iter().map(manifest).collect();
        let is_nobodys =
            |slot: &String| !prepared.contains(slot) && !manifests.contains(slot.as_str());
        groups.into_iter().filter(is_nobodys).collect()
    }
}

/// Checks that the folders of sandboxes are exactly these.
#[track_caller]
pub(super) fn assert_folders(home: &Home, wanted: &[&str]) {
    let there = || {
        let folder = fs::read_dir(home.path().join("sandboxes")).unwrap().flatten();
        let mut names: Vec<String> =
            folder.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let mut wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    wanted.sort();
    settles("folders of sandboxes", there, &wanted);
}

/// Checks that something becomes this, and soon.
#[track_caller]
fn settles<T: PartialEq + std::fmt::Debug>(what: &str, now: impl Fn() -> Vec<T>, wanted: &[T]) {
    let begun = Instant::now();
    while now() != wanted && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(now(), wanted, "{what}");
}

fn folders_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
