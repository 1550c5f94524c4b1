//! What happened to a sandbox, for whoever wants to know later.

use serde::{Deserialize, Serialize};

use crate::{Limits, NetworkMode, Owner, SandboxId, SandboxName, SnapshotId, State, Timestamp};

/// The most characters of a reason that is written down.
const LONGEST_REASON: usize = 1000;

/// One thing that happened to one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To which.
    pub sandbox: SandboxId,
    /// Whose it is, so that others do not see it.
    pub owner: Owner,
    /// Who did it: a key's name, `local`, or `soma` itself.
    pub actor: String,
    /// The id of the request that caused it, as its answer had it in `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What.
    pub happened: Happened,
}

/// An event as it is written down: with its number, one more than that of the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its number, from 1.
    pub sequence: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen to a sandbox.
///
/// What a later Soma wrote down is read as [`Happened::Later`], also a state that is not known
/// here: a log is never unreadable because somebody went back to an earlier version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Happened {
    /// It was asked for, and allowed.
    CreationAsked {
        /// What it is to be made from.
        template: String,
        /// What it is to be called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<SandboxName>,
    },
    /// It could not be made; nothing of it is left.
    CreationFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It went into another state.
    StateChanged(State),
    /// Its time was set anew.
    TimeoutSet {
        /// When it is over now; never when unset.
        until: Option<Timestamp>,
    },
    /// Its time was to be set anew, and was not.
    TimeoutFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// What it may use was set anew.
    LimitsSet {
        /// What it may use now.
        limits: Limits,
    },
    /// What it may use was to be set anew, and was not.
    LimitsFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// What it may reach was set anew.
    NetworkChanged {
        /// What holds where the rest says no more.
        mode: NetworkMode,
        /// The rest in a line, without any value that is set in requests.
        summary: String,
    },
    /// What it may reach was to be set anew, and was not.
    NetworkFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It was to be started again, and was not.
    StartFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It was to be ended, and runs on.
    StopFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It was to stand still, and runs on.
    PauseFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It was to go on, and stands still.
    ResumeFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// A snapshot of it was taken.
    Captured {
        /// Which.
        snapshot: SnapshotId,
    },
    /// A snapshot of it was to be taken, and was not.
    SnapshotFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It is what it was in a snapshot.
    RolledBack {
        /// Which.
        snapshot: SnapshotId,
    },
    /// It was to become what it was in a snapshot, and did not.
    RollbackFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// It was to be deleted, and is still there.
    DeletionFailed {
        /// Why, in the words that the caller was told.
        reason: String,
    },
    /// A daemon that started found it, in this state.
    Found(State),
    /// A daemon that started did not find it, though the one before knew it.
    Missing,
    /// Its name was taken off, because another one has it.
    NameTakenOff {
        /// Which name.
        name: SandboxName,
    },
    /// Something that only a later Soma knows.
    #[serde(untagged)]
    Later {
        /// What that Soma calls it.
        what: String,
    },
}

impl Happened {
    /// Why it did not work, where it did not.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::CreationFailed { reason }
            | Self::TimeoutFailed { reason }
            | Self::LimitsFailed { reason }
            | Self::NetworkFailed { reason }
            | Self::StartFailed { reason }
            | Self::StopFailed { reason }
            | Self::PauseFailed { reason }
            | Self::ResumeFailed { reason }
            | Self::SnapshotFailed { reason }
            | Self::RollbackFailed { reason }
            | Self::DeletionFailed { reason } => Some(reason),
            Self::StateChanged(State::Failed(failed)) | Self::Found(State::Failed(failed)) => {
                Some(&failed.reason)
            }
            _ => None,
        }
    }
}

impl Event {
    /// The words of an error as an event keeps them: not more than so many.
    pub fn words_of(error: &impl std::fmt::Display) -> String {
        let words = error.to_string();
        match words.char_indices().nth(LONGEST_REASON) {
            Some((end, _)) => format!("{}…", &words[..end]),
            None => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Starting;

    fn recorded(happened: Happened) -> Recorded {
        let event = Event {
            at: Timestamp(7),
            sandbox: SandboxId::from_random([3; 15]),
            owner: Owner::default(),
            actor: "local".to_owned(),
            request: Some("0af7".to_owned()),
            happened,
        };
        Recorded { sequence: 9, event }
    }

    #[test]
    fn what_happened_is_written_down_and_comes_back() {
        for happened in [
            Happened::CreationAsked { template: "default".to_owned(), name: None },
            Happened::CreationFailed { reason: "the disk is full".to_owned() },
            Happened::StateChanged(State::Running(Starting::new().ready())),
            Happened::TimeoutSet { until: None },
            Happened::LimitsSet { limits: Limits::default() },
            Happened::NetworkChanged { mode: NetworkMode::Custom, summary: "allowed: a.b".into() },
            Happened::Found(State::Failed(Starting::new().failed("it broke"))),
            Happened::Missing,
            Happened::Later { what: "paused".to_owned() },
        ] {
            let recorded = recorded(happened);
            let text = serde_json::to_string(&recorded).unwrap();
            assert!(text.starts_with("{\"sequence\":9,\"at\":7,\"sandbox\":\""), "{text}");
            assert_eq!(serde_json::from_str::<Recorded>(&text).unwrap(), recorded, "{text}");
        }
    }

    #[test]
    fn what_a_later_soma_wrote_is_read() {
        let text = serde_json::to_string(&recorded(Happened::Missing)).unwrap();
        for (later, what) in [
            (r#"{"what":"forked","children":[1,2]}"#, "forked"),
            (r#"{"what":"state_changed","state":"hovering","height":3}"#, "state_changed"),
            (r#"{"what":"timeout_set","until":{"a":1}}"#, "timeout_set"),
        ] {
            let text = text.replace(r#"{"what":"missing"}"#, later);
            let text = text.replace(r#""actor""#, r#""mood":"fine","actor""#);
            let read: Recorded = serde_json::from_str(&text).unwrap();
            assert_eq!(read.event.happened, Happened::Later { what: what.to_owned() });
        }
    }

    #[test]
    fn a_reason_has_an_end() {
        assert_eq!(Event::words_of(&"short"), "short");
        assert_eq!(Event::words_of(&"ü".repeat(5000)).chars().count(), LONGEST_REASON + 1);
    }
}
