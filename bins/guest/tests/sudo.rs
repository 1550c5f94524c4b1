//! `sudo` with the real guest and without a sandbox: who keeps what it starts, and who may.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use harness::{Finished, Guest, is_alive, wait_until};
use serde_json::{Value, json};

/// The words that call `sudo` of this guest.
fn sudo(guest: &Guest) -> String {
    let socket = guest.file("socket");
    format!("{} sudo {}", env!("CARGO_BIN_EXE_soma-guest"), socket.display())
}

/// Runs a script in which `$sudo` is `sudo`.
fn shell(guest: &Guest, script: &str) -> Finished {
    guest.shell(&format!("sudo='{}'\n{script}", sudo(guest)))
}

fn tell(guest: &Guest, message: &Value) {
    let body = message.to_string();
    let mut stream = guest.connect();
    let head = "POST /init HTTP/1.1\r\nhost: guest\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[test]
fn a_program_runs_as_whom_it_should_and_its_code_is_passed_on() {
    let guest = Guest::start();
    let done = shell(
        &guest,
        "$sudo -u '#4321' -g '#4322' id -u; $sudo -g '#77' id -g; $sudo sh -c 'exit 5'",
    );
    assert_eq!((done.stdout(), done.stderr(), done.code()), ("4321\n77\n", "", 5));
}

#[test]
fn the_keeper_of_the_caller_keeps_what_was_started() {
    let guest = Guest::start();
    let mut events = guest.begin(
        &["sh", "-c", &format!("{} -b sh -c 'echo $$; setsid sleep 600'; sleep 600", sudo(&guest))],
        &[],
    );
    let pid = events.pid();
    let harness::Event::Stdout(started) = events.next() else { panic!("nothing was started") };
    let started = String::from_utf8(started).unwrap();
    let selector = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert!(is_alive(&started));
    assert_eq!(guest.call("SendSignal", &selector).0, 200);
    wait_until("what sudo started is gone", || !is_alive(&started));
}

#[test]
fn what_a_command_left_behind_is_still_kept_and_may_ask() {
    let guest = Guest::start();
    let (gate, answer) = (guest.file("gate"), guest.file("answer"));
    let left = format!(
        "until [ -e {} ]; do sleep 0.02; done; $sudo id -u > {}",
        gate.display(),
        answer.display()
    );
    let left = left.replace("$sudo", &sudo(&guest));
    let done =
        shell(&guest, &format!("setsid sh -c '{left}' </dev/null >/dev/null 2>&1 & echo gone"));
    assert_eq!(done.stdout(), "gone\n");
    // The command is over, its pipes are closed, and many others have come since.
    for _ in 0..20 {
        assert_eq!(guest.shell("true").code(), 0);
    }
    std::fs::write(&gate, "").unwrap();
    wait_until("the daemon was answered", || {
        std::fs::read_to_string(&answer).is_ok_and(|text| text == "0\n")
    });
}

#[test]
fn the_guest_says_whether_it_is_allowed_and_may_change_its_mind() {
    let guest = Guest::start();
    tell(&guest, &json!({ "sudo": false }));
    let done = shell(&guest, "$sudo true");
    assert_eq!(done.code(), 1);
    assert_eq!(done.stderr(), "sudo: this sandbox does not allow it (it was made without sudo)\n");
    // What says nothing of it changes nothing.
    tell(&guest, &json!({ "defaultUser": "root" }));
    assert_eq!(shell(&guest, "$sudo true").code(), 1);
    tell(&guest, &json!({ "sudo": true }));
    assert_eq!(shell(&guest, "$sudo true").code(), 0);
}

#[test]
fn who_is_below_no_command_is_refused() {
    let guest = Guest::start();
    let output = sys_linux::command::command(env!("CARGO_BIN_EXE_soma-guest"))
        .arg("sudo")
        .arg(guest.file("socket"))
        .args(["id", "-u"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "sudo: it was not called by a command of this sandbox\n");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
}

#[test]
fn without_a_guest_it_says_so() {
    let output = sys_linux::command::command(env!("CARGO_BIN_EXE_soma-guest"))
        .args(["sudo", "/nobody/listens/here", "id"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("sudo: the sandbox's guest cannot be asked"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn arguments_and_environment_may_be_large() {
    let guest = Guest::start();
    let script = "big=$(head -c 100000 /dev/zero | tr '\\0' x); export LC_BIG=$big
        $sudo sh -c 'echo ${#1} ${#LC_BIG}' sh $big; $sudo sh -c 'echo $#' sh $(seq 100000)";
    assert_eq!(shell(&guest, script).stdout(), "100000 100000\n100000\n");
}

#[test]
fn guests_forget_keepers_that_are_gone() {
    let guest = Guest::start();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().count();
    shell(&guest, "$sudo true");
    std::thread::sleep(Duration::from_millis(100));
    let before = descriptors();
    for _ in 0..50 {
        assert_eq!(shell(&guest, "$sudo true").code(), 0);
    }
    wait_until("the descriptors of ended commands are closed", || descriptors() <= before + 2);
}
