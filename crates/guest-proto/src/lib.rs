//! The guest's protocol: messages, services and a client over any byte stream.

#[cfg(feature = "client")]
pub mod client;
pub mod code;
pub mod fault;
mod stream;
pub mod version;

#[cfg(feature = "client")]
pub use client::{Dial, GuestClient, GuestError};
pub use generated::{filesystem, process, soma};
pub use stream::ByteStream;

#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated from proto/"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
}
