//! What sandboxes may reach, and the program through which they reach it.
//!
//! A sandbox's network namespace has nothing but `lo`. Every connection that it makes to the
//! outside arrives at a listening socket that the engine made inside and gave to `soma egress`,
//! which sees where it was meant to go, judges it and dials on the sandbox's behalf.
//!
//! [`attach`] is what the engine says to the egress program, [`Rules`] what that is told of one
//! sandbox, [`Configuration`] what its operator wants of all of them.

pub mod attach;
mod configuration;
pub mod egress;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod rules_document;

pub use configuration::Configuration;
pub use egress::follow_log;
pub use rules_document::{Authority, Rules};
