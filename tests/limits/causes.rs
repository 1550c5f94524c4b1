//! A command that failed is told why.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use super::Sandbox;
use crate::support::needs_root;

const SMALL: &str = r#"{"memory": 128, "pids": 40, "disk": 64, "inodes": 2000}"#;

#[test]
fn what_overruns_its_memory_dies_and_the_sandbox_stays() {
    if needs_root("what_overruns_its_memory_dies_and_the_sandbox_stays", "limit of memory") {
        return;
    }
    let sandbox = Sandbox::new(SMALL);
    let ended = sandbox.python("x = bytearray(400 << 20)");
    assert_eq!(ended["exit_code"], 137, "{ended}");
    sandbox.assert_reason(&ended, "out_of_memory");
    // A child was the victim, and the command has a code of its own.
    let ended = sandbox.run("python3 -c 'x = bytearray(400 << 20)'; exit 3");
    assert_eq!(ended["exit_code"], 3, "{ended}");
    sandbox.assert_reason(&ended, "out_of_memory");
    // Whoever did not mind it succeeded.
    let ended = sandbox.run("python3 -c 'x = bytearray(400 << 20)'; exit 0");
    assert_eq!(ended["reason"], Value::Null, "{ended}");
    // And it is not blamed on who comes later.
    assert_eq!(sandbox.run("exit 3")["reason"], Value::Null);
}

#[test]
fn memory_of_every_kind_counts_and_the_guest_survives() {
    if needs_root("memory_of_every_kind_counts_and_the_guest_survives", "limit of memory") {
        return;
    }
    let sandbox = Sandbox::new(SMALL);
    // A file in memory, without a name and with one that stays.
    let ended = sandbox.python(
        "import os; f = os.memfd_create(\"m\")\nfor _ in range(400): os.write(f, bytes(1 << 20))",
    );
    sandbox.assert_reason(&ended, "out_of_memory");
    let ended = sandbox.run("head -c 400M /dev/zero > /dev/shm/large");
    sandbox.assert_reason(&ended, "disk_full");
    assert!(ended["reason"]["message"].as_str().unwrap().contains("/dev/shm"), "{ended}");
    sandbox.run("rm /dev/shm/large");
    // Memory that outlives its process.
    let ended = sandbox.python(
        "import ctypes; c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_void_p
at = c.shmat(c.shmget(0, ctypes.c_size_t(400 << 20), 0o1600), None, 0)
ctypes.memset(at, 1, 400 << 20)",
    );
    sandbox.assert_reason(&ended, "out_of_memory");
    for _ in 0..5 {
        sandbox.assert_alive();
    }
    sandbox.run("ipcs -m | awk \"/^0x/ {print \\$2}\" | xargs -r -n1 ipcrm -m");
    // Pipes and sockets that nobody reads.
    let ended = sandbox.python(
        "import os, socket\nheld = []
for _ in range(240):
    r, w = os.pipe(); os.set_blocking(w, False); held += [r, w]
    a, b = socket.socketpair(); a.setblocking(False); held += [a, b]
    for send in (lambda: os.write(w, bytes(65536)), lambda: a.send(bytes(65536))):
        try:
            while True: send()
        except BlockingIOError: pass
print(len(held))",
    );
    assert!(ended["exit_code"] == 0 || ended["reason"]["code"] == "out_of_memory", "{ended}");
    sandbox.assert_alive();
    // What is cached of files is given back and not counted.
    let ended =
        sandbox.run("for n in 1 2 3 4; do head -c 40M /dev/zero > f; cat f > /dev/null; done");
    assert_eq!(ended["exit_code"], 0, "{ended}");
}

#[test]
fn a_signal_and_a_fault_are_named() {
    let sandbox = Sandbox::new("{}");
    let fault = "import ctypes; ctypes.string_at(0)";
    let ended = sandbox.python(fault);
    assert_eq!(ended["exit_code"], 139, "{ended}");
    sandbox.assert_reason(&ended, "segmentation_fault");
    // A shell tells of its child by its code.
    let ended = sandbox.run(&format!("python3 -c '{fault}'; exit $?"));
    assert_eq!(ended["exit_code"], 139, "{ended}");
    sandbox.assert_reason(&ended, "segmentation_fault");
    let ended = sandbox.run("kill -USR1 $$");
    sandbox.assert_reason(&ended, "signal");
    assert!(ended["reason"]["message"].as_str().unwrap().contains("SIGUSR1"), "{ended}");
    let ended = sandbox.run_for("sleep 60", 1);
    assert_eq!((&ended["exit_code"], &ended["timed_out"]), (&json!(124), &json!(true)));
    sandbox.assert_reason(&ended, "timeout");
    assert_eq!(sandbox.run("exit 1")["reason"], Value::Null);
}

#[test]
fn a_full_disk_is_said_whatever_is_written_where() {
    if needs_root("a_full_disk_is_said_whatever_is_written_where", "disk of its own") {
        return;
    }
    let sandbox = Sandbox::new(SMALL);
    for place in ["/tmp", "/home/user", "/var/tmp"] {
        let ended = sandbox.run(&format!("head -c 100M /dev/zero > {place}/large"));
        assert!(ended["stderr"].as_str().unwrap().contains("No space left"), "{ended}");
        sandbox.assert_reason(&ended, "disk_full");
        sandbox.run(&format!("rm {place}/large"));
    }
    let ended = sandbox.run("for n in $(seq 3000); do : > /tmp/f$n || exit 1; done");
    assert!(ended["stderr"].as_str().unwrap().contains("No space left"), "{ended}");
    sandbox.assert_reason(&ended, "disk_full");
    assert!(ended["reason"]["message"].as_str().unwrap().contains("another file"), "{ended}");
    // Most of them could be made.
    let made: u32 =
        sandbox.run("ls /tmp | wc -l")["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!((1000..2100).contains(&made), "{made}");
    let ended = sandbox.run("rm /tmp/f*; : > /tmp/again");
    assert_eq!(ended["exit_code"], 0, "{ended}");
}

#[test]
fn who_is_at_the_limit_of_processes_is_told() {
    if needs_root("who_is_at_the_limit_of_processes_is_told", "cgroup that counts them") {
        return;
    }
    let sandbox = Sandbox::new(SMALL);
    let ended = sandbox.python(
        "import os, sys
children = []
try:
    for _ in range(100):
        children.append(os.fork())
        if children[-1] == 0: os.execvp(\"sleep\", [\"sleep\", \"60\"])
except OSError:
    for child in children: os.kill(child, 9); os.waitpid(child, 0)
    sys.exit(7)",
    );
    assert_eq!(ended["exit_code"], 7, "{ended}");
    sandbox.assert_reason(&ended, "process_limit");
}

#[test]
fn a_stream_ends_with_the_reason() {
    let sandbox = Sandbox::new("{}");
    let body = json!({ "command": "kill -ABRT $$" }).to_string();
    let mut stream = sandbox.daemon.connect();
    let (id, key) = (&sandbox.id, sandbox.daemon.key());
    write!(
        stream,
        "POST /v1/sandbox/{id}/process/stream HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut events = BufReader::new(stream).lines().map_while(Result::ok);
    let last = events.find(|line| line.contains(r#""type":"exit""#)).unwrap();
    let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!((&event["code"], &event["reason"]["code"]), (&json!(134), &json!("signal")));
    assert!(event["reason"]["message"].as_str().unwrap().contains("SIGABRT"), "{event}");
}

#[test]
fn a_run_says_why_on_standard_error() {
    if needs_root("a_run_says_why_on_standard_error", "limit of memory") {
        return;
    }
    let home = crate::support::Home::new();
    let output = home.run(&["--memory", "64m", "x = bytearray(400 << 20)"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(137), "{words}");
    assert!(words.contains("ran out of memory") && words.contains("--memory"), "{words}");
    home.assert_nothing_left();
}
