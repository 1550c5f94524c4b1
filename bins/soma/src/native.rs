//! The native engine as this program uses it.

use std::path::Path;
use std::sync::Arc;

use domain::SandboxId;
use provider::Provider;
use provider_native::{Home, NativeProvider, PROGRAM_ID};

use crate::failure::Failure;

/// Connects to the engine of this home, or starts one, and gives up root's powers if it had
/// them: what comes from a sandbox is read by nobody who could harm the host.
///
/// Blocks while the engine starts. Nothing is made yet, so Ctrl-C may simply end the program.
pub(crate) fn open(home: &Path) -> Result<Arc<dyn Provider>, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::own(&error))?;
    let provider = NativeProvider::open(&Home::at(home), &program)?;
    if rustix::process::geteuid().is_root() {
        sys_linux::process::become_user(PROGRAM_ID, PROGRAM_ID, &[])
            .and_then(|()| Ok(rustix::thread::set_no_new_privs(true)?))
            .map_err(|error| Failure::own(&error))?;
    }
    Ok(Arc::new(provider))
}

/// A fresh id that nobody can guess.
pub(crate) fn random_id() -> Result<SandboxId, Failure> {
    provider_native::random_id().map_err(|error| Failure::own(&error))
}
