//! Limits that are changed while a sandbox runs.

use serde_json::json;

use super::Sandbox;
use crate::support::{is_root, needs_root};

/// What the sandbox's own cgroup says of its limits: bytes, processes and thousandths of
/// processors. In either version.
const LIMITS: &str = r"cd /sys/fs/cgroup
cat memory/workload/memory.limit_in_bytes 2>/dev/null || cat workload/memory.max
cat pids/workload/pids.max 2>/dev/null || cat workload/pids.max
cat cpu/workload/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 workload/cpu.max";

impl Sandbox {
    fn limits(&self) -> Vec<u64> {
        let shown = self.run(LIMITS);
        let words = shown["stdout"].as_str().unwrap().split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    }
}

#[test]
fn limits_change_at_once_and_outlive_engine_and_daemon() {
    let name = "limits_change_at_once_and_outlive_engine_and_daemon";
    if needs_root(name, "cgroup of its own") {
        return;
    }
    let mut sandbox = Sandbox::new(r#"{"memory": 128}"#);
    assert_eq!(sandbox.python("x = bytearray(200 << 20)")["reason"]["code"], "out_of_memory");
    let wish = json!({ "memory": 512, "vcpu": 0.5, "pids": 77 });
    let answer = sandbox.ask("PATCH", "/limits", &wish);
    assert_eq!(answer.status, 200, "{}", answer.json());
    let shown = answer.json();
    assert_eq!((&shown["memory"], &shown["pids"]), (&json!(512), &json!(77)));
    let wanted = [512 << 20, 77, 50_000];
    assert_eq!(sandbox.limits(), wanted);
    assert_eq!(sandbox.python("x = bytearray(200 << 20)")["exit_code"], 0);
    // What was not named stays, what lies in memory grew along.
    let size = sandbox.run("echo $(df -m --output=size /dev/shm | tail -1)");
    assert_eq!(size["stdout"], "256\n");

    sandbox.daemon.kill();
    sandbox.daemon.home.kill_engine();
    sandbox.daemon.restart();
    let shown = sandbox.ask("GET", "", &json!({})).json();
    assert_eq!((&shown["memory"], &shown["vcpu"]), (&json!(512), &json!(0.5)));
    assert_eq!(sandbox.limits(), wanted);
    // The engine knows too: it changes from there on.
    let answer = sandbox.ask("PATCH", "/limits", &json!({ "pids": 60 }));
    assert_eq!(answer.status, 200, "{}", answer.json());
    assert_eq!(sandbox.limits(), [512 << 20, 60, 50_000]);
    let events = sandbox.ask("GET", "/events", &json!({})).json().to_string();
    assert!(events.contains("limits_set"), "{events}");
}

#[test]
fn memory_that_is_used_is_not_taken_away() {
    if needs_root("memory_that_is_used_is_not_taken_away", "limit of memory") {
        return;
    }
    let sandbox = Sandbox::new(r#"{"memory": 512}"#);
    let held = sandbox.run(
        "python3 -c 'import time; x = bytearray(b\"x\") * (200 << 20); open(\"/tmp/held\", \"w\"); \
         time.sleep(60)' > /dev/null 2>&1 & until test -e /tmp/held; do :; done",
    );
    assert_eq!(held["exit_code"], 0);
    let answer = sandbox.ask("PATCH", "/limits", &json!({ "memory": 100, "pids": 50 }));
    assert_eq!(answer.status, 409);
    let words = answer.message();
    assert!(words.contains("MiB of memory now") && words.contains("100 MiB"), "{words}");
    assert_eq!(sandbox.limits()[..2], [512 << 20, 512], "some of it was changed");
    assert_eq!(sandbox.run("pgrep -c python3")["stdout"], "1\n");
}

#[test]
fn what_cannot_change_is_refused_with_the_reason() {
    let sandbox = Sandbox::new("{}");
    for (wish, status, words) in [
        (json!({ "disk": 20_480 }), 400, "the size of its disk"),
        (json!({ "inodes": 5000 }), 400, "inodes"),
        (json!({ "open_files": 5000 }), 400, "open files"),
        (json!({ "memory": 1 }), 400, "the least is 16 MiB"),
        (json!({ "memory": 70_000 }), 400, "max_size"),
        (json!({ "timeout": 5 }), 400, "timeout"),
        (json!({ "vcpu": "two" }), 400, "vcpu"),
    ] {
        let answer = sandbox.ask("PATCH", "/limits", &wish);
        assert_eq!(answer.status, status, "{wish}: {}", answer.json());
        assert!(answer.message().contains(words), "{wish}: {}", answer.message());
    }
    let answer =
        sandbox.daemon.ask("PATCH", "/v1/sandbox/nobody/limits", &json!({"pids": 9}).to_string());
    assert_eq!(answer.status, 404);
    if !is_root() {
        // Where nothing holds a limit, another one is no better.
        let answer = sandbox.ask("PATCH", "/limits", &json!({ "memory": 1024 }));
        assert_eq!(answer.status, 501, "{}", answer.json());
    }
}

#[test]
fn a_limit_can_be_typed() {
    if needs_root("a_limit_can_be_typed", "cgroup of its own") {
        return;
    }
    let sandbox = Sandbox::new("{}");
    let soma = |words: &[&str]| sandbox.daemon.home.soma(words).output().unwrap();
    let output = soma(&["limit", &sandbox.id, "--memory", "1g", "--cpus", "0.5"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(sandbox.limits(), [1 << 30, 512, 50_000]);
    let output = soma(&["limit", &sandbox.id]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let output = soma(&["limit", "nobody", "--pids", "9"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
