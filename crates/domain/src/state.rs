//! What a sandbox is doing, and what may follow.
//!
//! Each state is a type, and each of its methods is one legal step to another: a step that is not
//! here cannot be written down. Whoever owns a sandbox takes the state out of its [`State`],
//! takes the step, and puts the result back.
//!
//! ```text
//!            ready            ended
//! Starting ---------> Running --------> Stopped     Running --pause--> Pausing --> Paused
//!  ^ |  ^                |               |   |         ^                              |
//!  | |  +----------------|---- start ----+   |         +------ Resuming <---resume----+
//!  | | failed            | ended             |
//!  | v                   v                   |
//!  Failed <--------------+                   |       Running <--> Snapshotting
//!    |                                       |
//!    +-----> Deleting <--- delete -----------+   (from all others as well)
//!               |
//!               v
//!            Deleted
//! ```

mod pause;

use serde::{Deserialize, Serialize};

use crate::Ending;
pub use pause::{Paused, Pausing, Resuming, Snapshotting};

/// What a sandbox is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It is being made.
    Starting(Starting),
    /// Its guest answers.
    Running(Running),
    /// It is being captured, and goes on afterwards.
    Snapshotting(Snapshotting),
    /// It is about to stand still.
    Pausing(Pausing),
    /// It stands still, and goes on when somebody needs it.
    Paused(Paused),
    /// It is about to go on.
    #[serde(rename = "unpausing")]
    Resuming(Resuming),
    /// It ended; its files are there.
    Stopped(Stopped),
    /// It is being removed with all its files.
    Deleting(Deleting),
    /// Nothing of it is left.
    Deleted(Deleted),
    /// Something broke that Soma did not cause; what is left of its files is there.
    #[serde(rename = "error")]
    Failed(Failed),
}

/// A sandbox that is being made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starting {
    #[serde(skip)]
    seal: (),
}

/// A sandbox whose guest answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    #[serde(skip)]
    seal: (),
}

/// A sandbox that ended.
#[expect(
    clippy::manual_non_exhaustive,
    reason = "sealed against everybody, this crate's users too"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Why it ended.
    pub why: Ending,
    #[serde(skip)]
    seal: (),
}

/// A sandbox that is being removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleting {
    #[serde(skip)]
    seal: (),
}

/// A sandbox that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    #[serde(skip)]
    seal: (),
}

/// A sandbox that broke.
#[expect(
    clippy::manual_non_exhaustive,
    reason = "sealed against everybody, this crate's users too"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What broke, as a sentence without a full stop.
    pub reason: String,
    #[serde(skip)]
    seal: (),
}

impl Starting {
    /// The first state of every sandbox.
    pub fn new() -> Self {
        Self { seal: () }
    }

    /// Its guest has answered.
    pub fn ready(self) -> Running {
        Running { seal: () }
    }

    /// It could not be made.
    pub fn failed(self, reason: impl Into<String>) -> Failed {
        Failed { reason: reason.into(), seal: () }
    }

    /// It could not be started again, and is what it was before.
    pub fn returned(self, before: Ended) -> State {
        match before {
            Ended::Stopped(stopped) => State::Stopped(stopped),
            Ended::Failed(failed) => State::Failed(failed),
        }
    }

    /// It was found to have ended before anybody was told that it runs.
    pub fn ended(self, why: Ending) -> State {
        self.ready().ended(why)
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Default for Starting {
    fn default() -> Self {
        Self::new()
    }
}

impl Running {
    /// It ended. Whether that is an error is a matter of why.
    pub fn ended(self, why: Ending) -> State {
        match why {
            Ending::Stopped | Ending::TimedOut | Ending::HostFull | Ending::HostRestarted => {
                State::Stopped(Stopped { why, seal: () })
            }
            Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::Unseen
            | Ending::Missing
            | Ending::Unreadable { .. } => {
                State::Failed(Failed { reason: why.to_string(), seal: () })
            }
        }
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Stopped {
    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Failed {
    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

/// A sandbox that does not run and whose files are there: it can be started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It stopped.
    Stopped(Stopped),
    /// It broke.
    Failed(Failed),
}

impl Ended {
    /// It is wanted again.
    pub fn start(&self) -> Starting {
        Starting::new()
    }
}

impl Deleting {
    /// Nothing of it is left.
    pub fn deleted(self) -> Deleted {
        Deleted { seal: () }
    }
}

impl State {
    /// Its name, as every dialect and every list has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting(_) => "starting",
            Self::Running(_) => "running",
            Self::Snapshotting(_) => "snapshotting",
            Self::Pausing(_) => "pausing",
            Self::Paused(_) => "paused",
            Self::Resuming(_) => "unpausing",
            Self::Stopped(_) => "stopped",
            Self::Deleting(_) => "deleting",
            Self::Deleted(_) => "deleted",
            Self::Failed(_) => "error",
        }
    }

    /// Why it is not running, where there is a reason beyond its name.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Stopped(stopped) => Some(stopped.why.to_string()),
            Self::Paused(paused) => Some(paused.rest.to_string()),
            Self::Failed(failed) => Some(failed.reason.clone()),
            _ => None,
        }
    }

    /// What it is where it could be started again.
    pub fn as_ended(&self) -> Option<Ended> {
        match self {
            Self::Stopped(stopped) => Some(Ended::Stopped(stopped.clone())),
            Self::Failed(failed) => Some(Ended::Failed(failed.clone())),
            _ => None,
        }
    }

    /// Takes the step to [`Deleting`] from wherever it is legal; gives the state back where it is
    /// not.
    pub fn delete(self) -> Result<Deleting, Self> {
        match self {
            Self::Starting(state) => Ok(state.delete()),
            Self::Running(state) => Ok(state.delete()),
            Self::Snapshotting(state) => Ok(state.delete()),
            Self::Pausing(state) => Ok(state.delete()),
            Self::Paused(state) => Ok(state.delete()),
            Self::Resuming(state) => Ok(state.delete()),
            Self::Stopped(state) => Ok(state.delete()),
            Self::Failed(state) => Ok(state.delete()),
            other @ (Self::Deleting(_) | Self::Deleted(_)) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_down_with_its_name_and_comes_back() {
        for state in [
            State::Starting(Starting::new()),
            State::Running(Starting::new().ready()),
            Starting::new().ready().ended(Ending::TimedOut),
            State::Pausing(Starting::new().ready().pause()),
            State::Paused(Starting::new().ready().found_paused(crate::Rest::Hibernated)),
            State::Failed(Starting::new().failed("the disk is full")),
        ] {
            let text = serde_json::to_string(&state).unwrap();
            assert!(text.contains(state.name()), "{text}");
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        }
    }

    #[test]
    fn an_end_that_soma_did_not_cause_is_an_error_with_its_reason() {
        let state = Starting::new().ready().ended(Ending::Signalled { signal: 9 });
        assert_eq!(state.name(), "error");
        assert_eq!(state.reason().unwrap(), "its guest got signal 9");
        let state = Starting::new().ready().ended(Ending::TimedOut);
        assert_eq!(
            (state.name(), state.reason().unwrap().as_str()),
            ("stopped", "its time was over")
        );
    }

    #[test]
    fn what_ended_can_be_started_again_and_returns_to_what_it_was() {
        let stopped = Starting::new().ready().ended(Ending::HostRestarted);
        assert_eq!(stopped.name(), "stopped");
        let ended = stopped.as_ended().unwrap();
        assert_eq!(ended.start().returned(ended), stopped);
        assert!(State::Running(Starting::new().ready()).as_ended().is_none());
    }

    #[test]
    fn what_is_being_deleted_is_not_deleted_again() {
        let deleting = State::Running(Starting::new().ready()).delete().unwrap();
        assert!(State::Deleting(deleting).delete().is_err());
    }
}
