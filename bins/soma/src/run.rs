//! `soma run`: a fresh sandbox, one command in it, and the sandbox gone.
//!
//! The story, one file per part:
//!
//! 1. [`arguments`]: what was typed becomes a [`Plan`](crate::session::Plan), or is refused
//!    before anything is made;
//! 2. [`session`]: the sandbox is made, the command runs in it, the sandbox is destroyed;
//! 3. [`follow`]: output, input and Ctrl-C while the command runs.

mod arguments;
pub(crate) mod follow;
pub(crate) mod input;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::daemon;
use crate::failure::Failure;
use crate::session::{self, Fresh};
pub(crate) use arguments::RunArguments;
use follow::follow;
use input::Input;

/// Runs what was typed and returns its exit code.
pub(crate) fn run(home: &Path, arguments: RunArguments) -> Result<u8, Failure> {
    let mut plan = arguments.plan()?;
    let input = Input::standard();
    plan.start.stdin = input.is_open();
    daemon::ask(home, async |client| {
        let fresh = Fresh::new(client, plan.network.take());
        session::run(fresh, plan, async |live| Ok(follow(live, input).await)).await
    })
}
