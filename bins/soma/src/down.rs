//! `soma down`: the end of the daemon and of the engine.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use provider_native::{Home, NativeProvider};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::failure::{FAILED, Failure, SOMA_FAILED, refused};
use crate::{daemon, output};

/// A daemon that was told to end finishes what it does within 10 seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is typed after `soma down`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma down
  soma down --destroy

Sandboxes go on without the daemon, and the next one finds them again; those that were made to stop
or to go with it (`on_exit`) do. With --destroy all of them are deleted first.

Exit codes: 0 when nothing is left running but sandboxes; 1 when a sandbox could not be deleted, and
the daemon stays; 125 when Soma failed.")]
pub(crate) struct DownArguments {
    /// Delete every sandbox first, with all that is in it.
    #[arg(long)]
    destroy: bool,
}

/// Ends what there is. None to end is a success.
pub(crate) fn run(home: &Path, arguments: &DownArguments) -> Result<u8, Failure> {
    let socket = daemon::socket(home);
    if arguments.destroy && destroy(home)? > 0 {
        return Ok(FAILED);
    }
    if let Ok(connection) = UnixStream::connect(&socket) {
        end(&connection)?;
    }
    daemon::block_on(async {
        match NativeProvider::find(&Home::at(home))? {
            Some(engine) => Ok(engine.end_engine().await?),
            None => Ok(()),
        }
    })?;
    Ok(0)
}

/// Deletes all sandboxes; how many could not be.
fn destroy(home: &Path) -> Result<usize, Failure> {
    // Also of a home whose daemon does not run: only a daemon knows how.
    let client = daemon::privileged_client(home)?;
    daemon::block_on(async {
        let all = client.list_all(&api_v1::sandboxes::Query::default()).await.map_err(refused)?;
        let mut left = 0;
        for sandbox in all.items {
            if let Err(error) = client.delete(&sandbox.id).await {
                output::failure(&refused(error));
                left += 1;
            }
        }
        Ok(left)
    })
}

/// Tells the daemon at the other end to end, and waits until it has.
fn end(connection: &UnixStream) -> Result<(), Failure> {
    let own = |error: std::io::Error| Failure::own(&error);
    let daemon = socket_peercred(connection).map_err(|error| own(error.into()))?.pid;
    // Held before it is told: the number may soon be another's.
    let held = pidfd_open(daemon, PidfdFlags::empty()).map_err(|error| own(error.into()))?;
    pidfd_send_signal(&held, Signal::TERM).map_err(|error| {
        Failure::new(
            SOMA_FAILED,
            format!("the daemon (process {daemon:?}) cannot be ended: {error}"),
        )
    })?;
    let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut ended = [PollFd::new(&held, PollFlags::IN)];
    if poll(&mut ended, Some(&timeout)).is_ok_and(|ready| ready > 0) {
        return Ok(());
    }
    let message = "the daemon was told to end, and is still there";
    Err(Failure::new(SOMA_FAILED, message))
}
