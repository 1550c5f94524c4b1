//! What hostile code tries, against real sandboxes: each line of the list of attacks is a test
//! whose name says what it tries.
//!
//! - `escape`: out of the sandbox, or into its guest;
//! - `files`: through names, links and kinds of files, by the API;
//! - `forks`: all processes, and more;
//! - `resources`: more than its share.
//!
//! All of them run in an [`Arena`]: a daemon, the attacker's sandbox, and a neighbour who is asked
//! for something every 100 ms all the while. Whatever happens to the attacker, the neighbour is
//! served, and when both are deleted nothing is left. What an attack that worked has to say it
//! prints; so an attack that printed nothing failed, and [`Arena::attack`] wants to see the end of
//! the program besides.
//!
//! Lines without a test yet, because what they attack is not there: E14 (volumes), E28, E29 and
//! E34 (snapshots), F13, N19 and N20 (the console and previews), N21 (nothing dials for a caller but
//! the egress program). E31, suites of the kernel's own, is not done: LTP is no package of Debian's,
//! and such a suite wants a kernel that may fall. The other lines N are in `tests/network` and
//! `crates/network/tests`.

mod escape;
mod files;
mod forks;
mod resources;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// What the neighbour may have to wait for at the most. Usual are 10 ms, on a machine that does
/// nothing else.
const PATIENCE: Duration = Duration::from_secs(5);

/// What every attack begins with.
const PRELUDE: &str = r"
import os, sys, errno, ctypes, socket, struct, fcntl, time, signal, stat
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    'The answer of a system call, or the negative of its error.'
    answer = libc.syscall(number, *arguments)
    return -ctypes.get_errno() if answer < 0 else answer
def refused(name, act, *wanted):
    'Says so when something works, or fails for another reason than those wanted.'
    try:
        print(name, 'worked:', act())
    except OSError as problem:
        if wanted and problem.errno not in wanted: print(name, 'failed with', problem)
";

/// Where an attack happens.
struct Arena {
    daemon: Arc<Daemon>,
    attacker: String,
    neighbour: Option<Neighbour>,
}

struct Neighbour {
    id: String,
    over: Arc<AtomicBool>,
    polls: JoinHandle<Vec<Duration>>,
}

impl Arena {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    /// An arena whose attacker has a sandbox like this.
    fn with(wish: &Value) -> Self {
        let daemon = Arc::new(Daemon::start());
        let attacker = daemon.create(&wish.to_string());
        let neighbour = Some(Neighbour::of(&daemon));
        Self { daemon, attacker, neighbour }
    }

    /// Runs a Python program as a user of the attacker's sandbox: it ends well and prints nothing.
    #[track_caller]
    fn attack(&self, user: &str, code: &str) {
        let done = self.python(user, code);
        assert_eq!(done["exit_code"], 0, "as {user}: {done}");
        assert_eq!(done["stdout"], "the end\n", "as {user}: {done}");
    }

    /// What a Python program did there.
    #[track_caller]
    fn python(&self, user: &str, code: &str) -> Value {
        let program = format!("{PRELUDE}{code}\nprint('the end')\n");
        self.execute(
            &json!({ "command": "python3 -", "input": program, "user": user, "timeout": 60 }),
        )
    }

    /// What a command did there.
    #[track_caller]
    fn execute(&self, wish: &Value) -> Value {
        let answer = self.ask("POST", "process/execute", wish);
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let path = format!("/v1/sandbox/{}/{path}", self.attacker);
        self.daemon.ask(method, &path, &body.to_string())
    }

    /// The neighbour was served all the while, and nothing is left of either.
    #[track_caller]
    fn close(mut self) {
        if let Some(neighbour) = self.neighbour.take() {
            neighbour.assert_served(&self.daemon);
        }
        let path = format!("/v1/sandbox/{}", self.attacker);
        let status = self.daemon.ask("DELETE", &path, "").status;
        assert!(matches!(status, 204 | 404), "{status}");
        let daemon = Arc::clone(&self.daemon);
        drop(self);
        Arc::into_inner(daemon).expect("nobody else has the daemon").close();
    }
}

impl Neighbour {
    fn of(daemon: &Arc<Daemon>) -> Self {
        let id = daemon.create("{}");
        let over = Arc::new(AtomicBool::new(false));
        let polls = std::thread::spawn({
            let (id, over, daemon) = (id.clone(), Arc::clone(&over), Arc::clone(daemon));
            move || {
                let mut polls = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    assert_eq!(daemon.execute(&id, "echo sings"), "sings\n");
                    polls.push(begun.elapsed());
                    std::thread::sleep(Duration::from_millis(100));
                }
                polls
            }
        });
        Self { id, over, polls }
    }

    #[track_caller]
    fn assert_served(self, daemon: &Daemon) {
        self.over.store(true, Ordering::Relaxed);
        let polls = self.polls.join().unwrap();
        let longest = polls.iter().max().copied().unwrap_or_default();
        assert!(longest < PATIENCE, "the neighbour waited for {longest:?}");
        let path = format!("/v1/sandbox/{}", self.id);
        assert_eq!(daemon.ask("DELETE", &path, "").status, 204);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A test that failed: the thread holds the daemon.
        if let Some(neighbour) = self.neighbour.take() {
            neighbour.over.store(true, Ordering::Relaxed);
            let _ = neighbour.polls.join();
        }
    }
}
