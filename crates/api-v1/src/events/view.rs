//! Events as they are shown.

use domain::{Happened, Recorded, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::network::NetworkMode;

/// One thing that happened to a sandbox. Which of the last fields there are is a matter of `what`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Happening {
    /// Its number, one more than that of the event before it, whosever that was.
    pub sequence: u64,
    /// When.
    pub at: String,
    /// To which sandbox.
    pub sandbox: String,
    /// Whose sandbox it is.
    pub owner: String,
    /// Who did it: `key` and a key's name, `local`, or `soma` itself.
    pub actor: String,
    /// The id of the request that caused it, as its answer had it in `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What: `creation_asked`, `creation_failed`, `state_changed`, `timeout_set`,
    /// `timeout_failed`, `limits_set`, `limits_failed`, `network_changed`, `network_failed`,
    /// `pause_failed`, `resume_failed`, `deletion_failed`, `found`, `missing`, `name_taken_off`, or what a later version knows.
    pub what: String,
    /// Whether it worked.
    pub result: EventResult,
    /// Why it did not work, or why the sandbox is in its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The state that it went into or was found in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What it is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The name that it is to have, or had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When its time is over, with `timeout_set`; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<f64>,
    /// Processes and threads at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// What it may reach in general, with `network_changed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// The rest of what it may reach, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Whether something worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventResult {
    /// It did.
    Ok,
    /// It did not.
    Failed,
}

impl From<&Recorded> for Happening {
    fn from(recorded: &Recorded) -> Self {
        let event = &recorded.event;
        let failure = event.happened.failure().map(ToOwned::to_owned);
        let mut shown = Self {
            sequence: recorded.sequence,
            at: event.at.to_string(),
            sandbox: event.sandbox.to_string(),
            owner: event.owner.0.clone(),
            actor: event.actor.clone(),
            request: event.request.clone(),
            what: String::new(),
            result: if failure.is_some() { EventResult::Failed } else { EventResult::Ok },
            reason: failure,
            state: None,
            template: None,
            name: None,
            until: None,
            memory: None,
            vcpu: None,
            pids: None,
            network: None,
            summary: None,
        };
        let what = shown.describe(&event.happened);
        what.clone_into(&mut shown.what);
        shown
    }
}

impl Happening {
    /// Fills in what belongs to it, and says what it is called.
    fn describe<'a>(&mut self, happened: &'a Happened) -> &'a str {
        match happened {
            Happened::CreationAsked { template, name } => {
                self.template = Some(template.clone());
                self.name = name.as_ref().map(ToString::to_string);
                "creation_asked"
            }
            Happened::StateChanged(state) => {
                self.show_state(state);
                "state_changed"
            }
            Happened::Found(state) => {
                self.show_state(state);
                "found"
            }
            Happened::TimeoutSet { until } => {
                self.until = until.map(|until| until.to_string());
                "timeout_set"
            }
            Happened::LimitsSet { limits } => {
                self.memory = Some(limits.memory.0 >> 20);
                self.vcpu = Some(f64::from(limits.cpus.0) / 1000.0);
                self.pids = Some(limits.pids);
                "limits_set"
            }
            Happened::NetworkChanged { mode, summary } => {
                self.network = Some((*mode).into());
                self.summary = Some(summary.clone()).filter(|summary| !summary.is_empty());
                "network_changed"
            }
            Happened::NameTakenOff { name } => {
                self.name = Some(name.to_string());
                "name_taken_off"
            }
            Happened::CreationFailed { .. } => "creation_failed",
            Happened::TimeoutFailed { .. } => "timeout_failed",
            Happened::LimitsFailed { .. } => "limits_failed",
            Happened::NetworkFailed { .. } => "network_failed",
            Happened::StartFailed { .. } => "start_failed",
            Happened::StopFailed { .. } => "stop_failed",
            Happened::PauseFailed { .. } => "pause_failed",
            Happened::ResumeFailed { .. } => "resume_failed",
            Happened::Captured { .. } => "captured",
            Happened::SnapshotFailed { .. } => "snapshot_failed",
            Happened::RolledBack { .. } => "rolled_back",
            Happened::RollbackFailed { .. } => "rollback_failed",
            Happened::DeletionFailed { .. } => "deletion_failed",
            Happened::Missing => "missing",
            Happened::Later { what } => what,
            // What is added there is to be shown here.
            _ => "unknown",
        }
    }

    fn show_state(&mut self, state: &State) {
        self.state = Some(state.name().to_owned());
        self.reason = state.reason();
    }
}
