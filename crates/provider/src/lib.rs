//! Where sandboxes run: the one trait that every backend implements.
//!
//! Start at [`Provider`], whose documentation is a list of promises; `tests/conformance.rs`
//! checks them against every implementation. What happens inside a sandbox is not asked of
//! the provider but of the guest, over the stream that [`Provider::connect`] opens.

mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod guest;
mod observed;
mod snapshot;
mod template;

use std::time::Duration;

use async_trait::async_trait;
use domain::{
    Ending, Limits, NetworkEntry, NetworkPolicy, Origin, Rest, SandboxId, SandboxSpec, SnapshotId,
    TemplateName,
};
pub use error::{BoxError, ProviderError};
pub use guest::guest;
pub use guest_proto::ByteStream;
pub use observed::{Condition, Observed};
use policy::Permitted;
pub use snapshot::{Snapshot, SnapshotKind};
pub use template::{Archive, Staged, Template, TemplateKind};

/// What a sandbox tried to reach, one after the other.
pub type NetworkLog = futures::stream::BoxStream<'static, Result<NetworkEntry, ProviderError>>;

/// The most that a record may have.
pub const LARGEST_RECORD: usize = 64 << 10;

/// Makes sandboxes on one kind of backend and reaches into them.
///
/// # Promises
///
/// - [`create`](Self::create) and [`destroy`](Self::destroy) are idempotent: callers repeat
///   them after a crash or a lost answer.
/// - When `create` has answered, the guest answers too.
/// - A sandbox that ended can be [started](Self::start) again with all its files; when that has
///   answered, its guest answers too. A start that fails leaves it as it was.
/// - A sandbox that is [paused](Self::pause) does nothing, and [resumed](Self::resume) goes on where
///   it was: its processes, their memory, their open files. Both may be asked twice.
/// - When `destroy` has answered, nothing of the sandbox is left, and its id is free.
/// - A provider keeps no memory that matters: another instance on the same backend finds the
///   same sandboxes ([`list`](Self::list)) and can use them.
/// - Work whose caller went away is finished or undone; nothing stays half made.
/// - A sandbox with [`Lifetime::WithCaller`](domain::Lifetime) is destroyed when the provider
///   that made it is dropped, or its process dies.
/// - What was written down with a sandbox is there as long as the sandbox is, also after an end
///   of the backend's own programs. [`LARGEST_RECORD`] bytes fit.
/// - An id that is not there is [`ProviderError::NotFound`], except for `destroy`.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Makes the sandbox and waits until its guest answers; says what came of it.
    ///
    /// `record` is kept with the sandbox for whoever finds it later, and is not read.
    async fn create(
        &self,
        id: &SandboxId,
        spec: &Permitted<SandboxSpec>,
        record: &str,
    ) -> Result<Observed, ProviderError>;

    /// Starts a sandbox again that ended, and waits until its guest answers; what it may use and
    /// stands on is what it was. One that runs is only [set up](Self::set_up) again.
    async fn start(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError>;

    /// Ends a sandbox that runs, and keeps its files. One that ended already is left so.
    ///
    /// When this has answered, nothing of it runs.
    async fn stop(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError>;

    /// Lets a sandbox that runs stand still. Its time does not go on meanwhile, and connections to
    /// its guest are closed. One that is paused already is left so.
    async fn pause(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        let _ = id;
        Err(without_pause())
    }

    /// Puts a paused sandbox on the disk and frees its memory, and says how it is kept now. Where that
    /// cannot be done it stays what it was, and what is said has the reason.
    async fn hibernate(&self, id: &Permitted<SandboxId>) -> Result<Rest, ProviderError> {
        let _ = id;
        Ok(Rest::Frozen { because: Some("this provider keeps sandboxes in memory".to_owned()) })
    }

    /// Lets a sandbox go on that is paused, with the time that its specification has, and waits
    /// until its guest answers. One that runs is left so.
    async fn resume(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        let _ = (id, spec);
        Err(without_pause())
    }

    /// Tells the guest of a sandbox that runs what it is to be. Making and starting one does it
    /// too; this is for whoever finds one that somebody may not have finished.
    async fn set_up(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<(), ProviderError>;

    /// Opens a fresh stream to the guest.
    async fn connect(
        &self,
        id: &Permitted<SandboxId>,
    ) -> Result<Box<dyn ByteStream>, ProviderError>;

    /// What can be seen of one sandbox from outside.
    async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError>;

    /// Every sandbox on this backend, running or ended, in the order of their ids.
    async fn list(&self) -> Result<Vec<Observed>, ProviderError>;

    /// Waits until the sandbox does not run any more, and says why.
    ///
    /// Cancellation-safe. One that is destroyed meanwhile is [`ProviderError::NotFound`].
    async fn ended(&self, id: &SandboxId) -> Result<Ending, ProviderError>;

    /// What whoever made the sandbox wrote down with it.
    async fn read_record(&self, id: &SandboxId) -> Result<String, ProviderError>;

    /// Replaces what is written down with the sandbox, whole or not at all.
    async fn write_record(
        &self,
        id: &Permitted<SandboxId>,
        record: &str,
    ) -> Result<(), ProviderError>;

    /// Lets the sandbox's time be over so long from now; `None` is never.
    async fn renew(
        &self,
        id: &Permitted<SandboxId>,
        timeout: Option<Duration>,
    ) -> Result<(), ProviderError>;

    /// Lets a running sandbox use this from now on. Its time is not among it: [`Self::renew`].
    ///
    /// All of it or nothing: what cannot be changed while a sandbox runs, or does not fit what it
    /// uses now, is refused with the reason. Memory, processors and processes can be changed. It
    /// holds also after an end of the backend's own programs.
    async fn limit(&self, id: &Permitted<SandboxId>, limits: &Limits) -> Result<(), ProviderError>;

    /// Lets a sandbox reach this from now on, and nothing else. It holds also after an end of the
    /// backend's own programs; connections that the new policy does not allow are cut.
    async fn change_network(
        &self,
        id: &Permitted<SandboxId>,
        policy: &NetworkPolicy,
    ) -> Result<(), ProviderError> {
        let _ = (id, policy);
        Err(without_network())
    }

    /// What the sandbox tried to reach, from the entry after number `after` on; with `follow` also
    /// what is yet to come, until the stream is dropped.
    async fn network_log(
        &self,
        id: &SandboxId,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ProviderError> {
        let _ = (id, after, follow);
        Err(without_network())
    }

    /// Ends the sandbox and removes all of it. Nothing to remove is a success.
    async fn destroy(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError>;

    /// Unpacks an image that comes as an archive, reading it as fast as it is unpacked.
    ///
    /// Cancellation-safe: what was begun is undone.
    async fn stage_template(&self, archive: Permitted<Archive>) -> Result<Staged, ProviderError> {
        drop(archive);
        Err(without_templates())
    }

    /// Makes what was unpacked a template, whole or not at all. With `replace`, in the place of
    /// one that is there: sandboxes that stand on that one keep it.
    async fn keep_template(
        &self,
        staged: Staged,
        name: &Permitted<TemplateName>,
        record: &str,
        kind: TemplateKind,
        replace: bool,
    ) -> Result<(), ProviderError> {
        let _ = (staged, name, record, kind, replace);
        Err(without_templates())
    }

    /// Takes a snapshot of a sandbox of which nothing is in memory: one that is
    /// [hibernated](Self::hibernate) or ended. The sandbox goes on from where it was. Done when there
    /// is such a snapshot already.
    async fn capture(
        &self,
        id: &Permitted<SandboxId>,
        snapshot: &SnapshotId,
        kind: SnapshotKind,
        record: &str,
    ) -> Result<(), ProviderError> {
        let _ = (id, snapshot, kind, record);
        Err(without_snapshots())
    }

    /// Every snapshot that somebody keeps, in the order of their ids.
    async fn snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        Ok(Vec::new())
    }

    /// Removes a snapshot that no sandbox was made from.
    async fn remove_snapshot(&self, id: &Permitted<SnapshotId>) -> Result<(), ProviderError> {
        Err(ProviderError::NoSnapshot { id: id.get().clone() })
    }

    /// Makes a sandbox what a snapshot was, and waits until its guest answers. What it was before is
    /// gone. Whatever runs of it ends first.
    async fn roll_back(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
        origin: &Origin,
    ) -> Result<Observed, ProviderError> {
        let _ = (id, spec, origin);
        Err(without_snapshots())
    }

    /// Every template, in the order of their names.
    async fn templates(&self) -> Result<Vec<Template>, ProviderError> {
        Ok(Vec::new())
    }

    /// Removes a template that no sandbox stands on.
    async fn remove_template(&self, name: &Permitted<TemplateName>) -> Result<(), ProviderError> {
        Err(ProviderError::NoTemplate { name: name.get().clone() })
    }
}

fn without_pause() -> ProviderError {
    let reason = "this provider cannot pause sandboxes: stop it, which keeps its files";
    ProviderError::Unsupported { reason: reason.to_owned() }
}

fn without_snapshots() -> ProviderError {
    let reason = "this provider takes no snapshots";
    ProviderError::Unsupported { reason: reason.to_owned() }
}

fn without_network() -> ProviderError {
    let reason = "this provider has no network for its sandboxes";
    ProviderError::Unsupported { reason: reason.to_owned() }
}

fn without_templates() -> ProviderError {
    let reason = "this provider makes no templates from images";
    ProviderError::Unsupported { reason: reason.to_owned() }
}
