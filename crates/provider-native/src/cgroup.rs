//! Limits on memory, processor and processes, on cgroups of either version.
//!
//! ```text
//! <hierarchy>/soma/<home>/<sandbox>/
//!     guest/       process 1 and the supervisor: never short because of the workload, with
//!                  limits of its own
//!     workload/    every command; here the limits are
//!     reserve/     commands for which the workload has no process left, so that somebody can
//!                  end what fills it; small, and nothing else ever gets in
//!     waking/      who restores it, and stands beside it while the parts above are frozen; gone
//!                  when it runs
//! ```
//!
//! Processes are placed once, when a sandbox is prepared, and what they fork stays where they
//! are. Moving a process costs a grace period of the kernel (up to 15 ms, the first of a
//! burst), so no command is ever moved.

mod files;
mod find;
mod freeze;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::PathBuf;

use domain::{Bytes, Limit, Limits};
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
    /// For what the owner runs when the workload is at its limit of processes.
    Reserve,
    /// For who restores it.
    Waking,
}

impl Part {
    fn folder(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Guest => "guest",
            Self::Workload => "workload",
            Self::Reserve => "reserve",
            Self::Waking => WAKING,
        }
    }
}

/// The folders of all parts, below that of the whole.
const PARTS: [&str; 3] = ["guest", "workload", "reserve"];

/// The one that is there only while a sandbox is restored.
const WAKING: &str = "waking";

/// The cgroups of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    version: Version,
    /// One folder on version 2; on version 1 one for each hierarchy. None without cgroups.
    folders: Vec<PathBuf>,
    /// What no controller holds.
    missing: Vec<Limit>,
    controllers: String,
}

impl Group {
    /// The cgroups with this name, which need not be there.
    pub(crate) fn named(hierarchies: &Hierarchies, name: &str) -> Self {
        let folders = hierarchies.homes().map(|home| home.join(name)).collect();
        Self {
            version: hierarchies.version(),
            folders,
            missing: hierarchies.missing().to_vec(),
            controllers: hierarchies.controllers(),
        }
    }

    /// Whether there are any.
    pub(crate) fn is_there(&self) -> bool {
        !self.folders.is_empty()
    }

    /// Where they are: one folder for each hierarchy.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Makes them, without limits.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        for folder in &self.folders {
            for part in PARTS {
                let folder = folder.join(part);
                fs::create_dir_all(&folder).step(&format!("make `{}`", folder.display()))?;
            }
        }
        Ok(())
    }

    /// Makes the part for who restores the sandbox.
    pub(crate) fn make_waking(&self) -> Result<(), Failure> {
        for folder in self.folders.iter().map(|folder| folder.join(WAKING)) {
            fs::create_dir_all(&folder).step(&format!("make `{}`", folder.display()))?;
        }
        Ok(())
    }

    /// Removes it again, when nobody is in it.
    pub(crate) fn remove_waking(&self) -> Result<(), Failure> {
        for folder in self.folders.iter().map(|folder| folder.join(WAKING)) {
            remove_folder(&folder).step(&format!("remove `{}`", folder.display()))?;
        }
        Ok(())
    }

    /// Puts a process into a part.
    pub(crate) fn place(&self, part: Part, pid: Pid) -> Result<(), Failure> {
        for folder in &self.folders {
            let folder = folder.join(part.folder());
            write(&folder.join("cgroup.procs"), &pid.as_raw_pid().to_string())?;
        }
        Ok(())
    }

    /// Lets the parts have limits. On version 2 only a group without processes of its own may
    /// do so, hence after everybody was placed.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        match self.version {
            Version::One => Ok(()),
            Version::Two => self.each("cgroup.subtree_control", &self.controllers),
        }
    }

    /// Sets what the workload may use. May be repeated with other values.
    pub(crate) fn limit(&self, limits: &Limits) -> Result<(), Failure> {
        let share = Share { memory: limits.memory.0, cpus: limits.cpus.0, pids: limits.pids };
        self.limit_part("workload", &share)
    }

    /// Sets what the parts beside the workload may use. Process 1 and the supervisor get plenty
    /// for their work, and a wall in case somebody inside gets hold of process 1. The reserve gets
    /// what a shell needs to look around and kill: whoever fills it too has no more than that.
    pub(crate) fn limit_beside(&self) -> Result<(), Failure> {
        self.limit_part("guest", &Share { memory: 256 << 20, cpus: 1000, pids: 64 })?;
        self.limit_part("reserve", &Share { memory: 64 << 20, cpus: 500, pids: 16 })
    }

    fn limit_part(&self, part: &str, share: &Share) -> Result<(), Failure> {
        const PERIOD: u64 = 100_000;
        let quota = (PERIOD * u64::from(share.cpus) / 1000).max(1000);
        if self.holds(Limit::Memory) {
            self.limit_memory(part, share.memory)?;
        }
        match self.version {
            _ if !self.holds(Limit::Cpus) => {}
            Version::One => {
                self.set(part, "cpu.cfs_period_us", PERIOD)?;
                self.set(part, "cpu.cfs_quota_us", quota)?;
            }
            Version::Two => self.set(part, "cpu.max", format!("{quota} {PERIOD}"))?,
        }
        if self.holds(Limit::Pids) { self.set(part, "pids.max", share.pids) } else { Ok(()) }
    }

    fn holds(&self, limit: Limit) -> bool {
        !self.missing.contains(&limit)
    }

    fn limit_memory(&self, part: &str, bytes: u64) -> Result<(), Failure> {
        match self.version {
            Version::One => {
                self.limit_memory_of_version_one(part, bytes)?;
                // Version 1 counts what TCP holds apart from all other memory.
                self.set_if_there(part, "memory.kmem.tcp.limit_in_bytes", bytes / 4)
            }
            Version::Two => {
                self.set(part, "memory.max", bytes)?;
                // Absent where the kernel has no swap, which is what is wanted.
                self.set_if_there(part, "memory.swap.max", 0)
            }
        }
    }

    /// The limit with swap may never be below the one without, so the order depends on whether
    /// the limit rises or falls.
    fn limit_memory_of_version_one(&self, part: &str, bytes: u64) -> Result<(), Failure> {
        const PLAIN: &str = "memory.limit_in_bytes";
        const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
        if !self.has(part, WITH_SWAP) {
            self.set(part, PLAIN, bytes)?;
            return self.set(part, "memory.swappiness", 0);
        }
        if self.set(part, PLAIN, bytes).is_err() {
            self.set(part, WITH_SWAP, bytes)?;
            self.set(part, PLAIN, bytes)?;
        }
        self.set(part, WITH_SWAP, bytes)
    }

    /// What the workload has written to files and the kernel has not put on a disk yet.
    pub(crate) fn unwritten(&self) -> Bytes {
        let names = match self.version {
            Version::One => ["total_dirty ", "total_writeback "],
            Version::Two => ["file_dirty ", "file_writeback "],
        };
        let statistics = self.read("workload", "memory.stat").unwrap_or_default();
        Bytes(names.into_iter().map(|name| figure(&statistics, name)).sum())
    }

    /// What the workload uses of memory, without what the kernel can take back; unknown where
    /// nothing counts it.
    pub(crate) fn memory_in_use(&self) -> Option<Bytes> {
        let (usage, cache, shared) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_cache ", "total_shmem "),
            Version::Two => ("memory.current", "file ", "shmem "),
        };
        let usage: u64 = self.read("workload", usage)?.trim().parse().ok()?;
        let statistics = self.read("workload", "memory.stat").unwrap_or_default();
        let named = |name: &str| figure(&statistics, name);
        // Files in memory count as cache, and cannot be given back.
        Some(Bytes(usage.saturating_sub(named(cache).saturating_sub(named(shared)))))
    }

    /// Every process in a part, as the host counts them.
    pub(crate) fn processes_of(&self, part: Part) -> Vec<Pid> {
        let Some(folder) = self.folders.first() else { return Vec::new() };
        let numbers = read_numbers(&folder.join(part.folder()).join("cgroup.procs"));
        numbers.into_iter().filter_map(Pid::from_raw).collect()
    }

    /// Whether these are the cgroups of one of its processes, in the kernel's words.
    pub(crate) fn is_named_in(&self, cgroups: &str) -> bool {
        let name = self.folders.first().and_then(|folder| folder.file_name()?.to_str());
        name.is_some_and(|name| cgroups.contains(name))
    }

    /// Every process in any part, as the host counts them.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let Some(folder) = self.folders.first() else { return Vec::new() };
        std::iter::once("")
            .chain(PARTS)
            .chain([WAKING])
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
        // Who stands still does not die on version 1.
        let _ = self.thaw();
    }

    /// Removes the cgroups. Fails with `ResourceBusy` while a process is still dying.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for folder in &self.folders {
            for part in PARTS.into_iter().chain([WAKING]) {
                remove_folder(&folder.join(part))?;
            }
            remove_folder(folder)?;
        }
        Ok(())
    }

    fn read(&self, part: &str, file: &str) -> Option<String> {
        self.folders.iter().find_map(|folder| fs::read_to_string(folder.join(part).join(file)).ok())
    }

    fn has(&self, part: &str, file: &str) -> bool {
        self.folders.iter().any(|folder| folder.join(part).join(file).exists())
    }

    /// Writes to a file of a part. On version 1 the files are spread over the hierarchies.
    fn set(&self, part: &str, file: &str, value: impl Display) -> Result<(), Failure> {
        let mut paths = self.folders.iter().map(|folder| folder.join(part).join(file));
        let first = paths.next().unwrap_or_default();
        let path = if first.exists() { None } else { paths.find(|path| path.exists()) };
        write(&path.unwrap_or(first), &value.to_string())
    }

    fn set_if_there(&self, part: &str, file: &str, value: impl Display) -> Result<(), Failure> {
        if self.has(part, file) { self.set(part, file, value) } else { Ok(()) }
    }

    fn each(&self, file: &str, value: &str) -> Result<(), Failure> {
        self.folders.iter().try_for_each(|folder| write(&folder.join(file), value))
    }
}

/// The figure of a line that begins with this name and a blank.
fn figure(statistics: &str, name: &str) -> u64 {
    let figure = statistics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    figure.unwrap_or(0)
}

/// What a part may use: bytes, thousandths of processors, processes.
struct Share {
    memory: u64,
    cpus: u32,
    pids: u32,
}
