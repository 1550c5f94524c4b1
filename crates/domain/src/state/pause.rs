//! Sandboxes that stand still, and the steps there and back.

use serde::{Deserialize, Serialize};

use super::{Deleting, Running, State};
use crate::{Ending, Rest};

/// A sandbox that is about to stand still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pausing {
    #[serde(skip)]
    seal: (),
}

/// A sandbox that stands still, and goes on where it was when somebody needs it.
#[expect(
    clippy::manual_non_exhaustive,
    reason = "sealed against everybody, this crate's users too"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// How it is kept.
    pub rest: Rest,
    #[serde(skip)]
    seal: (),
}

/// A sandbox that is being captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshotting {
    #[serde(skip)]
    seal: (),
}

/// A sandbox that is about to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resuming {
    #[serde(skip)]
    seal: (),
}

impl Running {
    /// It is to stand still.
    pub fn pause(self) -> Pausing {
        Pausing { seal: () }
    }

    /// It is to be captured.
    pub fn snapshot(self) -> Snapshotting {
        Snapshotting { seal: () }
    }

    /// It is to become what it was.
    pub fn roll_back(self) -> super::Starting {
        super::Starting::new()
    }

    /// It was found standing still.
    pub fn found_paused(self, rest: Rest) -> Paused {
        self.pause().paused(rest)
    }
}

impl Snapshotting {
    /// It goes on, captured or not.
    pub fn returned(self) -> Running {
        Running { seal: () }
    }

    /// It stands still, and did not go on.
    pub fn paused(self, rest: Rest) -> Paused {
        Paused { rest, seal: () }
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Pausing {
    /// It stands still.
    pub fn paused(self, rest: Rest) -> Paused {
        Paused { rest, seal: () }
    }

    /// It could not be paused, and runs on.
    pub fn returned(self) -> Running {
        Running { seal: () }
    }

    /// It ended instead.
    pub fn ended(self, why: Ending) -> State {
        self.returned().ended(why)
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Paused {
    /// It is wanted again.
    pub fn resume(&self) -> Resuming {
        Resuming { seal: () }
    }

    /// It is kept in another way from now on.
    #[must_use]
    pub fn kept(self, rest: Rest) -> Self {
        Self { rest, ..self }
    }

    /// It ended while it stood still.
    pub fn ended(self, why: Ending) -> State {
        Running { seal: () }.ended(why)
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}

impl Resuming {
    /// Its guest answers.
    pub fn resumed(self) -> Running {
        Running { seal: () }
    }

    /// It could not be resumed, and is what it was before.
    pub fn returned(self, before: Paused) -> Paused {
        before
    }

    /// It ended instead.
    pub fn ended(self, why: Ending) -> State {
        self.resumed().ended(why)
    }

    /// It is not wanted any more.
    pub fn delete(self) -> Deleting {
        Deleting { seal: () }
    }
}
