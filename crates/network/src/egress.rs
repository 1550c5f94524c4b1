//! The egress program: the only way out of sandboxes.
//!
//! It has no privileges and lies in the host's own network. Start at [`run`]; then
//!
//! ```text
//! server       engines that attach sandboxes, readers of logs
//! gate         every TCP connection of a sandbox: judged, dialled, passed on
//! dns          every question of a sandbox for a name
//! judge        what is allowed, as pure functions; settings, what the operator says to it
//! first, hello what a client begins with; web, transform: HTTP request by request
//! upstream     how it is dialled; relay: how bytes pass
//! log          what was tried and what came of it
//! ```
//!
//! Everything that comes from a sandbox is hostile: it is bounded in size, count and time, and what
//! is not understood does not pass. The program keeps no secret longer than its rules, and tells
//! none.

pub mod certificates;
mod dns;
pub mod first;
mod follow;
mod gate;
pub mod hello;
pub mod judge;
mod locality;
mod log;
mod metadata;
mod names;
mod packets;
mod proxy;
mod refuse;
mod relay;
mod resolver;
mod sandbox;
mod server;
mod settings;
mod transform;
mod upstream;
mod web;
mod whose;
mod world;

#[cfg(feature = "fuzzing")]
pub(crate) use dns::read_dns;

pub use certificates::CertificateError;
pub use follow::follow_log;
pub use server::{EgressError, run, start};
