//! A sandbox that stands still: none of its processes gets the processor, and none can tell.
//!
//! All parts are frozen with the group above them, the supervisor with them: it keeps a clock, which
//! is switched off first, and what is said to it meanwhile it hears afterwards.

use std::fs;
use std::path::PathBuf;

use super::files::write;
use super::{Group, Version};
use crate::failure::{Failure, Kind};

impl Group {
    /// Begins to freeze every process. [`Self::is_frozen`] tells when all of them stand.
    pub(crate) fn freeze(&self) -> Result<(), Failure> {
        self.set_frozen(true)
    }

    /// Lets every process go on.
    pub(crate) fn thaw(&self) -> Result<(), Failure> {
        self.set_frozen(false)
    }

    /// Whether all of them stand.
    pub(crate) fn is_frozen(&self) -> bool {
        match self.version {
            Version::One => self.read("", "freezer.state").is_some_and(|it| it.trim() == "FROZEN"),
            Version::Two => self
                .read("", "cgroup.events")
                .is_some_and(|it| it.lines().any(|line| line.trim() == "frozen 1")),
        }
    }

    /// Whether somebody wanted them to stand, be it that some of them do not yet.
    pub(crate) fn is_to_be_frozen(&self) -> bool {
        match self.version {
            Version::One => self.read("", "freezer.state").is_some_and(|it| it.trim() != "THAWED"),
            Version::Two => self.read("", "cgroup.freeze").is_some_and(|it| it.trim() == "1"),
        }
    }

    /// The group that freezes all of them; none where nothing can.
    pub(crate) fn freezer(&self) -> Option<PathBuf> {
        let file = self.freezer_file();
        self.folders.iter().find(|folder| fs::exists(folder.join(file)).unwrap_or(false)).cloned()
    }

    fn freezer_file(&self) -> &'static str {
        match self.version {
            Version::One => "freezer.state",
            Version::Two => "cgroup.freeze",
        }
    }

    fn set_frozen(&self, frozen: bool) -> Result<(), Failure> {
        let Some(freezer) = self.freezer() else {
            let cause = "no cgroup of this host can freeze it: run soma as root, or stop the \
                         sandbox instead, which keeps its files";
            return Err(Failure::new("pause the sandbox", cause, Kind::Unsupported));
        };
        let value = match (self.version, frozen) {
            (Version::One, true) => "FROZEN",
            (Version::One, false) => "THAWED",
            (Version::Two, true) => "1",
            (Version::Two, false) => "0",
        };
        write(&freezer.join(self.freezer_file()), value)
    }
}
