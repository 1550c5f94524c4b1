//! Tries something in a process of its own, with a time limit.
//!
//! What is tried changes the process that tries it (its namespaces, its filter of system
//! calls), or may not return at all. So it happens in a child that says in one message what
//! came of it. The child leads a session: whatever it starts is killed with it.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setsid, waitpid,
};
use serde::{Deserialize, Serialize};
use sys_linux::namespace::{Namespaces, Side, fork, leave};

/// How long a try of the kernel alone may take: each was seen to take a few milliseconds.
pub(crate) const QUICK: Duration = Duration::from_secs(5);

/// The longest message of a child; it speaks for itself, so more is an error of ours.
const LONGEST: u64 = 64 * 1024;

/// How long a killed process may take to be gone.
const DYING: Duration = Duration::from_secs(2);

/// Why something did not work: the step, and what the kernel or somebody else said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Completes the sentence "could not ...".
    pub(crate) step: String,
    words: String,
    errno: Option<i32>,
}

impl Refusal {
    pub(crate) fn new(step: impl Into<String>, words: impl Into<String>) -> Self {
        Self { step: step.into(), words: words.into(), errno: None }
    }

    /// The kernel's number, where it was the kernel that refused.
    pub(crate) fn errno(&self) -> Option<Errno> {
        self.errno.map(Errno::from_raw_os_error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "could not {}: {}", self.step, self.words)
    }
}

/// Names the step in which an error came.
pub(crate) trait Step<T> {
    fn step(self, step: &str) -> Result<T, Refusal>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, Refusal> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            let errno = Errno::from_io_error(&error).map(Errno::raw_os_error);
            // `Errno` has the kernel's words without the number that Rust adds.
            let words = match Errno::from_io_error(&error) {
                Some(errno) => in_words(errno),
                None => error.to_string(),
            };
            Refusal { step: step.to_owned(), words, errno }
        })
    }
}

/// The words of an error, without the number that Rust puts behind them.
pub(crate) fn in_words(errno: Errno) -> String {
    let words = io::Error::from(errno).to_string();
    let plain = words.split(" (os error").next().unwrap_or(&words);
    plain.to_lowercase()
}

/// Tries it in a child of this process, which must have a single thread.
pub(crate) fn attempt<T: Serialize + for<'text> Deserialize<'text>>(
    limit: Duration,
    tried: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    const START: &str = "start a process to try it in";
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).step(START)?;
    let child = match fork(Namespaces::NONE).step(START)? {
        Side::Parent(child) => child,
        Side::Child => {
            // Whatever happens, the child must not go on with its parent's work.
            let _leaves = LeavesWhenDropped;
            drop(ours);
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            let _ = setsid();
            let message = serde_json::to_vec(&tried()).unwrap_or_default();
            let _ = std::fs::File::from(theirs).write_all(&message);
            leave(0)
        }
    };
    drop(theirs);
    let deadline = Instant::now() + limit;
    let mut message = Vec::new();
    let heard = read_until(&ours, deadline, &mut message);
    end(child);
    if !heard {
        let words = format!("no answer within {} s", limit.as_secs());
        return Err(Refusal::new("try it", words));
    }
    serde_json::from_slice(&message)
        .unwrap_or_else(|_| Err(Refusal::new("try it", "the process that tried it died")))
}

/// Forks into namespaces, does something there, and says what came of it. For use in an
/// attempt: the time limit is that of the attempt.
pub(crate) fn within<T: Serialize + for<'text> Deserialize<'text>>(
    namespaces: Namespaces,
    tried: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    const MAKE: &str = "make the namespaces";
    let (mut ours, theirs) = {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).step(MAKE)?;
        (std::fs::File::from(ours), std::fs::File::from(theirs))
    };
    let child = match fork(namespaces).step(MAKE)? {
        Side::Parent(child) => child,
        Side::Child => {
            let _leaves = LeavesWhenDropped;
            drop(ours);
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            let message = serde_json::to_vec(&tried()).unwrap_or_default();
            let mut theirs = theirs;
            let _ = theirs.write_all(&message);
            leave(0)
        }
    };
    drop(theirs);
    let mut message = Vec::new();
    let _ = (&mut ours).take(LONGEST).read_to_end(&mut message);
    let _ = kill_process(child, Signal::KILL);
    let _ = waitpid(Some(child), WaitOptions::empty());
    serde_json::from_slice(&message)
        .unwrap_or_else(|_| Err(Refusal::new("try it", "the process that tried it died")))
}

/// Ends a child's copy of this program also when it panics.
struct LeavesWhenDropped;

impl Drop for LeavesWhenDropped {
    fn drop(&mut self) {
        leave(70)
    }
}

/// Reads until the other side is closed; false when that took too long.
fn read_until(source: impl AsFd, deadline: Instant, message: &mut Vec<u8>) -> bool {
    let mut piece = [0; 4096];
    loop {
        if !wait_for(&source, deadline) {
            return false;
        }
        match rustix::io::read(&source, &mut piece) {
            Ok(0) => return true,
            Ok(count) if message.len() as u64 + count as u64 > LONGEST => return true,
            Ok(count) => message.extend_from_slice(&piece[..count]),
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// Waits until there is something to read; false when the time is over.
pub(crate) fn wait_for(source: impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else { return false };
        match poll(&mut [PollFd::new(&source, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            _ => return true,
        }
    }
}

/// Kills a child and all of its session, and takes leave of it. One that the kernel holds back
/// is left to the kernel.
fn end(child: Pid) {
    let watched = pidfd_open(child, PidfdFlags::empty());
    let _ = kill_process_group(child, Signal::KILL);
    let _ = kill_process(child, Signal::KILL);
    if let Ok(watched) = watched {
        wait_for(&watched, Instant::now() + DYING);
    }
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_sentence_without_numbers() {
        let refused: Result<(), Refusal> = Err(Errno::PERM).step("mount an overlay");
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.to_string(), "could not mount an overlay: operation not permitted");
        assert_eq!(refusal.errno(), Some(Errno::PERM));
    }

    #[test]
    fn a_process_with_several_threads_is_told_that_it_cannot_try() {
        // The test harness has several, so the attempt is refused and not made.
        let refused = attempt(QUICK, || Ok(String::new())).unwrap_err();
        assert!(refused.to_string().contains("several threads"), "{refused}");
    }
}
