//! Limits on memory, processor and processes, on cgroups of either version.
//!
//! ```text
//! <hierarchy>/soma/<home>/<sandbox>/
//!     guest/       process 1 and the supervisor: never short because of the workload
//!     workload/    every command; here the limits are
//! ```
//!
//! Processes are placed once, when a sandbox is prepared, and what they fork stays where they
//! are. Moving a process costs a grace period of the kernel (up to 15 ms, the first of a
//! burst), so no command is ever moved.

mod files;
mod find;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::Limits;
use rustix::process::{Pid, Signal};

use crate::failure::{Failure, Step};
use files::{read_numbers, remove_folder, write};
pub(crate) use find::Hierarchies;
use find::Version;

/// A place for processes within a sandbox's cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Above both others; empty once the sandbox is ready.
    Whole,
    /// For process 1 and the supervisor.
    Guest,
    /// For everything that the sandbox's owner runs.
    Workload,
}

/// The cgroups of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    version: Version,
    /// One folder on version 2; on version 1 one for each hierarchy.
    folders: Vec<PathBuf>,
}

impl Group {
    /// The cgroups with this name, which need not be there.
    pub(crate) fn named(hierarchies: &Hierarchies, name: &str) -> Self {
        let folders = hierarchies.homes().map(|home| home.join(name)).collect();
        Self { version: hierarchies.version(), folders }
    }

    /// Makes them, without limits.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        for folder in &self.folders {
            for folder in [folder, &folder.join("guest"), &folder.join("workload")] {
                fs::create_dir_all(folder).step(&format!("make `{}`", folder.display()))?;
            }
        }
        Ok(())
    }

    /// Puts a process into a part.
    pub(crate) fn place(&self, part: Part, pid: Pid) -> Result<(), Failure> {
        for folder in &self.folders {
            let folder = match part {
                Part::Whole => folder.clone(),
                Part::Guest => folder.join("guest"),
                Part::Workload => folder.join("workload"),
            };
            write(&folder.join("cgroup.procs"), &pid.as_raw_pid().to_string())?;
        }
        Ok(())
    }

    /// Lets the parts have limits. On version 2 only a group without processes of its own may
    /// do so, hence after everybody was placed.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        match self.version {
            Version::One => Ok(()),
            Version::Two => self.each("cgroup.subtree_control", "+memory +cpu +pids"),
        }
    }

    /// Sets what the workload may use. May be repeated with other values.
    pub(crate) fn limit(&self, limits: &Limits) -> Result<(), Failure> {
        const PERIOD: u64 = 100_000;
        let quota = (PERIOD * u64::from(limits.cpus.0) / 1000).max(1000);
        match self.version {
            Version::One => {
                self.limit_memory_of_version_one(limits.memory.0)?;
                self.workload("cpu.cfs_period_us", PERIOD)?;
                self.workload("cpu.cfs_quota_us", quota)?;
                self.workload("pids.max", limits.pids)
            }
            Version::Two => {
                self.workload("memory.max", limits.memory.0)?;
                // Absent where the kernel has no swap, which is what is wanted.
                self.workload_if_there("memory.swap.max", 0)?;
                self.workload("cpu.max", format!("{quota} {PERIOD}"))?;
                self.workload("pids.max", limits.pids)
            }
        }
    }

    /// The limit with swap may never be below the one without, so the order depends on whether
    /// the limit rises or falls.
    fn limit_memory_of_version_one(&self, bytes: u64) -> Result<(), Failure> {
        if !self.has("workload/memory.memsw.limit_in_bytes") {
            self.workload("memory.limit_in_bytes", bytes)?;
            return self.workload("memory.swappiness", 0);
        }
        if self.workload("memory.limit_in_bytes", bytes).is_err() {
            self.workload("memory.memsw.limit_in_bytes", bytes)?;
            self.workload("memory.limit_in_bytes", bytes)?;
        }
        self.workload("memory.memsw.limit_in_bytes", bytes)
    }

    /// Every process in any part, as the host counts them.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let Some(folder) = self.folders.first() else { return Vec::new() };
        ["", "guest", "workload"]
            .iter()
            .flat_map(|part| read_numbers(&folder.join(part).join("cgroup.procs")))
            .filter_map(Pid::from_raw)
            .collect()
    }

    /// Kills every process in any part.
    pub(crate) fn kill(&self) {
        for pid in self.processes() {
            // It may have gone by itself since it was read.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Removes the cgroups. Fails with `ResourceBusy` while a process is still dying.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for folder in &self.folders {
            for part in ["guest", "workload", ""] {
                remove_folder(&folder.join(part))?;
            }
        }
        Ok(())
    }

    fn has(&self, file: &str) -> bool {
        self.folders.iter().any(|folder| folder.join(file).exists())
    }

    /// Writes to a file of the workload, in the hierarchy that has it.
    fn workload(&self, file: &str, value: impl Display) -> Result<(), Failure> {
        let path = self.find(&Path::new("workload").join(file));
        write(&path, &value.to_string())
    }

    fn workload_if_there(&self, file: &str, value: impl Display) -> Result<(), Failure> {
        if self.has(&format!("workload/{file}")) { self.workload(file, value) } else { Ok(()) }
    }

    fn each(&self, file: &str, value: &str) -> Result<(), Failure> {
        self.folders.iter().try_for_each(|folder| write(&folder.join(file), value))
    }

    /// On version 1 the files are spread over the hierarchies.
    fn find(&self, file: &Path) -> PathBuf {
        let mut candidates = self.folders.iter().map(|folder| folder.join(file));
        let first = self.folders.first().map(|folder| folder.join(file)).unwrap_or_default();
        candidates.find(|path| path.exists()).unwrap_or(first)
    }
}
