//! `soma egress`: the program that sandboxes reach the network through.
//!
//! The engine starts it, without privileges, and gives it the socket that it listens at as its
//! standard input. It reads what comes from inside sandboxes, so it has nothing worth taking: its
//! own folder, and the sockets that it was handed.

use std::os::fd::AsFd as _;
use std::path::Path;

use provider_native::Home;

use crate::failure::Failure;

/// Serves until no engine and no sandbox needs it.
pub(crate) fn run(home: &Path) -> Result<u8, Failure> {
    let broken = |error: std::io::Error| Failure::own(&error);
    rustix::thread::set_no_new_privs(true).map_err(|error| broken(error.into()))?;
    let listener = std::io::stdin().as_fd().try_clone_to_owned().map_err(broken)?;
    network::egress::start(listener, Home::at(home).egress())
        .map(|()| 0)
        .map_err(|error| Failure::own(&error))
}
