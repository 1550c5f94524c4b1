//! What the daemon remembers beside the sandboxes' own folders: an index of them, and keys.
//!
//! The folder of a sandbox is the truth about it, and what is here about it is a copy to search
//! in: [`Store::put_lease`] is called with what the folders say, and a store that was lost fills
//! again: at the next start, or as soon as [`StoreError::Lost`] says so. Keys have no other place,
//! and are carried over from a database that is set aside. What happened is not here: `journal` has it.
//!
//! Start at [`Store`]. [`sqlite`] is the one that needs nothing, [`postgres`] the one in a server
//! that is there anyway; callers know only the trait.

mod error;
mod key;
pub mod postgres;
mod query;
mod sql;
pub mod sqlite;

use async_trait::async_trait;
use domain::{Lease, SandboxId};

pub use error::StoreError;
pub use key::{ApiKey, KeyHash};
pub use query::{LeaseQuery, Order, Page, Sort, Unreadable};

/// The daemon's memory.
///
/// # Promises
///
/// - When a call that writes has answered, what it wrote survives the end of this process.
/// - Every write is whole or absent.
/// - Calls may come from any number of tasks at once.
/// - A call that finds the store damaged says [`StoreError::Lost`] once; then the store is empty
///   but for the keys, and works.
#[async_trait]
pub trait Store: Send + Sync {
    /// Keeps a copy of a record, in place of an earlier one of the same sandbox.
    async fn put_lease(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Forgets a sandbox. One that is not there is a success.
    async fn remove_lease(&self, id: &SandboxId) -> Result<(), StoreError>;

    /// The sandboxes that match, one page of them. A record that cannot be read is named beside
    /// the others and hides none of them.
    async fn leases(&self, query: &LeaseQuery) -> Result<Page<Lease>, StoreError>;

    /// Keeps a key's hash under the key's name, in place of an earlier one.
    async fn put_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// The key with this hash.
    async fn key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError>;
}
