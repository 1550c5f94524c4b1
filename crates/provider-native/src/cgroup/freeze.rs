//! A sandbox that stands still: none of its processes gets the processor, and none can tell.
//!
//! All parts are frozen with the group above them, the supervisor with them: it keeps a clock, which
//! is switched off first, and what is said to it meanwhile it hears afterwards.
//!
//! While a sandbox is restored its parts are frozen one by one instead, and whoever restores it goes
//! on beside them. CRIU lets processes go one after the other: the first could kill one that CRIU
//! still holds, and then it gives all of them up.

use std::fs;
use std::path::PathBuf;

use super::files::write;
use super::{Group, PARTS, Version};
use crate::failure::{Failure, Kind};

impl Group {
    /// Begins to freeze every process. [`Self::comes_to_stand`] tells when all of them do.
    pub(crate) fn freeze(&self) -> Result<(), Failure> {
        self.set_frozen(true)
    }

    /// Lets every process go on.
    pub(crate) fn thaw(&self) -> Result<(), Failure> {
        self.set_frozen(false)?;
        self.thaw_parts()
    }

    /// Has every process of the sandbox's own stand still, but not who restores it.
    pub(crate) fn freeze_parts(&self) -> Result<(), Failure> {
        let freezer = self.freezer().unwrap_or_default();
        let freeze = |part| write(&freezer.join(part).join(self.freezer_file()), self.word(true));
        PARTS.into_iter().try_for_each(freeze)
    }

    /// Lets them go on.
    pub(crate) fn thaw_parts(&self) -> Result<(), Failure> {
        let Some(freezer) = self.freezer() else { return Ok(()) };
        for file in PARTS.map(|part| freezer.join(part).join(self.freezer_file())) {
            // The parts of a group that is being removed may be gone.
            if file.exists() {
                write(&file, self.word(false))?;
            }
        }
        Ok(())
    }

    /// Whether all of them stand by now. Those that do not are told again: version 1 forgets one that
    /// begins to wait for the program that it started by `vfork`.
    pub(crate) fn comes_to_stand(&self) -> bool {
        let stands = self.is_frozen();
        if !stands && self.version == Version::One {
            let _ = self.set_frozen(true);
        }
        stands
    }

    /// Whether all of them stand.
    fn is_frozen(&self) -> bool {
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
        write(&freezer.join(self.freezer_file()), self.word(frozen))
    }

    fn word(&self, frozen: bool) -> &'static str {
        match (self.version, frozen) {
            (Version::One, true) => "FROZEN",
            (Version::One, false) => "THAWED",
            (Version::Two, true) => "1",
            (Version::Two, false) => "0",
        }
    }
}
