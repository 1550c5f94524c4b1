//! The native engine: sandboxes from the Linux kernel alone.
//!
//! Four programs take part, each with as little privilege as its work allows:
//!
//! ```text
//! soma run / serve       engine              supervisor        guest (process 1 inside)
//! unprivileged           root                sandbox's id      sandbox's id, in namespaces
//!      |                   |                     |                   |
//!      |-- typed verbs --> |-- forks launcher -->|-- clones -------->| serves its protocol
//!      |<-- a descriptor --|   which becomes it  |   waits for it    |
//!      |<================= guest's protocol =======================> |
//! ```
//!
//! [`NativeProvider`] is the client's side, and [`engine::run`] the engine's. What an engine
//! does to make one sandbox is the story of the `launch` module. What happens inside one is
//! the guest's (`bins/guest`), and nothing of what it sends is parsed by the engine.

mod cgroup;
mod checkpoint;
mod client;
mod disk;
mod durable;
pub mod engine;
mod failure;
mod fingerprint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod home;
mod ids;
mod landlock;
mod launch;
mod manifest;
mod missing;
mod random;
mod record;
mod remove;
mod reserves;
mod rights;
mod seccomp;
mod snapshot;
mod template;
mod verbs;

pub use client::{NativeProvider, connect_engine};
pub use home::Home;
pub use ids::PROGRAM_ID;
pub use random::random_id;
pub use reserves::Reserves;
