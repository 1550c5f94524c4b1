//! The wish for a sandbox, as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use control::Wish;
use domain::{Bytes, Lifetime, Limits, MilliCpus, OnTimeout};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ApiError;
use crate::network::Network;

/// What to make. Everything has a default; unknown fields are ignored.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Create {
    /// What to call it: lowercase letters, digits and hyphens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 40, pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$")]
    pub name: Option<String>,
    /// What to make it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_name: Option<String>,
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 64)]
    pub vcpu: Option<f64>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none", alias = "memory_mib")]
    #[schema(minimum = 16, maximum = 65536)]
    pub memory: Option<u64>,
    /// Disk in MiB.
    #[serde(skip_serializing_if = "Option::is_none", alias = "disk_mib")]
    #[schema(minimum = 64, maximum = 102_400)]
    pub disk: Option<u64>,
    /// Processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8, maximum = 4_000_000)]
    pub pids: Option<u32>,
    /// Files and folders on its disk; one for every 16 KiB of it unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 256)]
    pub inodes: Option<u64>,
    /// Descriptors that one process may have open; 16384 unless said, or what the host allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 64, maximum = 1_048_576)]
    pub open_files: Option<u32>,
    /// How long it may run, in seconds, counted from ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub timeout: Option<u64>,
    /// Whether it may run for ever; `timeout` then does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlimited_time: Option<bool>,
    /// Whether to pause it when its time is over; without it the sandbox stops, and its files are
    /// kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// Variables that every command in it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// What to hang on it, to find it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// What it may reach; everything that is public unless said, or what whoever runs the machine
    /// chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<Network>,
    /// Object storage to mount. Comes with a later release.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub mounts: Option<Vec<serde_json::Value>>,
    /// Whether its user may become its root with `sudo`; true unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sudo: Option<bool>,
    /// Make it also where this host cannot hold it to all of its limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unenforced: Option<bool>,
    /// How long it is kept.
    pub lifetime: Lived,
    /// What becomes of it when the daemon is told to end.
    pub on_exit: OnExit,
}

/// What becomes of a sandbox when the daemon is told to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExit {
    /// It runs on, and the next daemon finds it again.
    #[default]
    Keep,
    /// It ends, and its files stay.
    Stop,
    /// It is paused and put on the disk at once, where the host can do that.
    Pause,
    /// It is deleted.
    Destroy,
}

/// How long a sandbox is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lived {
    /// Until somebody deletes it.
    #[default]
    Kept,
    /// As long as the connection on which it was asked for.
    Connection,
}

const LONGEST: u64 = 366 * 24 * 3600;

/// A number of seconds that somebody may wait.
pub(crate) fn seconds(field: &str, seconds: u64) -> Result<Duration, ApiError> {
    if (1..=LONGEST).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(ApiError::wrong(field, format!("it has to be between 1 and {LONGEST} seconds")))
    }
}

impl Create {
    /// The wish in the words of `control`, or what is wrong with it.
    pub(crate) fn into_wish(self) -> Result<Wish, ApiError> {
        self.refuse_what_is_not_there_yet()?;
        let limits = self.limits()?;
        let name = match self.name {
            Some(name) => Some(name.parse().map_err(|error: domain::InvalidName| {
                ApiError::wrong("name", error.to_string())
            })?),
            None => None,
        };
        let network = self.network_policy.map(|network| network.into_wish("network_policy."));
        let network = network.transpose()?;
        let usual = Wish::default();
        Ok(Wish {
            name,
            template: self.template_name,
            origin: None,
            limits,
            environment: self.env_vars.unwrap_or_default(),
            labels: self.labels.unwrap_or_default(),
            lifetime: match self.lifetime {
                Lived::Kept => Lifetime::Kept,
                Lived::Connection => Lifetime::WithCaller,
            },
            on_timeout: match self.auto_pause {
                Some(true) => OnTimeout::Pause,
                _ => OnTimeout::Stop,
            },
            on_exit: match self.on_exit {
                OnExit::Keep => domain::OnExit::Keep,
                OnExit::Stop => domain::OnExit::Stop,
                OnExit::Pause => domain::OnExit::Pause,
                OnExit::Destroy => domain::OnExit::Destroy,
            },
            auto_resume: true,
            asked: None,
            secure: true,
            allow_unenforced: self.allow_unenforced.unwrap_or(usual.allow_unenforced),
            sudo: self.sudo.unwrap_or(usual.sudo),
            network,
        })
    }

    fn limits(&self) -> Result<Limits, ApiError> {
        let usual = Limits::default();
        let cpus = match self.vcpu {
            Some(vcpu) => milli_cpus(vcpu)?,
            None => usual.cpus,
        };
        let timeout = match self.timeout {
            _ if self.unlimited_time == Some(true) => None,
            Some(timeout) => Some(seconds("timeout", timeout)?),
            None => usual.timeout,
        };
        let limits = Limits {
            memory: mebibytes("memory", self.memory, usual.memory)?,
            cpus,
            pids: self.pids.unwrap_or(usual.pids),
            disk: mebibytes("disk", self.disk, usual.disk)?,
            inodes: self.inodes,
            open_files: self.open_files,
            timeout,
        };
        limits.check().map_err(|error| ApiError::invalid(error.to_string()))
    }

    /// Says what this release has not got, instead of giving less than was asked for.
    fn refuse_what_is_not_there_yet(&self) -> Result<(), ApiError> {
        if self.mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
            return Err(ApiError::wrong("mounts", "mounts come with a later release"));
        }
        Ok(())
    }
}

/// An amount in MiB, or what is usual.
pub(super) fn mebibytes(
    field: &'static str,
    wanted: Option<u64>,
    usual: Bytes,
) -> Result<Bytes, ApiError> {
    match wanted {
        Some(wanted) => wanted
            .checked_mul(1 << 20)
            .map(Bytes)
            .ok_or_else(|| ApiError::wrong(field, "it is more than any machine has")),
        None => Ok(usual),
    }
}

pub(super) fn milli_cpus(vcpu: f64) -> Result<MilliCpus, ApiError> {
    let error = "it has to be a number of processors, such as 2 or 0.5";
    let text = format!("{vcpu}");
    text.parse().map_err(|_| ApiError::wrong("vcpu", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(json: &str) -> Result<Wish, ApiError> {
        serde_json::from_str::<Create>(json).unwrap().into_wish()
    }

    #[test]
    fn nothing_said_is_the_usual_sandbox() {
        let wish = wish("{}").unwrap();
        assert_eq!(wish.limits, Limits::default());
        assert_eq!(wish.lifetime, Lifetime::Kept);
    }

    #[test]
    fn what_leap0s_client_sends_is_taken() {
        let text = r#"{"template_name": "system/debian:bookworm", "vcpu": 1, "memory": 1024,
                       "timeout": 300, "auto_pause": false, "env_vars": null}"#;
        let wish = wish(text).unwrap();
        assert_eq!(wish.limits.cpus, MilliCpus(1000));
        assert_eq!(wish.limits.memory, Bytes::mebibytes(1024));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_field() {
        for (json, field) in [
            (r#"{"timeout": 0}"#, "timeout"),
            (r#"{"vcpu": -1}"#, "vcpu"),
            (r#"{"memory": 18446744073709551615}"#, "memory"),
            (r#"{"name": "Not Good"}"#, "name"),
            (r#"{"mounts": [{}]}"#, "mounts"),
            (
                r#"{"network_policy": {"mode": "custom", "allow_domains": ["a"]}}"#,
                "network_policy.allow_domains[0]",
            ),
        ] {
            let error = wish(json).unwrap_err();
            assert!(error.message().starts_with(&format!("`{field}`: ")), "{json}: {error:?}");
        }
        assert!(wish(r#"{"memory": 1}"#).unwrap_err().message().contains("the least is 16 MiB"));
    }
}
