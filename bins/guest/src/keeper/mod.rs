//! Keeps one command and everything that it starts.
//!
//! Each command has a keeper of its own as parent. The keeper is a subreaper: whatever the
//! command starts stays below it, also what was forked twice or made its own session, so "the
//! command and its children" is a set that can be found again and killed as a whole.
//!
//! It tells the guest through the control socket when the command started and how it ended
//! ([`Report`]), and obeys [`Order`]s from there. The end of the command itself kills nothing;
//! the keeper stays until nothing is left below it. It has one thread and does little, for it
//! stands between a request and its command.
//!
//! Start at [`run`]. The side of the command is in [`execute`], killing in [`tree`].

mod execute;
mod message;
pub(crate) mod tree;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
    set_child_subreaper, set_parent_process_death_signal, wait,
};
use sys_linux::namespace::{Namespaces, Side, fork};

use crate::spawner::Request;
use crate::sudo;

pub(crate) use execute::candidates;
pub(crate) use message::{Order, Report};

/// While a tree is being killed: how long to wait before looking for what was missed.
const AGAIN: Duration = Duration::from_millis(20);

/// Waits for a request, runs its command and keeps it. Returns the code to leave with.
///
/// `taken` is told when the request has been taken, so that the spawner forks the next keeper.
pub(crate) fn run(requests: OwnedFd, taken: OwnedFd, spawner: Pid) -> i32 {
    match prepare(requests, spawner) {
        Ok(Some((request, children))) => keep(request, &children, taken),
        Ok(None) => 0,
        Err(_) => 1,
    }
}

/// All that can be done before somebody waits; then waits for the request.
fn prepare(requests: OwnedFd, spawner: Pid) -> io::Result<Option<(Request, OwnedFd)>> {
    // A waiting keeper holds the spawner's end of the guest's socket. Were it to outlive the
    // spawner, the guest would not see that the spawner died.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(spawner) {
        return Ok(None);
    }
    set_child_subreaper(Some(spawner))?;
    let children = sys_linux::process::children_descriptor()?;
    let request = Request::receive(&requests)?;
    drop(requests);
    set_parent_process_death_signal(None)?;
    Ok(request.map(|request| (request, children)))
}

fn keep(request: Request, children: &OwnedFd, taken: OwnedFd) -> i32 {
    let Request { command, stdin, stdout, stderr, control, further } = request;
    let program = execute::Program::new(command);
    let _ = Report::Keeper { pid: getpid().as_raw_pid() }.send(&control);
    let main = match fork(Namespaces::NONE) {
        Ok(Side::Child) => program.run([&stdin, &stdout, &stderr], &further, &control),
        Ok(Side::Parent(main)) => main,
        Err(error) => {
            let _ = Report::Failed { errno: error.raw_os_error().unwrap_or(0) }.send(&control);
            return 1;
        }
    };
    // The guest may have lost interest already; the command runs all the same.
    let _ = Report::Started { pid: main.as_raw_pid() }.send(&control);
    // The ends of the pipes are the command's alone now, or they would never reach their end.
    drop((stdin, stdout, stderr, further));
    let _ = rustix::io::write(&taken, &[1]);
    drop((taken, program));
    Keeper { main, running: true, killing: false, control: Some(control) }.serve(children)
}

/// A keeper whose command was started.
struct Keeper {
    /// The command itself, leader of its own session and process group.
    main: Pid,
    /// The command has not ended yet.
    running: bool,
    /// The whole tree is to go.
    killing: bool,
    /// Where the guest is; none when it has closed its end.
    control: Option<OwnedFd>,
}

impl Keeper {
    /// Reaps and obeys until nothing is left below.
    fn serve(mut self, children: &OwnedFd) -> i32 {
        loop {
            if self.reap() {
                return 0;
            }
            if self.killing {
                tree::kill(getpid());
            }
            match self.wait_for_news(children) {
                Ok(true) => self.obey(),
                Ok(false) => {}
                Err(_) => return 1,
            }
        }
    }

    /// Waits for a child's end or for an order; true when there is something to read.
    fn wait_for_news(&self, children: &OwnedFd) -> io::Result<bool> {
        let pause = Timespec::try_from(AGAIN).map_err(io::Error::other)?;
        let timeout = self.killing.then_some(&pause);
        let control = self.control.as_ref().unwrap_or(children);
        let mut polled = [
            PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ordered = self.control.is_some() && !polled[1].revents().is_empty();
        if !polled[0].revents().is_empty() {
            // Only that something ended is of interest; who did is asked of the kernel.
            let _ = rustix::io::read(children, &mut [0; 512]);
        }
        Ok(ordered)
    }

    /// Reaps all that ended; true when nothing is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => {
                    self.running = false;
                    let report = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Report::Exited { code },
                        (None, Some(signal)) => Report::Signalled { signal },
                        (None, None) => continue,
                    };
                    if let Some(control) = &self.control {
                        let _ = report.send(control);
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn obey(&mut self) {
        let Some(control) = &self.control else { return };
        match Order::receive(control) {
            Ok(Some((Order::Kill, _))) => self.killing = true,
            Ok(Some((Order::Signal { signal }, _))) => self.signal(signal),
            // Its processes are below us, as all that the command starts.
            Ok(Some((Order::Sudo, along))) => sudo::monitor::start(along),
            // The guest has all it wanted to know. The command's children live on.
            Ok(None) | Err(_) => self.control = None,
        }
    }

    /// Sends a signal to the command's process group.
    fn signal(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        if self.running {
            // Right after the fork it may not lead a group yet, and is alone.
            if kill_process_group(self.main, signal).is_err() {
                let _ = kill_process(self.main, signal);
            }
        } else {
            // The number of a group whose leader was reaped may be given anew, so only what is
            // below us is signalled.
            tree::signal_group(self.main, signal);
        }
    }
}
