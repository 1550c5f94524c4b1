//! Safe wrappers over the system calls that Rust's own and rustix's safe functions lack.
//!
//! The only crate with `unsafe`; every block says why it is sound. It knows nothing about
//! sandboxes: a function here does one thing to the kernel, and the story of why is told by
//! its caller (`provider-native`, `soma-guest`).

#![allow(unsafe_code, reason = "this crate exists so that no other needs it")]

pub mod command;
pub mod descriptors;
pub mod fdpass;
pub mod files;
pub mod kvm;
pub mod landlock;
pub mod loop_device;
pub mod mount;
pub mod namespace;
pub mod network;
pub mod process;
pub mod sender;
#[cfg(feature = "tracing-tests")]
pub mod trace;
