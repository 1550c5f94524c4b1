//! Code in kernels: each kernel by itself, and all of them through the daemon.

mod kernels;
mod through_daemon;
