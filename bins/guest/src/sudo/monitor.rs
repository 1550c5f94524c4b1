//! Starts a program for `sudo` and waits for it, below the keeper of the command that asked.
//!
//! The monitor leads a session, in which the program has a process group of its own: so Ctrl-Z
//! works, which the kernel keeps from a group whose parent is in another session. It passes on
//! the signals that the shim was sent, one byte each, and tells how the program ended.
//!
//! When the shim is gone, killed without a chance to say so, the program is told to end as well,
//! unless it was started to stay. Whatever happens here, all of it ends with the keeper's
//! command when that is killed.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, Uid, fchown};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, chdir, fchdir, getpgrp, ioctl_tiocsctty,
    kill_process_group, setpgid, setsid, umask, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::tcsetpgrp;
use sys_linux::descriptors::close_all_but;
use sys_linux::fdpass;
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::process::{
    Strings, become_user, close_on_execute_from, execute, next_signal, signals_descriptor,
    unblock_signals,
};

use super::request::{Parts, Reply, Wish};
use crate::keeper::candidates;
use crate::process::OOM_SCORE_ADJUSTMENT;

/// What must not end or stop the monitor: it leads the session of a terminal that may go away.
const HELD_BACK: [Signal; 7] = [
    Signal::CHILD,
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// Starts a monitor for what came with an order. Called by the keeper, which waits for nothing.
pub(crate) fn start(along: Vec<OwnedFd>) {
    let Some(parts) = Parts::new(along) else { return };
    match fork(Namespaces::NONE) {
        Ok(Side::Child) => leave(run(parts)),
        Ok(Side::Parent(_)) => {}
        Err(error) => {
            let why = format!("no process can be started: {}", reason(&error));
            Reply::refused(&why).send(&parts.conversation);
        }
    }
}

fn run(parts: Parts) -> i32 {
    let Parts { conversation, wish, folder, stdio: streams } = parts;
    let [stdin, stdout, stderr] = &streams;
    // The keeper's own descriptors would look like a keeper that still lives.
    let kept = [&conversation, &wish, &folder, stdin, stdout, stderr].map(AsRawFd::as_raw_fd);
    let started = close_all_but(&kept)
        .and_then(|()| Wish::from_file(wish))
        .map_err(|error| reason(&error))
        .and_then(|wish| Ok((begin(&wish, &folder, &streams)?, wish.background)));
    drop((folder, streams));
    match started {
        Ok(((program, signals), background)) => {
            Reply::Started.send(&conversation);
            Monitor { program, background, conversation: Some(conversation) }.serve(&signals)
        }
        Err(why) => {
            Reply::refused(&why).send(&conversation);
            1
        }
    }
}

/// Starts the program, and waits until it is one or could not become one.
fn begin(wish: &Wish, folder: &OwnedFd, streams: &[OwnedFd; 3]) -> Result<(Pid, OwnedFd), String> {
    let failed = |step: &'static str| move |error: io::Error| format!("{step}: {}", reason(&error));
    let held_back = HELD_BACK.map(Signal::as_raw);
    let signals = signals_descriptor(&held_back).map_err(failed("cannot wait for a program"))?;
    setsid().map_err(|errno| failed("cannot make a session")(errno.into()))?;
    if wish.terminal {
        let [_, terminal, _] = streams;
        ioctl_tiocsctty(terminal)
            .and_then(|()| fchown(terminal, Some(Uid::from_raw(wish.uid)), None))
            .map_err(|errno| failed("cannot use the terminal")(errno.into()))?;
    }
    let no_process = failed("no process can be started");
    let (mut problem, problems) = io::pipe().map_err(no_process)?;
    let program = match fork(Namespaces::NONE).map_err(no_process)? {
        Side::Child => {
            let why = become_it(wish, folder, streams);
            let _ = (&problems).write_all(why.as_bytes());
            leave(1)
        }
        Side::Parent(program) => program,
    };
    drop(problems);
    let mut why = String::new();
    // The other end closes when the program is executed.
    let _ = problem.read_to_string(&mut why);
    if why.is_empty() { Ok((program, signals)) } else { Err(why) }
}

/// Becomes the program. Comes back only with the reason why not.
fn become_it(wish: &Wish, folder: &OwnedFd, streams: &[OwnedFd; 3]) -> String {
    let [stdin, stdout, stderr] = streams;
    let placed = setpgid(None, None)
        // The signal that would stop a process of the background here is held back.
        .and_then(|()| if wish.terminal { tcsetpgrp(stdout, getpgrp()) } else { Ok(()) })
        .and_then(|()| dup2_stdin(stdin))
        .and_then(|()| dup2_stdout(stdout))
        .and_then(|()| dup2_stderr(stderr));
    if let Err(errno) = placed {
        return format!("cannot prepare a process: {}", reason(&errno.into()));
    }
    // As root, who may enter any folder, as the caller's may be closed to the new user.
    if let Err(errno) = fchdir(folder) {
        return format!("cannot enter the working folder: {}", reason(&errno.into()));
    }
    // A hint to the kernel, and not worth failing for.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT.to_string());
    umask(Mode::from_raw_mode(wish.mask));
    if let Err(error) = become_user(wish.uid, wish.gid, &wish.groups) {
        return format!("unable to become user {}: {}", wish.uid, reason(&error));
    }
    if let Some(workdir) = &wish.workdir
        && let Err(errno) = chdir(workdir.as_c_str())
    {
        let workdir = workdir.to_string_lossy();
        return format!("unable to change directory to {workdir}: {}", reason(&errno.into()));
    }
    let error = match unblock_signals().and_then(|()| close_on_execute_from(3)) {
        Ok(()) => execute_first(wish),
        Err(error) => error,
    };
    let program = wish.program.to_string_lossy();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => format!("{program}: command not found"),
        _ => format!("unable to execute {program}: {}", reason(&error)),
    }
}

/// Executes the first of the places where the program can be.
fn execute_first(wish: &Wish) -> io::Error {
    let path = wish.environment.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH="));
    let arguments = Strings::new(wish.arguments.clone());
    let environment = Strings::new(wish.environment.clone());
    let mut why = Errno::NOENT.into();
    for candidate in candidates(&wish.program, path.unwrap_or_default()) {
        let error = execute(&candidate, &arguments, &environment);
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => {}
            Some(Errno::ACCESS) => why = error,
            // A text without a first line that says what reads it: by custom, a shell does.
            Some(Errno::NOEXEC) => {
                let rest = wish.arguments.iter().skip(1).cloned();
                let words: Vec<CString> =
                    [c"sh".into(), candidate].into_iter().chain(rest).collect();
                return execute(c"/bin/sh", &Strings::new(words), &environment);
            }
            _ => return error,
        }
    }
    why
}

/// The words for an error, without its number.
fn reason(error: &io::Error) -> String {
    let words = error.to_string();
    words.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A monitor whose program runs.
struct Monitor {
    /// The program, leader of its process group.
    program: Pid,
    /// The program stays when the shim is gone.
    background: bool,
    /// Where the shim is; none when it is gone.
    conversation: Option<OwnedFd>,
}

impl Monitor {
    /// Waits for the program's end.
    fn serve(mut self, signals: &OwnedFd) -> i32 {
        loop {
            let conversation = self.conversation.as_ref().unwrap_or(signals);
            let mut polled = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(conversation.as_fd(), PollFlags::IN),
            ];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return 1,
            }
            let spoken_to = self.conversation.is_some() && !polled[1].revents().is_empty();
            // Only that something happened is of interest; what did is asked of the kernel.
            while let Ok(Some(_)) = next_signal(signals) {}
            if self.look() {
                return 0;
            }
            if spoken_to {
                self.listen();
            }
        }
    }

    /// Sees what became of the program; true when it ended.
    fn look(&self) -> bool {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        match waitpid(Some(self.program), options) {
            Ok(Some((_, status))) => self.report(status),
            Ok(None) | Err(Errno::INTR) => false,
            Err(_) => true,
        }
    }

    fn report(&self, status: WaitStatus) -> bool {
        let (reply, ended) = if let Some(code) = status.exit_status() {
            (Reply::Exited(code), true)
        } else if let Some(signal) = status.terminating_signal() {
            (Reply::Signalled(signal), true)
        } else {
            (Reply::Stopped, false)
        };
        if let Some(conversation) = &self.conversation {
            reply.send(conversation);
        }
        ended
    }

    /// Passes on the signals that the shim was sent.
    fn listen(&mut self) {
        let Some(conversation) = &self.conversation else { return };
        let mut numbers = [0; 64];
        match fdpass::receive(conversation, &mut numbers, RecvFlags::DONTWAIT) {
            Ok((length @ 1.., _)) => {
                let numbers = numbers.iter().take(length);
                for signal in numbers.filter_map(|number| Signal::from_named_raw((*number).into()))
                {
                    self.signal(signal);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => {
                self.conversation = None;
                if !self.background {
                    self.signal(Signal::HUP);
                    self.signal(Signal::TERM);
                    self.signal(Signal::CONT);
                }
            }
        }
    }

    /// The program is not reaped yet, so its number is still its own.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.program, signal);
    }
}
