//! Forks commands for the guest, from inside the workload's cgroup.
//!
//! The guest has a cgroup of its own, so that a workload at its limits cannot take it down.
//! Moving a command over after its start would be slow; so this program, which was put into the
//! workload's cgroup once, is the parent of all commands.
//!
//! ```text
//! guest ── request ──► socket ◄── waits ── keeper, forked ahead
//!                                            │ takes the request
//! spawner ◄── "taken", forks the next ───────┤
//!                                            └─► forks and keeps the command
//! ```
//!
//! The spawner itself never reads a request: a [`keeper`] that is already there does, so that a
//! command costs one fork and not two while somebody waits for it. Only when no keeper can be
//! forked does the spawner answer, with the reason.
//!
//! A second spawner sits in a small cgroup beside the workload's: the reserve. It is asked when the
//! workload is at its limit of processes, so that somebody can still look around and end what
//! fills it. Nobody waits for it as a rule, so it forks no keeper ahead.
//!
//! [`keeper`]: crate::keeper

mod request;

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpid;
use sys_linux::fdpass;
use sys_linux::namespace::{Namespaces, Side, fork, leave};

use crate::keeper::{self, Report};

pub(crate) use request::{Body, Command, Request};

/// How long to wait before another attempt to fork a keeper.
const PAUSE: Duration = Duration::from_millis(10);

/// When a keeper is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Before somebody asks.
    Ahead,
    /// When somebody asks.
    OnDemand,
}

/// The program `soma-guest spawn [--reserve]`: descriptor 3 is the socket to the guest.
pub(crate) fn run(arguments: &[OsString]) -> io::Result<ExitCode> {
    crate::shut_off()?;
    let readiness = match arguments {
        [] => Readiness::Ahead,
        [flag] if flag == "--reserve" => Readiness::OnDemand,
        _ => return Err(io::Error::other("expected nothing, or `--reserve`")),
    };
    serve(fdpass::inherited(3)?, readiness)
}

/// Has a keeper for each request, until the guest is gone.
pub(crate) fn serve(requests: OwnedFd, readiness: Readiness) -> io::Result<ExitCode> {
    sys_linux::process::reset_signals()?;
    // Keepers report to the guest; nobody asks how they ended.
    sys_linux::process::forget_children();
    let spawner = getpid();
    loop {
        if readiness == Readiness::OnDemand {
            await_request(requests.as_fd())?;
        }
        if hung_up(requests.as_fd())? {
            return Ok(ExitCode::SUCCESS);
        }
        let forked = io::pipe().and_then(|(done, taken)| {
            let side = fork(Namespaces::NONE)?;
            Ok((side, done, taken))
        });
        match forked {
            Ok((Side::Child, done, taken)) => {
                drop(done);
                leave(keeper::run(requests, taken.into(), spawner));
            }
            Ok((Side::Parent(_), mut done, taken)) => {
                drop(taken);
                // One byte: a request was taken. End of file: the keeper is gone without one.
                // Both mean that there is no keeper waiting any more.
                let _ = done.read(&mut [0])?;
            }
            Err(error) => refuse_one(requests.as_fd(), &error)?,
        }
    }
}

/// Waits until there is a request, or nobody who could make one.
fn await_request(requests: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(requests, PollFlags::IN)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits a moment for a request and answers that no process can be had.
fn refuse_one(requests: BorrowedFd<'_>, reason: &io::Error) -> io::Result<()> {
    let mut waiting = [PollFd::from_borrowed_fd(requests, PollFlags::IN)];
    let pause = Timespec::try_from(PAUSE).map_err(io::Error::other)?;
    if poll(&mut waiting, Some(&pause))? == 0 {
        return Ok(());
    }
    if let Some(request) = Request::receive(requests)? {
        let errno = reason.raw_os_error().unwrap_or(0);
        // A guest that is not interested any more has closed its end: nothing is lost.
        let _ = Report::Failed { errno }.send(&request.control);
    }
    Ok(())
}

fn hung_up(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}
