//! The programs that live with a sandbox, in one static file.
//!
//! ```text
//! soma-guest init        process 1 of the sandbox: serves files and processes
//! soma-guest spawn       sits in the workload's cgroup and forks commands for `init`; a second one
//!                        in the reserve's
//! soma-guest supervise   outside of the sandbox: holds process 1, records why it ended
//! sudo                   in the sandbox: asks process 1 to run something as another user
//! ```
//!
//! [`init`] answers requests through [`server`], which hands processes to [`process`], files to
//! [`files`], code to [`code`] and the rest to [`http`]. A command is started by [`spawner`] and kept by
//! [`keeper`]. Called by the name `sudo`, it is the program of [`sudo`]. The guest must not end
//! because of what a client or the sandbox sends: nothing here may panic.

mod code;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod http;
mod identity;
mod init;
mod keeper;
mod metrics;
mod paths;
mod ports;
mod process;
mod server;
mod soma;
mod spawner;
mod state;
mod sudo;
mod supervise;
mod users;

use std::io::Write as _;
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Runs a task beside the others.
#[expect(
    clippy::disallowed_methods,
    reason = "the guest never waits for its tasks: when process 1 ends, the sandbox does"
)]
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

/// Shuts this process's memory off from every other, the sandbox's root included: it has the
/// same id, and what it wrote into process 1 would run outside of the workload's limits. What a
/// command executes is open to its own kind again.
fn shut_off() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Runs the program that the first argument names.
pub fn run() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.next().is_some_and(|name| sudo::is_name(&name)) {
        return told(sudo::run(arguments.collect()));
    }
    let program = arguments.next().unwrap_or_default();
    let rest: Vec<_> = arguments.collect();
    told(match program.to_str() {
        Some("init") => init::run(),
        Some("spawn") => spawner::run(&rest),
        Some("supervise") => supervise::run(&rest),
        Some("outside") => init::run_outside(&rest),
        Some("sudo") => sudo::run_outside(rest),
        _ => Err(std::io::Error::other("expected one of: init, spawn, supervise")),
    })
}

fn told(done: std::io::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            // Nobody may be listening, and there is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "soma-guest: {error}");
            ExitCode::FAILURE
        }
    }
}
