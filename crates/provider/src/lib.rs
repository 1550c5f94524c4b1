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

use async_trait::async_trait;
use domain::{SandboxId, SandboxSpec};
pub use error::{BoxError, ProviderError};
pub use guest::guest;
pub use guest_proto::ByteStream;
pub use observed::{Condition, Observed};

/// Makes sandboxes on one kind of backend and reaches into them.
///
/// # Promises
///
/// - [`create`](Self::create) and [`destroy`](Self::destroy) are idempotent: callers repeat
///   them after a crash or a lost answer.
/// - When `create` has answered, the guest answers too.
/// - When `destroy` has answered, nothing of the sandbox is left, and its id is free.
/// - A provider keeps no memory that matters: another instance on the same backend finds the
///   same sandboxes ([`list`](Self::list)) and can use them.
/// - Work whose caller went away is finished or undone; nothing stays half made.
/// - A sandbox with [`Lifetime::WithCaller`](domain::Lifetime) is destroyed when the provider
///   that made it is dropped, or its process dies.
/// - An id that is not there is [`ProviderError::NotFound`], except for `destroy`.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Makes the sandbox and waits until its guest answers.
    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<(), ProviderError>;

    /// Opens a fresh stream to the guest.
    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, ProviderError>;

    /// What can be seen of one sandbox from outside.
    async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError>;

    /// Every sandbox on this backend, running or ended, in the order of their ids.
    async fn list(&self) -> Result<Vec<Observed>, ProviderError>;

    /// Ends the sandbox and removes all of it. Nothing to remove is a success.
    async fn destroy(&self, id: &SandboxId) -> Result<(), ProviderError>;
}
