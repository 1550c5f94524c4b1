//! The guest's protocol: messages, services and a client over any byte stream.

mod stream;

pub use generated::{filesystem, process};
pub use stream::ByteStream;

#[allow(
    missing_docs,
    missing_debug_implementations,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "generated from proto/"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/protocol.rs"));
}
