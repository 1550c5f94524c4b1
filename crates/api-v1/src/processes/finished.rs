//! What came of a command, as JSON.

use domain::Cause;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finished {
    /// What it left with; 128 and the signal's number when a signal ended it, 124 when its time
    /// was over.
    pub exit_code: i32,
    /// What it wrote to standard output. Of much, the beginning and the end.
    pub stdout: String,
    /// What it wrote to standard error. Of much, the beginning and the end.
    pub stderr: String,
    /// Standard output once more, as some clients call it.
    pub result: String,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// How many bytes of its output are left out.
    pub dropped_bytes: u64,
    /// Why it failed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// For programs: `out_of_memory`, `process_limit`, `disk_full`, `host_disk_full`,
    /// `disk_failed`, `timeout`, `segmentation_fault` or `signal`.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        Self {
            code: cause.code().to_owned(),
            message: cause.message(),
            hint: cause.hint().to_owned(),
        }
    }
}
