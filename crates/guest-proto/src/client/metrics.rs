//! What a sandbox uses, in the guest's words.

use serde::{Deserialize, Serialize};

/// What a guest measures of its sandbox. Fields that a guest leaves out are zero, groups that it
/// does not know are none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// When, in seconds since 1970.
    pub ts: i64,
    /// Processors that can be used.
    pub cpu_count: u32,
    /// How much of what is allowed was used since the measurement before, in hundredths.
    pub cpu_used_pct: f64,
    /// Memory in bytes.
    pub mem_total: u64,
    /// Memory in use without what can be given back, in bytes.
    pub mem_used: u64,
    /// Memory that holds files and can be given back, in bytes.
    pub mem_cache: u64,
    /// Disk in bytes.
    pub disk_total: u64,
    /// Disk in use, in bytes.
    pub disk_used: u64,

    /// Processor time. None from guests of protocol 1, as all that follows.
    pub cpu: Option<CpuUsage>,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// The root file system.
    pub disk: Option<DiskUsage>,
    /// What passed through each interface; loopback is one.
    pub network: Option<Vec<Interface>>,
    /// Processes and threads.
    pub processes: Option<ProcessesUsage>,
    /// How long process 1 runs, since its start or its last restore.
    pub uptime_seconds: Option<f64>,
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// What the kernel counts for the sandbox: the truth.
    Cgroup,
    /// Added up over the processes, because no cgroup can be seen inside. Files in memory are
    /// missing.
    Processes,
    /// A way of measuring that a newer guest has.
    #[default]
    #[serde(other)]
    Other,
}

/// Processor time since the sandbox began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuUsage {
    /// Where the figures come from.
    pub source: Source,
    /// Time used, in microseconds.
    pub used_micros: u64,
    /// Processors that can be used, in thousandths.
    pub limit_millis: u64,
    /// How often the sandbox was held back at its limit.
    pub throttled_periods: Option<u64>,
    /// For how long altogether, in microseconds.
    pub throttled_micros: Option<u64>,
}

/// Memory in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryUsage {
    /// Where the figures come from.
    pub source: Source,
    /// In use, without the cache.
    pub used: u64,
    /// Files that are also on a disk, and given back when room is needed.
    pub cache: Option<u64>,
    /// The most that can be used.
    pub limit: u64,
    /// The most that ever was in use, with the cache.
    pub peak: Option<u64>,
    /// Processes that were killed because there was no more.
    pub oom_kills: Option<u64>,
}

/// The root file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskUsage {
    /// Bytes in use.
    pub used: u64,
    /// Bytes in all.
    pub total: u64,
    /// Files and folders.
    pub inodes_used: u64,
    /// The most of them.
    pub inodes_total: u64,
}

/// What passed through an interface since it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name inside.
    pub name: String,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Packets that came in.
    pub received_packets: u64,
    /// Bytes that went out.
    pub sent_bytes: u64,
    /// Packets that went out.
    pub sent_packets: u64,
}

/// Processes and threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessesUsage {
    /// Where the figures come from.
    pub source: Source,
    /// How many there are; the two or three of Soma's own among the workload included.
    pub count: u64,
    /// The most there may be.
    pub limit: Option<u64>,
}
