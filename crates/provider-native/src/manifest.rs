//! What is written down about a sandbox that is kept, so that an engine that starts later
//! finds it again.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use domain::{Ending, Limit, Limits, SandboxId, SnapshotId};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::durable;
use crate::ids::IdRange;
use crate::snapshot::Sealed;
use crate::template::{Generation, Ground, Imported};
use crate::verbs::Record;

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 7;

const NAME: &str = "manifest.json";

/// Where earlier versions had a sandbox's end written down.
const ENDED: &str = "ended.json";

/// The record of one sandbox: the truth about it, in its own folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    version: u32,
    pub(crate) id: SandboxId,
    /// The name of its cgroups.
    pub(crate) slot: String,
    pub(crate) base_id: u32,
    /// How many ids it has. Version 1 knew only whole ranges.
    #[serde(default = "whole_range")]
    pub(crate) ids: u32,
    /// The state of the host's own system that it stands on; empty where it stands on another.
    pub(crate) generation: String,
    /// The template that it stands on instead; over the host's own system where that has a state
    /// too, which it had not up to version 6. Version 3 had none.
    #[serde(default)]
    pub(crate) template: Option<Imported>,
    /// The folder of its guest's program.
    pub(crate) guest: String,
    /// Versions up to 3 had none on inodes and open files.
    pub(crate) limits: Limits,
    /// Those of the limits that nothing holds it to. Version 1 had none.
    #[serde(default)]
    pub(crate) unenforced: Vec<Limit>,
    pub(crate) first: Process,
    pub(crate) supervisor: Process,
    /// The host's life in which those processes were started. Version 4 had none.
    #[serde(default)]
    boot: String,
    /// The file in which its supervisor writes why it ended, another one for each start: so a start
    /// that does not come to its end takes nothing away. Version 4 had one for all.
    #[serde(default = "first_ended")]
    pub(crate) ended: String,
    /// What whoever made it wrote down with it, until they write something else
    /// ([`crate::record`]). Here, because two files are twice the time until they are safe.
    /// Version 2 had it in a file of its own.
    #[serde(default)]
    record: Record,
    /// What it may reach, in the same way. Version 5 had no network.
    #[serde(default)]
    network: Record,
    /// The sealed disks that its own lies over, the lowest first. Version 6 had none.
    #[serde(default)]
    pub(crate) layers: Vec<SnapshotId>,
    /// The file with its own disk, another one after each seal. Version 6 had one for all.
    #[serde(default = "first_disk")]
    pub(crate) disk: String,
    /// The snapshot that it was made from, or brought back to. Version 6 had none.
    #[serde(default)]
    pub(crate) origin: Option<SnapshotId>,
}

impl Manifest {
    /// The record of a sandbox that was just made.
    pub(crate) fn new(made: Made, [first, supervisor]: [Process; 2]) -> Self {
        let Made { id, slot, ids, ground, guest, limits, unenforced, record, network } = made;
        let ended = ended_name(&slot);
        let (generation, template) = match ground {
            Ground::Host(generation) => (generation.name().to_owned(), None),
            Ground::Imported(imported) => (String::new(), Some(imported)),
            Ground::Layered(imported, generation) => (generation.name().to_owned(), Some(imported)),
        };
        let (base_id, ids) = (ids.base, ids.count);
        let version = VERSION;
        Self {
            version,
            id,
            slot,
            base_id,
            ids,
            generation,
            template,
            guest,
            limits,
            unenforced,
            first,
            supervisor,
            boot: boot(),
            ended,
            record,
            network,
            layers: Vec::new(),
            disk: first_disk(),
            origin: None,
        }
    }

    /// The same of a sandbox that stands on these sealed disks and has not written anything since.
    pub(crate) fn on_layers(self, layers: Vec<SnapshotId>, disk: String) -> Self {
        Self { version: VERSION, layers, disk, ..self }
    }

    /// The same of a sandbox that is what this snapshot was.
    pub(crate) fn of_origin(self, origin: &Sealed, disk: String) -> Self {
        let Sealed { generation, template, guest, .. } = origin.clone();
        Self {
            generation,
            template,
            guest,
            origin: Some(origin.id.clone()),
            ..self.on_layers(origin.with_itself(), disk)
        }
    }

    /// The same of a sandbox that was started again.
    pub(crate) fn started(self, again: Again, [first, supervisor]: [Process; 2]) -> Self {
        let Again { slot, ids, guest, limits } = again;
        let (ended, base_id, ids) = (ended_name(&slot), ids.base, ids.count);
        let (version, boot) = (VERSION, boot());
        Self { version, slot, base_id, ids, guest, limits, first, supervisor, boot, ended, ..self }
    }

    /// Its first process and its supervisor, if they live.
    pub(crate) fn processes(&self) -> Option<[Pid; 2]> {
        let (first, supervisor) = self.first.find().zip(self.supervisor.find())?;
        self.is_of_this_boot().then_some([first, supervisor])
    }

    /// Why it does not run.
    pub(crate) fn ending(&self, folder: &Path) -> Ending {
        match read_ending(folder, &self.ended) {
            Ending::Unseen if !self.is_of_this_boot() => Ending::HostRestarted,
            seen => seen,
        }
    }

    fn is_of_this_boot(&self) -> bool {
        self.boot.is_empty() || self.boot == boot()
    }

    /// The ids of the sandbox.
    pub(crate) fn ids(&self) -> IdRange {
        IdRange { base: self.base_id, count: self.ids }
    }

    /// The same of a sandbox that may use this from now on.
    pub(crate) fn with_limits(self, limits: Limits) -> Self {
        Self { version: VERSION, limits, ..self }
    }

    /// What the sandbox stands on.
    pub(crate) fn ground(&self) -> Ground {
        match &self.template {
            Some(imported) if self.generation.is_empty() => Ground::Imported(imported.clone()),
            Some(imported) => Ground::Layered(imported.clone(), self.generation_named()),
            None => Ground::Host(self.generation_named()),
        }
    }

    fn generation_named(&self) -> Generation {
        Generation::named(&self.generation)
    }

    /// What was written down when the sandbox was made.
    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// What it was made to reach.
    pub(crate) fn into_network(self) -> Record {
        self.network
    }

    /// Reads the manifest of a sandbox's folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let text = durable::read(folder, NAME)?;
        let manifest: Versioned = serde_json::from_slice(&text)?;
        if manifest.version > VERSION {
            return Err(io::Error::other(format!(
                "its manifest has version {}, and this soma reads up to {VERSION}",
                manifest.version
            )));
        }
        Ok(serde_json::from_slice(&text)?)
    }

    /// Writes it whole or not at all, and so that it survives the host's death.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        self.put(folder)?;
        durable::settle(folder)
    }

    /// The same into a folder that is settled by being moved to where it is found.
    pub(crate) fn put(&self, folder: &Path) -> io::Result<()> {
        durable::put(folder, NAME, &serde_json::to_vec_pretty(self)?)
    }
}

/// What a sandbox was made as.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) id: SandboxId,
    pub(crate) slot: String,
    pub(crate) ids: IdRange,
    pub(crate) ground: Ground,
    pub(crate) guest: String,
    pub(crate) limits: Limits,
    pub(crate) unenforced: Vec<Limit>,
    pub(crate) record: Record,
    pub(crate) network: Record,
}

/// What is another when a sandbox is started again.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) slot: String,
    pub(crate) ids: IdRange,
    pub(crate) guest: String,
    pub(crate) limits: Limits,
}

fn whole_range() -> u32 {
    65_536
}

fn first_disk() -> String {
    disk::NAME.to_owned()
}

fn first_ended() -> String {
    ENDED.to_owned()
}

/// The file in which the end of what has this slot is written down.
pub(crate) fn ended_name(slot: &str) -> String {
    format!("ended-{slot}.json")
}

/// What tells this life of the host from others.
fn boot() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    BOOT.get_or_init(|| read().trim().to_owned()).clone()
}

/// Why a sandbox ended, as its supervisor wrote it down in its folder under this name.
pub(crate) fn read_ending(folder: &Path, name: &str) -> Ending {
    fs::read(folder.join(name))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or(Ending::Unseen)
}

/// A process, told from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pid: i32,
    /// When it was started, in the host's clock ticks since it booted.
    started: u64,
}

impl Process {
    /// One that never was.
    pub(crate) const NONE: Self = Self { pid: 0, started: 0 };

    /// Identifies a process that is there now.
    pub(crate) fn identify(pid: Pid) -> io::Result<Self> {
        let pid = pid.as_raw_pid();
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold anything, so count from behind it: the 22nd field.
        let started = text
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok())
            .ok_or_else(|| io::Error::other(format!("process {pid} has no start time")))?;
        Ok(Self { pid, started })
    }

    /// The same process, if it still lives.
    pub(crate) fn find(self) -> Option<Pid> {
        let pid = Pid::from_raw(self.pid)?;
        Self::identify(pid).is_ok_and(|found| found == self).then_some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_process() -> Process {
        Process::identify(rustix::process::getpid()).unwrap()
    }

    fn manifest() -> Manifest {
        Manifest::new(made(), [own_process(); 2])
    }

    fn made() -> Made {
        Made {
            id: SandboxId::from_random([7; 15]),
            slot: "slot".into(),
            ids: IdRange { base: 1, count: 2048 },
            ground: Ground::Host(Generation::named("generation")),
            guest: "guest".into(),
            limits: Limits::default(),
            unenforced: vec![Limit::Disk],
            record: Record("record".into()),
            network: Record("rules".into()),
        }
    }

    #[test]
    fn a_manifest_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        manifest().write(folder.path()).unwrap();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!(read.id, manifest().id);
        assert_eq!(read.limits, Limits::default());
        assert_eq!((read.ids(), read.unenforced), (manifest().ids(), vec![Limit::Disk]));
    }

    #[test]
    fn a_manifest_of_the_first_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = serde_json::to_value(manifest()).unwrap();
        first["version"] = 1.into();
        for later in ["ids", "unenforced", "record", "template", "boot", "ended"] {
            first.as_object_mut().unwrap().remove(later).unwrap();
        }
        fs::write(folder.path().join("manifest.json"), first.to_string()).unwrap();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!((read.ids().count, &read.unenforced), (65_536, &vec![]));
        assert_eq!(read.ended, "ended.json");
        assert!(read.is_of_this_boot());
        assert_eq!(read.into_record().0, "");
    }

    #[test]
    fn a_manifest_names_the_template_that_the_sandbox_stands_on() {
        let folder = tempfile::tempdir().unwrap();
        let host = Ground::Host(Generation::named("generation"));
        assert_eq!(manifest().ground(), host);
        let imported = Imported { name: "debian".parse().unwrap(), number: 3 };
        let alone = Ground::Imported(imported.clone());
        let layered = Ground::Layered(imported, Generation::named("generation"));
        for ground in [alone, layered] {
            let made = Made { ground: ground.clone(), ..made() };
            Manifest::new(made, [own_process(); 2]).write(folder.path()).unwrap();
            assert_eq!(Manifest::read(folder.path()).unwrap().ground(), ground);
        }
    }

    #[test]
    fn a_manifest_of_a_later_soma_is_refused_by_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let mut later = manifest();
        later.version = VERSION + 1;
        later.write(folder.path()).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("version {}", VERSION + 1)), "{error}");
    }

    #[test]
    fn what_ran_before_the_host_was_restarted_is_not_found_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = manifest();
        assert!(manifest.processes().is_some());
        manifest.boot = "another".into();
        assert!(manifest.processes().is_none());
        assert_eq!(manifest.ending(folder.path()), Ending::HostRestarted);
        fs::write(folder.path().join(&manifest.ended), "\"timed_out\"").unwrap();
        assert_eq!(manifest.ending(folder.path()), Ending::TimedOut);
    }

    #[test]
    fn a_process_is_found_again_and_another_with_its_number_is_not() {
        let own = Process::identify(rustix::process::getpid()).unwrap();
        assert!(own.find().is_some());
        assert!(Process { started: own.started + 1, ..own }.find().is_none());
    }

    #[test]
    fn a_sandbox_without_a_record_of_its_end_ended_unseen() {
        let folder = tempfile::tempdir().unwrap();
        let read = || read_ending(folder.path(), ENDED);
        assert_eq!(read(), Ending::Unseen);
        fs::write(folder.path().join(ENDED), "\"timed_out\"").unwrap();
        assert_eq!(read(), Ending::TimedOut);
        fs::write(folder.path().join(ENDED), "\"timed").unwrap();
        assert_eq!(read(), Ending::Unseen);
    }
}
