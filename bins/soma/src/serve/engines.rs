//! How the daemon comes to an engine.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use provider::ProviderError;
use provider_native::{Home, NativeProvider};
use rustix::net::{RecvFlags, SendFlags};
use sys_linux::fdpass;

/// What the starter's answer begins with.
pub(super) const CONNECTED: u8 = b'C';
pub(super) const FAILED: u8 = b'F';

/// The provider of a daemon: through whoever started it and has the power to start engines, or
/// by itself.
pub(super) fn provider(
    home: &Path,
    starter: Option<RawFd>,
) -> Result<NativeProvider, ProviderError> {
    let Some(starter) = starter else {
        let program = std::env::current_exe().map_err(broken)?;
        return NativeProvider::open(&Home::at(home), &program);
    };
    let starter = Mutex::new(fdpass::inherited(starter).map_err(broken)?);
    Ok(NativeProvider::over(move || {
        // One wish at a time: answers carry no numbers.
        let starter = starter.lock().unwrap_or_else(PoisonError::into_inner);
        ask(&starter)
    }))
}

fn ask(starter: &OwnedFd) -> Result<OwnedFd, ProviderError> {
    fdpass::send(starter, b"E", &[], SendFlags::empty()).map_err(broken)?;
    let mut words = [0; 4096];
    let (length, mut descriptors) =
        fdpass::receive(starter, &mut words, RecvFlags::empty()).map_err(broken)?;
    match (words[..length].split_first(), descriptors.pop()) {
        (Some((&CONNECTED, _)), Some(socket)) => Ok(socket),
        (Some((&FAILED, reason)), _) => {
            Err(ProviderError::Unsupported { reason: String::from_utf8_lossy(reason).into_owned() })
        }
        _ => Err(broken(io::Error::other("whoever started the daemon is gone"))),
    }
}

fn broken(error: io::Error) -> ProviderError {
    ProviderError::Backend { step: "reach the engine".to_owned(), source: Box::new(error) }
}
