//! What is written down about a sandbox that is kept, so that an engine that starts later
//! finds it again.

use std::fs;
use std::io;
use std::path::Path;

use domain::{Ending, Limit, Limits, SandboxId};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::durable;
use crate::ids::IdRange;
use crate::template::{Generation, Ground, Imported};
use crate::verbs::Record;

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 4;

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
    /// The template that it stands on instead. Version 3 had none.
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
    /// What whoever made it wrote down with it, until they write something else
    /// ([`crate::record`]). Here, because two files are twice the time until they are safe.
    /// Version 2 had it in a file of its own.
    #[serde(default)]
    record: Record,
}

impl Manifest {
    /// The record of a sandbox that was just made.
    pub(crate) fn new(made: Made, [first, supervisor]: [Process; 2]) -> Self {
        let Made { id, slot, ids, ground, guest, limits, unenforced, record } = made;
        let (generation, template) = match ground {
            Ground::Host(generation) => (generation.name().to_owned(), None),
            Ground::Imported(imported) => (String::new(), Some(imported)),
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
            record,
        }
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
            Some(imported) => Ground::Imported(imported.clone()),
            None => Ground::Host(Generation::named(&self.generation)),
        }
    }

    /// What was written down when the sandbox was made.
    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    /// Reads the manifest of a sandbox's folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let manifest: Self = serde_json::from_slice(&fs::read(folder.join("manifest.json"))?)?;
        if manifest.version > VERSION {
            return Err(io::Error::other(format!(
                "its manifest has version {}, and this soma reads up to {VERSION}",
                manifest.version
            )));
        }
        Ok(manifest)
    }

    /// Writes it whole or not at all, and so that it survives the host's death.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        durable::put(folder, "manifest.json", &serde_json::to_vec_pretty(self)?)?;
        durable::settle(folder)
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
}

fn whole_range() -> u32 {
    65_536
}

/// Why the sandbox in this folder ended, as its supervisor wrote it down.
pub(crate) fn read_ending(folder: &Path) -> Ending {
    fs::read(folder.join("ended.json"))
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

    fn manifest() -> Manifest {
        let process = Process::identify(rustix::process::getpid()).unwrap();
        let made = Made {
            id: SandboxId::from_random([7; 15]),
            slot: "slot".into(),
            ids: IdRange { base: 1, count: 2048 },
            ground: Ground::Host(Generation::named("generation")),
            guest: "guest".into(),
            limits: Limits::default(),
            unenforced: vec![Limit::Disk],
            record: Record("record".into()),
        };
        Manifest::new(made, [process; 2])
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
        for later in ["ids", "unenforced", "record", "template"] {
            first.as_object_mut().unwrap().remove(later).unwrap();
        }
        fs::write(folder.path().join("manifest.json"), first.to_string()).unwrap();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!((read.ids().count, &read.unenforced), (65_536, &vec![]));
        assert_eq!(read.into_record().0, "");
    }

    #[test]
    fn a_manifest_names_the_template_that_the_sandbox_stands_on() {
        let folder = tempfile::tempdir().unwrap();
        let host = Ground::Host(Generation::named("generation"));
        assert_eq!(manifest().ground(), host);
        let imported = Imported { name: "debian".parse().unwrap(), number: 3 };
        let manifest = Manifest { template: Some(imported.clone()), ..manifest() };
        manifest.write(folder.path()).unwrap();
        let read = Manifest::read(folder.path()).unwrap();
        assert_eq!(read.ground(), Ground::Imported(imported));
    }

    #[test]
    fn a_manifest_of_a_later_soma_is_refused_by_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let mut later = manifest();
        later.version = VERSION + 1;
        later.write(folder.path()).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("version 5"), "{error}");
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
        assert_eq!(read_ending(folder.path()), Ending::Unseen);
        fs::write(folder.path().join("ended.json"), "\"timed_out\"").unwrap();
        assert_eq!(read_ending(folder.path()), Ending::TimedOut);
        fs::write(folder.path().join("ended.json"), "\"timed").unwrap();
        assert_eq!(read_ending(folder.path()), Ending::Unseen);
    }
}
