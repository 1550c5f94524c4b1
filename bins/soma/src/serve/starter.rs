//! What stays root when root starts the daemon: it starts engines, and nothing else.
//!
//! It reads one byte from the daemon, "a connection to the engine, please", and nothing that
//! came from a client or a sandbox. It ends with the daemon.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Child;

use provider_native::{Home, PROGRAM_ID};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use sys_linux::fdpass;
use sys_linux::process::{next_signal, signals_descriptor};

use super::engines::{CONNECTED, FAILED};
use crate::failure::Failure;

/// Variables that the daemon reads, by how they begin.
const PASSED_ON: [&str; 2] = ["SOMA_", "OTEL_"];
/// And by their whole name: how to write, and whom to tell that it is ready.
const ALSO_PASSED_ON: [&str; 2] = ["NO_COLOR", "NOTIFY_SOCKET"];

pub(super) fn run(path: &Path) -> Result<u8, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::own(&error))?;
    // Before any thread begins: one that does not block them would take them, and end us all.
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::CHILD].map(Signal::as_raw);
    let signals = signals_descriptor(&signals).map_err(|error| Failure::own(&error))?;
    let home = Home::at(path);
    // Makes the home as well, and says at once why there can be no sandboxes.
    drop(provider_native::connect_engine(&home, &program)?);
    make_folder(&home.daemon()).map_err(|error| Failure::own(&error))?;
    let (own, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| Failure::own(&io::Error::from(error)))?;
    let child = spawn(&program, path, &theirs).map_err(|error| Failure::own(&error))?;
    drop(theirs);
    Starter { home, program: program.clone(), child, signals, daemon: own }.attend()
}

/// The daemon's own folder, whose owner it is.
fn make_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    chown(path, Some(PROGRAM_ID), Some(PROGRAM_ID))
}

/// Starts the daemon with the same words and without privileges.
fn spawn(program: &Path, home: &Path, theirs: &OwnedFd) -> io::Result<Child> {
    // Only this process and this moment: nothing else is started meanwhile.
    fcntl_setfd(theirs, FdFlags::empty())?;
    let mut command = sys_linux::command::command(program);
    command.args(std::env::args_os().skip(1));
    command.arg(format!("--inside={}", theirs.as_raw_fd()));
    for (name, value) in std::env::vars_os() {
        let known = name.to_str().is_some_and(|name| {
            PASSED_ON.iter().any(|prefix| name.starts_with(prefix))
                || ALSO_PASSED_ON.contains(&name)
        });
        if known {
            command.env(name, value);
        }
    }
    // What the usual home is depends on who asks, and the daemon is not root.
    command.env("SOMA_HOME", home);
    command.uid(PROGRAM_ID).gid(PROGRAM_ID).spawn()
}

struct Starter {
    home: Home,
    program: std::path::PathBuf,
    child: Child,
    signals: OwnedFd,
    daemon: OwnedFd,
}

impl Starter {
    /// Serves the daemon until it ends, and ends like it.
    fn attend(mut self) -> Result<u8, Failure> {
        loop {
            let mut descriptors = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.daemon, PollFlags::IN),
            ];
            match poll(&mut descriptors, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(|error| Failure::own(&io::Error::from(error)))?,
            };
            let [signal, request] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
            if signal {
                self.pass_signals_on();
            }
            if let Some(status) = self.child.try_wait().map_err(|error| Failure::own(&error))? {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                return Ok(u8::try_from(code.unwrap_or(1)).unwrap_or(1));
            }
            if request {
                self.serve_one();
            }
        }
    }

    fn pass_signals_on(&self) {
        while let Ok(Some(signal)) = next_signal(&self.signals) {
            let child = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if signal != Signal::CHILD.as_raw()
                && let Some(child) = child
            {
                let _ = kill_process(child, Signal::TERM);
            }
        }
    }

    /// Answers one wish for a connection. A daemon that is gone is noticed by its end.
    fn serve_one(&self) {
        let mut byte = [0; 1];
        match fdpass::receive(&self.daemon, &mut byte, RecvFlags::DONTWAIT) {
            Ok((1, _)) => {}
            _ => return std::thread::sleep(std::time::Duration::from_millis(10)),
        }
        let _ = match provider_native::connect_engine(&self.home, &self.program) {
            Ok(socket) => {
                fdpass::send(&self.daemon, &[CONNECTED], &[socket.as_fd()], SendFlags::empty())
            }
            Err(error) => {
                let mut words = vec![FAILED];
                words.extend(error.to_string().bytes().take(2000));
                fdpass::send(&self.daemon, &words, &[], SendFlags::empty())
            }
        };
    }
}
