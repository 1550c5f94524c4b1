//! What hostile code tries, against real sandboxes: each line of the list of attacks is a test
//! whose name says what it tries.
//!
//! - `copies`: what copies of a sandbox know of each other;
//! - `escape`: out of the sandbox, or into its guest;
//! - `files`: through names, links and kinds of files, by the API;
//! - `forks`: all processes, and more;
//! - `frames`: by a guest that is not ours any more, into the host;
//! - `kernel`: the kernel itself;
//! - `resources`: more than its share;
//! - `room`: more than the host has;
//! - `setup`: while a sandbox is put together;
//! - `woken`: all escapes again, after the attacker's sandbox was on the disk;
//! - `untried`: what cannot be tried yet, with the reasons.
//!
//! What images mean harm by is in `tests/templates.rs`.
//!
//! All of them run in an [`Arena`]: a daemon, the attacker's sandbox, and a neighbour who is asked
//! for something every 100 ms all the while. Whatever happens to the attacker, the neighbour is
//! served, and when both are deleted nothing is left. What an attack that worked has to say it
//! prints; so an attack that printed nothing failed, and [`Arena::attack`] wants to see the end of
//! the program besides.
//!
//! [`LINES`] are the lines of the list that are about escapes, files and resources; a test sees that
//! each has a test of its own. Those of `untried` cannot be tried, and say why. The lines about
//! the network are in `tests/network` and `crates/network/tests`, those about crashes in
//! `tests/crash`; N19 and N20 want the console and previews, N21 something that dials for a caller.

mod copies;
mod escape;
mod files;
mod forks;
mod frames;
mod kernel;
mod resources;
mod room;
mod setup;
mod untried;
mod woken;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// The lines of the list that are about escapes, files and resources.
const LINES: &str = "e1 e2 e4 e5 e7 e8 e10 e11 e13 e14 e16 e17 e19 e20 e22 e23 e25 e26 e28 e29 e31 \
                     e32 e34 f1 f2 f4 f5 f7 f8 f10 f11 f13 f14 r1 r2 r4 r5 r7 r8 r10 r11 r13 r14 \
                     r16";

/// Where their tests are.
const TESTS: [&str; 12] = [
    include_str!("attacks/copies.rs"),
    include_str!("attacks/escape.rs"),
    include_str!("attacks/files.rs"),
    include_str!("attacks/forks.rs"),
    include_str!("attacks/frames.rs"),
    include_str!("attacks/kernel.rs"),
    include_str!("attacks/resources.rs"),
    include_str!("attacks/room.rs"),
    include_str!("attacks/setup.rs"),
    include_str!("attacks/untried.rs"),
    include_str!("attacks/woken.rs"),
    include_str!("templates.rs"),
];

#[test]
fn every_line_of_the_list_has_a_test_that_says_what_it_tries() {
    let has_test = |line: &&str| {
        let name = format!("fn {line}_");
        TESTS.iter().any(|text| text.contains(&name))
    };
    let missing: Vec<&str> = LINES.split_whitespace().filter(|line| !has_test(line)).collect();
    assert_eq!(missing, [""; 0]);
}

/// What the neighbour may have to wait for at the most. Usual are 10 ms, on a machine that does
/// nothing else.
const PATIENCE: Duration = Duration::from_secs(5);

/// The seconds that sandboxes have here: the long forms of some attacks take half an hour.
const LONG_ENOUGH: u32 = 7200;

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
        Self::with(&json!({ "timeout": LONG_ENOUGH }))
    }

    /// An arena whose attacker has a sandbox like this.
    fn with(wish: &Value) -> Self {
        let daemon = Arc::new(Daemon::start());
        let attacker = daemon.create(&wish.to_string());
        let attacker = woken::changed_as_asked(&daemon, attacker);
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
        let id = daemon.create(&json!({ "timeout": LONG_ENOUGH }).to_string());
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
