//! Sandboxes as they are shown.

use std::collections::BTreeMap;

use domain::Lease;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{mebibytes, timeout_seconds};
use crate::network::Network;

/// One sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it was made from.
    pub template_id: String,
    /// Processors.
    pub vcpu: f64,
    /// Memory in MiB.
    pub memory: u64,
    /// The same, as some clients call it.
    pub memory_mib: u64,
    /// Disk in MiB.
    pub disk: u64,
    /// The same, as some clients call it.
    pub disk_mib: u64,
    /// Processes and threads at one time.
    #[serde(default)]
    pub pids: u32,
    /// Files and folders on its disk.
    #[serde(default)]
    pub inodes: u64,
    /// Descriptors that one process may have open; left out when it is what is usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// How long it may run, in seconds; left out when for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// When its time is over, in seconds since 1970; left out when never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_at: Option<i64>,
    /// What it is doing.
    pub state: String,
    /// Why it is in that state, where there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether it is paused when its time is over.
    pub auto_pause: bool,
    /// When it was asked for.
    pub created_at: String,
    /// When it went into its state.
    pub state_change_time: String,
    /// What hangs on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it may reach.
    pub network_policy: Network,
    /// Limits that nothing holds it to, as was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unenforced: Vec<String>,
    /// Layers of isolation that its host could not give it; `soma doctor` says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_layers: Vec<String>,
}

impl From<&Lease> for Sandbox {
    fn from(lease: &Lease) -> Self {
        let limits = &lease.spec.limits;
        let (memory, disk) = (mebibytes(limits.memory), mebibytes(limits.disk));
        Self {
            id: lease.id.to_string(),
            name: lease.name.as_ref().map(ToString::to_string),
            template_id: lease.template.clone(),
            vcpu: f64::from(limits.cpus.0) / 1000.0,
            memory,
            memory_mib: memory,
            disk,
            disk_mib: disk,
            pids: limits.pids,
            inodes: limits.inodes(),
            open_files: limits.open_files,
            timeout: timeout_seconds(lease),
            timeout_at: lease.until.map(domain::Timestamp::seconds),
            state: lease.state.name().to_owned(),
            reason: lease.state.reason(),
            auto_pause: lease.on_timeout == domain::OnTimeout::Pause,
            created_at: lease.created_at.to_string(),
            state_change_time: lease.changed_at.to_string(),
            labels: lease.labels.clone(),
            network_policy: Network::from(&lease.spec.network),
            unenforced: lease.unenforced.iter().map(ToString::to_string).collect(),
            missing_layers: lease.missing_layers.iter().map(ToString::to_string).collect(),
        }
    }
}

/// One sandbox in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Item {
    /// Its id.
    pub id: String,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it was made from.
    pub template_id: String,
    /// What it is doing.
    pub state: String,
    /// Why it is in that state, where there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was asked for.
    pub created_at: String,
    /// The same, as some clients call it.
    pub launch_time: String,
    /// When it went into its state.
    pub state_change_time: String,
    /// When its time is over, in seconds since 1970; left out when never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_at: Option<i64>,
    /// What hangs on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl From<&Lease> for Item {
    fn from(lease: &Lease) -> Self {
        Self {
            id: lease.id.to_string(),
            name: lease.name.as_ref().map(ToString::to_string),
            template_id: lease.template.clone(),
            state: lease.state.name().to_owned(),
            reason: lease.state.reason(),
            created_at: lease.created_at.to_string(),
            launch_time: lease.created_at.to_string(),
            state_change_time: lease.changed_at.to_string(),
            timeout_at: lease.until.map(domain::Timestamp::seconds),
            labels: lease.labels.clone(),
        }
    }
}
