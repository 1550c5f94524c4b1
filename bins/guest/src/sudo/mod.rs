//! `sudo` without set-user-id.
//!
//! Nothing in a sandbox gains privileges by executing a file, so the usual `sudo` cannot work
//! there. The guest's program takes its name and asks instead:
//!
//! ```text
//! caller's process           process 1               the command's keeper
//!   shim ── message ────────► door
//!    │     who sent it,        │ may they? which keeper are they below?
//!    │     says the kernel     └── order, descriptors ──► forks
//!    │                                                     monitor ─► forks ─► the program
//!    └◄───────── conversation: signals, how it ended ────────┘
//! ```
//!
//! [`shim`] is the program `sudo`, which runs as whoever called it: it reads the command line
//! ([`arguments`]), makes the environment ([`environment`]) and relays a terminal
//! ([`terminal`]). [`door`] is process 1's side and decides; [`monitor`] is below the keeper and
//! starts the program, which so belongs to the command that called `sudo` and ends with it.
//! [`request`] is what they say to each other.
//!
//! Whoever may use `sudo` may do everything as anybody, so what the shim says about users,
//! groups and variables needs no second look. Only who sent a message does, and that comes from
//! the kernel. The request is taken apart by the monitor, whose failure is the caller's alone.

mod arguments;
mod door;
mod environment;
pub(crate) mod monitor;
mod request;
mod shim;
mod target;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use door::{Door, serve};

/// The abstract name of the socket, in the sandbox's network namespace.
const NAME: &[u8] = b"soma-sudo";

/// Whether the program was called by the name that makes it `sudo`.
pub(crate) fn is_name(program: &OsString) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "sudo")
}

/// The program `sudo`.
pub(crate) fn run(arguments: Vec<OsString>) -> io::Result<ExitCode> {
    Ok(shim::run(arguments, &address(None)?))
}

/// The program `soma-guest sudo PATH ...`, for tests: asks the guest that was started with
/// `soma-guest outside PATH`.
pub(crate) fn run_outside(mut arguments: Vec<OsString>) -> io::Result<ExitCode> {
    if arguments.is_empty() {
        return Err(io::Error::other("expected the socket's path"));
    }
    let path = arguments.remove(0);
    Ok(shim::run(arguments, &address(Some(&path))?))
}

/// Where a guest listens: one in a sandbox, or one outside with this path.
fn address(outside: Option<&OsString>) -> io::Result<SocketAddr> {
    let name = match outside {
        None => NAME.to_vec(),
        Some(path) => [NAME, b":", path.as_bytes()].concat(),
    };
    SocketAddr::from_abstract_name(name)
}
