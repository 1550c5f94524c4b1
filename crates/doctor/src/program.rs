//! Finds other programs and runs them, each with a time limit.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// What is kept of either output of a program.
const LONGEST: usize = 64 * 1024;

/// What is told of one line of it.
const LONGEST_LINE: usize = 300;

/// What came of a program.
#[derive(Debug)]
pub(crate) enum Ran {
    /// It ended; with success or not.
    Ended { success: bool, stdout: String, stderr: String },
    /// It did not end in time and was killed.
    TookTooLong,
    /// It could not be started.
    NotStarted(io::Error),
}

impl Ran {
    /// The output of a program that succeeded, or why there is none, in a few words.
    pub(crate) fn output(self) -> Result<String, String> {
        match self {
            Self::Ended { success: true, stdout, .. } => Ok(stdout),
            Self::Ended { stdout, stderr, .. } => {
                let words = if stderr.trim().is_empty() { stdout } else { stderr };
                let line = words.lines().rev().map(str::trim).find(|line| !line.is_empty());
                let line = line.unwrap_or("it failed and said nothing");
                Err(line[..line.floor_char_boundary(LONGEST_LINE)].to_owned())
            }
            Self::TookTooLong => Err("it does not answer in time".to_owned()),
            Self::NotStarted(error) => Err(format!("it cannot be started: {error}")),
        }
    }
}

/// Where a program lies, by a search path; empty parts are skipped, so nobody's current folder
/// is searched.
pub(crate) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
}

/// A file that somebody may execute.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Runs a program to its end, or kills it with all that it started when its time is over.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Ran {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::NotStarted(error),
    };
    let heard = listen(&mut child, Instant::now() + limit);
    // Before it is waited for: until then its number cannot be another's.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let status = child.wait();
    match (heard, status) {
        (Ok(Some((stdout, stderr))), Ok(status)) => {
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            Ran::Ended { success: status.success(), stdout: text(stdout), stderr: text(stderr) }
        }
        (Ok(None), _) => Ran::TookTooLong,
        (Err(error), _) | (_, Err(error)) => Ran::NotStarted(error),
    }
}

/// Collects both outputs until the program ends; nothing when it takes too long.
fn listen(child: &mut Child, deadline: Instant) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| io::Error::other("a process without a number"))?;
    let ended = pidfd_open(number, PidfdFlags::empty())?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("a process without outputs"));
    };
    rustix::io::ioctl_fionbio(&stdout, true)?;
    rustix::io::ioctl_fionbio(&stderr, true)?;
    let (mut heard, mut warned) = (Vec::new(), Vec::new());
    let (mut talks, mut warns) = (true, true);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waited = vec![PollFd::new(&ended, PollFlags::IN)];
        if talks {
            waited.push(PollFd::new(&stdout, PollFlags::IN));
        }
        if warns {
            waited.push(PollFd::new(&stderr, PollFlags::IN));
        }
        match poll(&mut waited, Some(&left)) {
            Ok(0) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let over = waited[0].revents().contains(PollFlags::IN);
        talks = talks && drain(&stdout, &mut heard);
        warns = warns && drain(&stderr, &mut warned);
        if over {
            return Ok(Some((heard, warned)));
        }
    }
}

/// Reads what is there; false when nothing more will come. What is too long is thrown away.
fn drain(source: impl std::os::fd::AsFd, kept: &mut Vec<u8>) -> bool {
    let mut piece = [0; 4096];
    // Bounded, so that a program that never stops talking does not keep the clock from being
    // looked at.
    for _ in 0..64 {
        match rustix::io::read(&source, &mut piece) {
            Ok(0) => return false,
            Ok(count) => {
                let room = LONGEST.saturating_sub(kept.len());
                kept.extend_from_slice(&piece[..count.min(room)]);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shell(script: &str) -> Command {
        let mut command = sys_linux::command::command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_output_of_a_program_is_heard() {
        assert_eq!(run(&mut shell("echo yes"), 10 * SECOND).output().as_deref(), Ok("yes\n"));
    }

    #[test]
    fn a_failure_is_told_by_its_last_line() {
        let ran = run(&mut shell("echo first >&2; echo last >&2; echo >&2; exit 3"), 10 * SECOND);
        assert_eq!(ran.output().unwrap_err(), "last");
    }

    #[test]
    fn a_long_line_is_told_in_part() {
        let ran = run(&mut shell("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1"), 10 * SECOND);
        assert_eq!(ran.output().unwrap_err(), "x".repeat(LONGEST_LINE));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let begun = Instant::now();
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}; wait", note.display());
        let ran = run(&mut shell(&script), SECOND);
        assert!(matches!(ran, Ran::TookTooLong), "{ran:?}");
        assert!(begun.elapsed() < 10 * SECOND);
        let child: i32 = std::fs::read_to_string(note).unwrap().trim().parse().unwrap();
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        // It is killed, which takes the kernel a moment.
        while lives() {
            assert!(begun.elapsed() < 20 * SECOND, "the child lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_child_that_keeps_the_output_open_holds_nobody_up() {
        let begun = Instant::now();
        let ran = run(&mut shell("sleep 1000 & echo done"), 60 * SECOND);
        assert_eq!(ran.output().as_deref(), Ok("done\n"));
        assert!(begun.elapsed() < 30 * SECOND);
    }

    #[test]
    fn endless_output_is_bounded_in_memory_and_time() {
        let ran = run(&mut shell("yes; :"), SECOND);
        assert!(matches!(ran, Ran::TookTooLong), "{ran:?}");
    }

    #[test]
    fn a_search_path_is_searched_but_not_the_current_folder() {
        assert!(find("sh", OsStr::new("/nowhere:/usr/bin:/bin")).is_some());
        assert_eq!(find("sh", OsStr::new("")), None);
        assert_eq!(find("Cargo.toml", OsStr::new(".:")), None);
    }
}
