//! Nothing outlives its time.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Sandbox;
use crate::support::is_root;

/// How long after its time a tree may be there.
const GRACE: Duration = Duration::from_millis(500);

/// How late everything else may be: a machine that runs tests is busy.
const ELSE: Duration = Duration::from_secs(2);

#[test]
fn a_timeout_ends_all_that_a_command_started() {
    let sandbox = Sandbox::new("{}");
    let hiding = "trap '' TERM HUP INT
setsid sh -c 'trap \"\" TERM; while :; do sleep 771; done' &
(setsid sleep 772 &)
nohup sleep 773 > /dev/null 2>&1 &
sleep 774 & kill -STOP $!
sh -c '(sleep 775 &) &'
while :; do sleep 776; done";
    let begun = Instant::now();
    let ended = sandbox.run_for(hiding, 1);
    let took = begun.elapsed();
    assert_eq!(ended["reason"]["code"], "timeout", "{ended}");
    assert!(took < Duration::from_secs(1) + GRACE + ELSE, "{took:?}");
    let left = sandbox.run("ps ax | grep '[s]leep 77' || echo none");
    assert_eq!(left["stdout"], "none\n");
}

#[test]
fn a_fork_bomb_is_contained_and_ends_at_its_time() {
    let pids = if is_root() { 512 } else { 200 };
    let sandbox = Sandbox::new(&json!({ "pids": pids }).to_string());
    let bomb = "exec python3 -c 'import os
while True:
    try: os.fork()
    except OSError: pass'";
    let neighbour = sandbox.daemon.create("{}");
    let begun = Instant::now();
    let (ended, meanwhile) = std::thread::scope(|scope| {
        let bombed = scope.spawn(|| sandbox.run_for(bomb, 3));
        std::thread::sleep(Duration::from_millis(1500));
        // The API answers, and others do not notice.
        let listed = sandbox.ask("GET", "/processes", &json!({}));
        let seen = sandbox.daemon.execute(&neighbour, "echo undisturbed");
        (bombed.join().unwrap(), (listed.json()["items"].as_array().unwrap().len(), seen))
    });
    let took = begun.elapsed();
    assert_eq!(meanwhile, (1, "undisturbed\n".to_owned()));
    assert_eq!(ended["timed_out"], true, "{ended}");
    assert!(took < Duration::from_secs(3) + GRACE + ELSE, "{took:?}");
    assert_eq!(sandbox.run("pgrep -c python3; true")["stdout"], "0\n");
}

#[test]
fn a_fork_bomb_is_killed_by_a_signal() {
    let sandbox = Sandbox::new(r#"{"pids": 200}"#);
    let bomb = "exec python3 -c 'import os
while True:
    try: os.fork()
    except OSError: pass'";
    let started = sandbox.ask("POST", "/process", &json!({ "command": bomb })).json();
    std::thread::sleep(Duration::from_millis(500));
    let pid = started["pid"].as_u64().unwrap();
    let path = format!("/process/{pid}/signal");
    let sent = sandbox.ask("POST", &path, &json!({ "signal": "SIGKILL" }));
    assert_eq!(sent.status, 204);
    crate::support::eventually("the bomb lives", || {
        let body = json!({ "command": "pgrep -c python3; true", "timeout": 5 });
        let answer = sandbox.ask("POST", "/process/execute", &body);
        answer.status == 200 && answer.json()["stdout"] == "0\n"
    });
}
