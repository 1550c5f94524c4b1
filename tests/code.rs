//! Code in kernels: each kernel by itself, and all of them in real sandboxes, through the daemon and
//! the commands.

mod broken;
mod interpreter;
mod kernels;
mod notebook;
mod packages;
mod repl;
pub(crate) mod through_daemon;
