//! What lasts: sandboxes that end and are started again, through the deaths of everything that
//! looks after them.

mod clock;
mod ends;
mod golden;
mod model;
mod renewed;
mod repeated;
mod terminal;
mod upgrade;

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::support::eventually;

/// One of the processes that a manifest names.
fn process(daemon: &Daemon, id: &str, who: &str) -> Pid {
    let manifest = daemon.home.manifest(&id.parse().unwrap());
    let pid = manifest[who]["pid"].as_i64().unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Its process 1, as the host counts.
fn process_id(daemon: &Daemon, id: &str) -> Pid {
    process(daemon, id, "first")
}

/// Kills one of them, and waits until the daemon has noticed.
#[track_caller]
fn kill(daemon: &Daemon, id: &str, who: &str) {
    kill_process(process(daemon, id, who), Signal::KILL).unwrap();
    eventually("nobody noticed", || daemon.state(id) == "error");
}

/// Starts a sandbox again.
#[track_caller]
fn start(daemon: &Daemon, id: &str) {
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/start"), "");
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(answer.json()["state"], "running");
}

#[track_caller]
fn stop(daemon: &Daemon, id: &str) {
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/stop"), "");
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(answer.json()["state"], "stopped");
}

#[track_caller]
fn delete(daemon: &Daemon, id: &str) {
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
}

fn reason(daemon: &Daemon, id: &str) -> String {
    let seen = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
    seen["reason"].as_str().unwrap_or_default().to_owned()
}
