//! What a sandbox may use, what happens when it wants more, and what is said about it.
//!
//! - `causes`: a command that failed is told why;
//! - `change`: limits that are changed while a sandbox runs;
//! - `host`: what is the host's and the neighbours' stays theirs;
//! - `trees`: nothing outlives its time.

mod causes;
mod change;
mod host;
mod trees;

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};

/// One sandbox of a daemon of its own.
struct Sandbox {
    daemon: Daemon,
    id: String,
}

impl Sandbox {
    fn new(wish: &str) -> Self {
        let daemon = Daemon::start();
        let id = daemon.create(wish);
        Self { daemon, id }
    }

    fn ask(&self, method: &str, rest: &str, body: &Value) -> Answer {
        self.daemon.ask(method, &format!("/v1/sandbox/{}{rest}", self.id), &body.to_string())
    }

    /// Runs a command, which may take so many seconds, and returns the whole answer.
    #[track_caller]
    fn run_for(&self, command: &str, seconds: u64) -> Value {
        let body = json!({ "command": command, "timeout": seconds });
        let answer = self.ask("POST", "/process/execute", &body);
        assert_eq!(answer.status, 200, "{command}: {}", answer.json());
        answer.json()
    }

    #[track_caller]
    fn run(&self, command: &str) -> Value {
        self.run_for(command, 30)
    }

    /// Runs Python code.
    #[track_caller]
    fn python(&self, code: &str) -> Value {
        self.run(&format!("exec python3 -c '{code}'"))
    }

    /// Checks that a command failed for this reason, and that it did no harm beyond.
    #[track_caller]
    fn assert_reason(&self, ended: &Value, code: &str) {
        assert_eq!(ended["reason"]["code"], code, "{ended}");
        for words in ["message", "hint"] {
            assert!(
                ended["reason"][words].as_str().is_some_and(|words| words.len() > 10),
                "{ended}"
            );
        }
        self.assert_alive();
    }

    #[track_caller]
    fn assert_alive(&self) {
        let after = self.run("echo alive");
        assert_eq!((&after["stdout"], &after["reason"]), (&json!("alive\n"), &Value::Null));
        assert_eq!(self.daemon.state(&self.id), "running");
    }
}
