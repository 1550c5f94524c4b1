//! What the engine can be asked, and what it answers.
//!
//! The whole of it: whoever may send these may make and end sandboxes and what they are made
//! from, and nothing else. The engine takes them from its own unprivileged programs only, and
//! checks every value anyway.

use std::fmt;
use std::time::Duration;

use domain::{Ending, Lifetime, Limit, Limits, Rest, SandboxId, SnapshotId, TemplateName};
use provider::{LARGEST_RECORD, Observed, TemplateKind};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::reserves::Reserves;
use crate::snapshot::Wanted;

/// A request and the number by which its answer is told from others on the same connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) verb: Verb,
}

/// An answer to the request with the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) number: u64,
    pub(crate) answer: Result<Answer, Refusal>,
}

/// Raised with every change of what follows. An engine with another version is told to
/// [leave](Verb::Leave), so that verb alone must stay what and where it is, and new ones come last.
const VERBS: u32 = 5;

/// Which engine this program has, or speaks with.
pub(crate) fn version() -> String {
    format!("{}/{VERBS}", env!("CARGO_PKG_VERSION"))
}

/// What is asked of the engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Verb {
    /// Make a sandbox; done when it is there already.
    Create { id: SandboxId, wish: Wish },
    /// Open a connection to a sandbox's guest; it comes along with the answer.
    Connect { id: SandboxId },
    /// See one sandbox.
    Inspect { id: SandboxId },
    /// See all sandboxes.
    List,
    /// End a sandbox and remove all of it; done when there is none.
    Destroy { id: SandboxId },
    /// Tell where the time of the last launch went.
    Steps,
    /// Tell how many sandboxes wait for an owner.
    Prepared,
    /// End the engine. Sandboxes that are kept go on.
    Leave,
    /// Tell what is written down with a sandbox.
    ReadRecord { id: SandboxId },
    /// Write something else down with it.
    WriteRecord { id: SandboxId, record: Record },
    /// Tell when it does not run any more, and why. The answer may be long in coming.
    Ended { id: SandboxId },
    /// Nobody waits any more for the [`Verb::Ended`] with this request's number. Has no answer.
    Forget,
    /// Let its time be over so long from now, or never.
    Renew { id: SandboxId, timeout: Option<Duration> },
    /// Let a sandbox use this from now on.
    Limit { id: SandboxId, limits: Limits },
    /// Unpack an image, which is read from the first descriptor that comes along; what became of
    /// it is written to the second. Until it is kept, it is gone when whoever asked is.
    Import,
    /// Make what was unpacked a template.
    Keep { slot: String, name: TemplateName, record: Record, kind: TemplateKind, replace: bool },
    /// Remove what was unpacked.
    Discard { slot: String },
    /// See all templates.
    Templates,
    /// Tell what is written down with a template.
    ReadTemplate { name: TemplateName },
    /// Remove a template that no sandbox stands on.
    RemoveTemplate { name: TemplateName },
    /// Start a sandbox again that ended, with so much time; done when it runs.
    Start { id: SandboxId, timeout: Option<Duration>, reserves: Reserves },
    /// End a sandbox and keep its files; done when it does not run.
    Stop { id: SandboxId },
    /// Tell which engine it is. One that does not know this question closes the connection.
    Version,
    /// Let a sandbox reach this from now on; answered when it holds. The engine does not read it.
    ChangeNetwork { id: SandboxId, rules: Record },
    /// Let the egress program work like this from now on. The engine does not read it either.
    ConfigureNetwork { configuration: Record },
    /// Open a connection to the egress program, to read logs from; it comes along with the answer.
    ReadNetwork,
    /// Tell what a sandbox may reach.
    ReadRules { id: SandboxId },
    /// Let a sandbox stand still; done when it does.
    Pause { id: SandboxId },
    /// Let a sandbox go on that stands still, with so much time; done when it does.
    Resume { id: SandboxId, timeout: Option<Duration>, reserves: Reserves },
    /// Put a sandbox that stands still on the disk; done when nothing of it is in memory, or when it
    /// is known why it stays there.
    Hibernate { id: SandboxId, reserves: Reserves },
    /// Take a snapshot of a sandbox of which nothing is in memory; done when it is there.
    Capture { id: SandboxId, wanted: Wanted },
    /// See all snapshots.
    Snapshots,
    /// Tell what is written down with a snapshot.
    ReadSnapshot { id: SnapshotId },
    /// Remove a snapshot that no sandbox was made from.
    RemoveSnapshot { id: SnapshotId },
    /// Make a sandbox that does not run what a snapshot was; it does not run then either.
    RollBack { id: SandboxId, origin: SnapshotId },
}

/// What a sandbox is to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wish {
    pub(crate) limits: Limits,
    pub(crate) lifetime: Lifetime,
    pub(crate) allow_unenforced: bool,
    pub(crate) record: Record,
    pub(crate) reserves: Reserves,
    /// The host's own system when unset.
    pub(crate) template: Option<TemplateName>,
    /// What it may reach, for the egress program.
    pub(crate) network: Record,
    /// Whether that is anything at all.
    pub(crate) needs_network: bool,
    /// The snapshot that it is to be, instead of something new.
    pub(crate) origin: Option<SnapshotId>,
}

/// What is written down with a sandbox. The engine does not read it, and it may hold secrets.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record(pub(crate) String);

impl Record {
    /// Refuses one that does not fit.
    pub(crate) fn check(self) -> Result<Self, Refusal> {
        let bytes = self.0.len();
        if bytes <= LARGEST_RECORD {
            return Ok(self);
        }
        Err(Refusal::Invalid(format!(
            "the sandbox's record has {bytes} bytes, and {LARGEST_RECORD} is the most: write less \
             down with it"
        )))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Record({} bytes)", self.0.len())
    }
}

/// What the engine says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Observed(Observed),
    Sandboxes(Vec<Observed>),
    Steps(Vec<(String, u64)>),
    Prepared(u32),
    Record(Record),
    Ended(Ending),
    /// An image was unpacked, and this is what it is called until it is kept.
    Staged(String),
    /// The templates.
    Templates(Vec<Listed>),
    /// What [`version`] says.
    Version(String),
    /// How a sandbox is kept that stands still.
    Rest(Rest),
    /// The snapshots.
    Snapshots(Vec<ListedSnapshot>),
}

/// A snapshot that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ListedSnapshot {
    pub(crate) id: SnapshotId,
    /// Whether its processes were captured too.
    pub(crate) memory: bool,
    /// How much of the host's disk is its own.
    pub(crate) bytes: u64,
    /// The snapshots that it lies over.
    pub(crate) layers: Vec<SnapshotId>,
    /// Some of the sandboxes that were made from it.
    pub(crate) sandboxes: Vec<SandboxId>,
}

/// A template that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) name: TemplateName,
    /// Some of the sandboxes that stand on it.
    pub(crate) sandboxes: Vec<SandboxId>,
    /// Whether it is a layer over what the host has no more.
    pub(crate) is_stale: bool,
}

/// Why the engine does not do it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotFound,
    NotRunning(Ending),
    /// It stands still.
    Paused,
    Invalid(String),
    /// Nothing would hold it to these limits; the text says what would.
    Unenforced(Vec<Limit>, String),
    Failed(Failure),
    /// It does not fit what the sandbox uses now.
    Conflict(String),
    NoTemplate(TemplateName),
    TemplateExists(TemplateName),
    /// Some of the sandboxes stand on it.
    TemplateInUse(TemplateName, Vec<SandboxId>),
    NoSnapshot(SnapshotId),
    /// Some of the sandboxes were made from it.
    SnapshotInUse(SnapshotId, Vec<SandboxId>),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::OwnedFd;

    use link::{pair, receive};
    use proptest::prelude::*;
    use rustix::net::{RecvFlags, SendFlags};
    use serde::de::DeserializeOwned;
    use sys_linux::fdpass;

    use super::*;
    use crate::launch::Report;

    /// What a side that means harm sends arrives as a message or as an error, and nothing else.
    fn arrives<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let (near, far) = pair().unwrap();
        fdpass::send(&near, bytes, &[], SendFlags::empty()).unwrap();
        receive(&far, RecvFlags::empty())
    }

    proptest! {
        #[test]
        fn no_packet_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let _ = arrives::<Request>(&bytes);
            let _ = arrives::<Reply>(&bytes);
            let _ = arrives::<Report>(&bytes);
        }

        #[test]
        fn a_damaged_request_names_no_sandbox_that_could_not_be(
            place in 0usize..40,
            byte in any::<u8>(),
        ) {
            let id = crate::random_id().unwrap();
            let request = Request { number: 7, verb: Verb::Destroy { id } };
            let mut bytes = postcard::to_stdvec(&request).unwrap();
            let place = place % bytes.len();
            bytes[place] = byte;
            if let Ok(Some((Request { verb: Verb::Destroy { id }, .. }, _))) = arrives(&bytes) {
                // It becomes the name of a folder.
                prop_assert!(id.as_str().parse::<SandboxId>().is_ok());
                prop_assert!(!id.as_str().contains(['/', '.', '\0']));
            }
        }
    }
}
