//! The last steps of a process before it is the command.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{chdir, ioctl_tiocsctty, setsid, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use sys_linux::descriptors::place;
use sys_linux::namespace::leave;
use sys_linux::process::{Strings, become_user, close_on_execute_from, execute, unblock_signals};

use super::Report;
use crate::spawner::Command;

/// What a shell says when a program is not there.
const NOT_FOUND: i32 = 127;
/// What a shell says when a program is there and cannot be run.
const NOT_RUNNABLE: i32 = 126;

/// A command laid out for the kernel.
pub(super) struct Program {
    /// The paths at which the program may be, the first one that can be run wins.
    candidates: Vec<CString>,
    arguments: Strings,
    environment: Strings,
    workdir: CString,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    oom_score_adjustment: i32,
    terminal: bool,
}

impl Program {
    pub(super) fn new(command: Command) -> Self {
        let path =
            command.environment.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH="));
        let name = command.arguments.first().map_or(c"", |name| name.as_c_str());
        Self {
            candidates: candidates(name, path.unwrap_or_default()),
            arguments: Strings::new(command.arguments),
            environment: Strings::new(command.environment),
            workdir: command.workdir,
            uid: command.uid,
            gid: command.gid,
            groups: command.groups,
            oom_score_adjustment: command.oom_score_adjustment,
            terminal: command.terminal,
        }
    }

    /// Becomes the command. On failure says why, on standard error and to the guest.
    ///
    /// What it is given further lies at 3, 4, 5 then.
    pub(super) fn run(&self, stdio: [&OwnedFd; 3], further: &[OwnedFd], control: &OwnedFd) -> ! {
        // Where it would be in their way, the socket has moved by the time of a failure.
        let mut moved = None;
        let error = match self.become_it(stdio, further, control, &mut moved) {
            Err(error) => error,
            Ok(never) => match never {},
        };
        let errno = error.reason.raw_os_error().unwrap_or(0);
        let _ = Report::NotExecuted { errno }.send(moved.as_ref().unwrap_or(control));
        let _ = io::stderr().write_all(error.message().as_bytes());
        let found = errno != Errno::NOENT.raw_os_error() || error.step != "run";
        leave(if found { NOT_RUNNABLE } else { NOT_FOUND })
    }

    fn become_it(
        &self,
        [stdin, stdout, stderr]: [&OwnedFd; 3],
        further: &[OwnedFd],
        control: &OwnedFd,
        moved: &mut Option<OwnedFd>,
    ) -> Result<Never, Failure> {
        let name = self.arguments.as_slice().first().map_or(c"", |name| name.as_c_str());
        let failed = |step: &'static str, name: &CStr| {
            let name = name.to_string_lossy().into_owned();
            move |reason: io::Error| Failure { step, name, reason }
        };
        dup2_stdin(stdin)
            .and_then(|()| dup2_stdout(stdout))
            .and_then(|()| dup2_stderr(stderr))
            // A session of its own: no terminal of others to read from or be stopped by, and a
            // process group that a signal can be sent to without naming anybody else.
            .and_then(|()| setsid())
            .and_then(|_| if self.terminal { ioctl_tiocsctty(stdin) } else { Ok(()) })
            .map_err(|errno| failed("run", name)(errno.into()))?;
        // A hint to the kernel, and not worth failing for.
        let _ = fs::write("/proc/self/oom_score_adj", self.oom_score_adjustment.to_string());
        become_user(self.uid, self.gid, &self.groups).map_err(failed("change user for", name))?;
        umask(Mode::from_raw_mode(0o022));
        chdir(self.workdir.as_c_str())
            .map_err(|errno| failed("enter", &self.workdir)(errno.into()))?;
        unblock_signals().map_err(failed("run", name))?;
        if further.is_empty() {
            close_on_execute_from(3).map_err(failed("run", name))?;
        } else {
            *moved = Some(place(further, control).map_err(failed("run", name))?);
        }
        Err(failed("run", name)(self.execute()))
    }

    /// Tries each candidate as a shell does: what is not there is passed over, what is there and
    /// forbidden is remembered, anything else is final.
    fn execute(&self) -> io::Error {
        let mut reason = Errno::NOENT.into();
        for candidate in &self.candidates {
            let error = execute(candidate, &self.arguments, &self.environment);
            match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR) => {}
                Some(Errno::ACCESS) => reason = error,
                _ => return error,
            }
        }
        reason
    }
}

/// Where a program may be: itself when its name has a slash, else in each folder of the path.
pub(crate) fn candidates(name: &CStr, path: &[u8]) -> Vec<CString> {
    if name.is_empty() {
        return Vec::new();
    }
    if name.to_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    path.split(|byte| *byte == b':')
        .filter_map(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            CString::new([folder, b"/", name.to_bytes()].concat()).ok()
        })
        .collect()
}

/// A value that cannot exist: there is no return from a program that runs.
enum Never {}

/// The step that failed, and on what.
struct Failure {
    step: &'static str,
    name: String,
    reason: io::Error,
}

impl Failure {
    fn message(&self) -> String {
        let reason = self.reason.to_string();
        // The number is for programs; they get it through the control socket.
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("soma: cannot {} `{}`: {reason}\n", self.step, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_for_in_each_folder_of_the_path() {
        assert_eq!(
            candidates(c"ls", b"/usr/bin:/bin:"),
            [c"/usr/bin/ls".to_owned(), c"/bin/ls".to_owned(), c"./ls".to_owned()]
        );
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(candidates(c"./ls", b"/usr/bin"), [c"./ls".to_owned()]);
    }

    #[test]
    fn an_empty_name_is_nowhere() {
        assert!(candidates(c"", b"/usr/bin").is_empty());
    }

    #[test]
    fn a_failure_reads_as_a_sentence_without_numbers() {
        let reason = io::Error::from_raw_os_error(2);
        let failure = Failure { step: "run", name: "nothere".to_owned(), reason };
        assert_eq!(failure.message(), "soma: cannot run `nothere`: No such file or directory\n");
    }
}
