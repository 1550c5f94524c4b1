//! `soma run`: a fresh sandbox, one command in it, and the sandbox gone.
//!
//! The story, one file per part:
//!
//! 1. [`arguments`]: what was typed becomes a [`Plan`], or is refused before anything is made;
//! 2. [`session`]: the sandbox is made, the command runs in it, the sandbox is destroyed,
//!    whatever happens in between;
//! 3. [`follow`]: output, input and Ctrl-C while the command runs;
//! 4. [`ending`]: how it ended becomes an exit code and perhaps a message.
//!
//! The sandbox is bound to this process ([`Lifetime::WithCaller`](domain::Lifetime)), so that
//! it is also gone when this process is killed.

mod arguments;
mod ending;
mod follow;
mod input;
mod interrupts;
mod session;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::failure::Failure;
use crate::{native, output};
use arguments::Plan;
pub(crate) use arguments::RunArguments;
use input::Input;
use interrupts::Interrupts;
use session::Session;

/// Runs what was typed and returns its exit code.
pub(crate) fn run(home: &Path, arguments: RunArguments) -> Result<u8, Failure> {
    let plan = Plan::new(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own(&error))?;
    let outcome = runtime.block_on(async {
        let provider = native::open(home)?;
        let interrupts = Interrupts::listen().map_err(|error| Failure::own(&error))?;
        let own =
            |descriptor: std::io::Result<OwnedFd>| descriptor.map_err(|error| Failure::own(&error));
        let stdout = own(std::io::stdout().as_fd().try_clone_to_owned())?;
        let stderr = own(std::io::stderr().as_fd().try_clone_to_owned())?;
        let console = output::Console::new(stdout, stderr).map_err(|error| Failure::own(&error))?;
        let session = Session { provider, id: native::random_id()?, plan };
        session.run(console, Input::standard(), interrupts).await
    });
    // Nothing is left that is worth waiting for.
    runtime.shutdown_background();
    outcome
}
