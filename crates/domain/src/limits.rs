//! What a sandbox may use.
//!
//! A [`Limits`] that exists makes sense: [`Limits::check`] stands between what was typed and
//! every provider. Whether a host can enforce a limit is the provider's to say.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, MilliCpus};

/// What one sandbox may use at the most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory of everything that runs in it, without swap.
    pub memory: Bytes,
    /// Processor time.
    pub cpus: MilliCpus,
    /// Processes and threads at one time.
    pub pids: u32,
    /// What can be written to its disk. The file behind it is sparse.
    pub disk: Bytes,
    /// Files and folders on its disk; `None` is what a disk of its size usually has. Sandboxes
    /// of earlier versions say nothing.
    #[serde(default)]
    pub inodes: Option<u64>,
    /// Descriptors that one process may have open; `None` is what the provider usually gives.
    #[serde(default)]
    pub open_files: Option<u32>,
    /// How long it may live, counted from ready; `None` is for ever.
    pub timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Bytes::mebibytes(2048),
            cpus: MilliCpus(2000),
            pids: 512,
            disk: Bytes::gibibytes(10),
            inodes: None,
            open_files: None,
            timeout: Some(Duration::from_mins(5)),
        }
    }
}

/// One of the limits, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Memory.
    Memory,
    /// Processor time.
    Cpus,
    /// Processes and threads.
    Pids,
    /// What can be written to the disk, and in how many files.
    Disk,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
            Self::Disk => "disk",
        })
    }
}

impl Limit {
    /// Several of them as words: `memory, cpus and disk`.
    pub fn list(limits: &[Self]) -> String {
        let names: Vec<String> = limits.iter().map(Self::to_string).collect();
        match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => "nothing".to_owned(),
        }
    }
}

/// Why a limit makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of {wanted} is {problem}: the {bound} is {allowed}")]
pub struct InvalidLimit {
    what: &'static str,
    wanted: String,
    problem: &'static str,
    bound: &'static str,
    allowed: String,
}

impl Limits {
    /// Refuses what no sandbox could live in, and what no host has.
    pub fn check(self) -> Result<Self, InvalidLimit> {
        within("memory", self.memory, Bytes::mebibytes(16), Bytes::gibibytes(16 << 10))?;
        within("cpus", self.cpus, MilliCpus(10), MilliCpus(1_024_000))?;
        // A command needs its keeper, a shell and a child: below this nothing starts.
        within("pids", self.pids, 8, 4_000_000)?;
        // More than one file of the host's file system can hold is no use.
        within("disk", self.disk, Bytes::mebibytes(64), Bytes::gibibytes(8 << 10))?;
        if let Some(inodes) = self.inodes {
            // Each takes 256 bytes of the disk, written or not.
            within("inodes", inodes, LEAST_INODES, self.disk.0 / 4096)?;
        }
        if let Some(open_files) = self.open_files {
            within("open_files", open_files, 64, 1 << 20)?;
        }
        if let Some(timeout) = self.timeout {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            within("timeout", Milliseconds(milliseconds), Milliseconds(1), Milliseconds(YEAR))?;
        }
        Ok(self)
    }

    /// How many files and folders its disk has room for.
    pub fn inodes(&self) -> u64 {
        self.inodes.unwrap_or_else(|| (self.disk.0 / BYTES_FOR_EACH_INODE).max(16 << 10))
    }
}

/// What a file takes on an ordinary disk.
const BYTES_FOR_EACH_INODE: u64 = 16 << 10;

/// The overlays need some themselves.
const LEAST_INODES: u64 = 256;

const YEAR: u64 = 366 * 24 * 3600 * 1000;

#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Milliseconds(u64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ms", self.0)
    }
}

fn within<T>(what: &'static str, wanted: T, least: T, most: T) -> Result<(), InvalidLimit>
where
    T: PartialOrd + std::fmt::Display + Copy,
{
    let (problem, bound, allowed) = if wanted < least {
        ("too little", "least", least)
    } else if wanted > most {
        ("too much", "most", most)
    } else {
        return Ok(());
    };
    let (wanted, allowed) = (wanted.to_string(), allowed.to_string());
    Err(InvalidLimit { what, wanted, problem, bound, allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_limits_read_as_words() {
        assert_eq!(Limit::list(&[Limit::Disk]), "disk");
        assert_eq!(
            Limit::list(&[Limit::Memory, Limit::Cpus, Limit::Disk]),
            "memory, cpus and disk"
        );
    }

    #[test]
    fn the_defaults_make_sense() {
        assert!(Limits::default().check().is_ok());
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_named_with_its_bound() {
        let limits = Limits { memory: Bytes(4096), ..Limits::default() };
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "memory of 4 KiB is too little: the least is 16 MiB"
        );
        let limits = Limits { cpus: MilliCpus(0), ..Limits::default() };
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "cpus of 0 is too little: the least is 0.01"
        );
        let limits = Limits { timeout: Some(Duration::ZERO), ..Limits::default() };
        assert!(limits.check().is_err());
        let limits = Limits { pids: 1, ..Limits::default() };
        assert!(limits.check().is_err());
        let limits = Limits { open_files: Some(3), ..Limits::default() };
        assert!(limits.check().is_err());
        // More than would fit on the disk.
        let disk = Bytes::mebibytes(64);
        let limits = Limits { disk, inodes: Some(20_000), ..Limits::default() };
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "inodes of 20000 is too much: the most is 16384"
        );
    }

    #[test]
    fn limits_of_earlier_versions_are_read() {
        let mut text = serde_json::to_value(Limits::default()).unwrap();
        for later in ["inodes", "open_files"] {
            text.as_object_mut().unwrap().remove(later).unwrap();
        }
        assert_eq!(serde_json::from_value::<Limits>(text).unwrap(), Limits::default());
    }

    #[test]
    fn a_larger_disk_has_more_inodes_unless_somebody_says() {
        let limits = Limits::default();
        assert_eq!(limits.inodes(), 655_360);
        assert_eq!(Limits { disk: Bytes::mebibytes(64), ..limits.clone() }.inodes(), 16_384);
        assert_eq!(Limits { inodes: Some(1000), ..limits }.inodes(), 1000);
    }
}
