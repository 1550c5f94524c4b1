//! All processes that a sandbox may have, and more.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Arena;
use super::resources::small;
use crate::support::{is_root, needs_root};

#[test]
fn r1_a_fork_bomb() {
    let arena = Arena::with(&small());
    let begun = Instant::now();
    let bomb = json!({"command": "bomb() { bomb | bomb & }; bomb; sleep 60", "timeout": 3});
    let ended = arena.ask("POST", "process/execute", &bomb);
    assert!(begun.elapsed() < Duration::from_secs(20), "it went on for {:?}", begun.elapsed());
    assert!(ended.status < 500, "{}", ended.json());
    // What went to the background is killed as well, so there is room again.
    let seen = arena.execute(&json!({"command": "ps -e | wc -l", "timeout": 20}));
    let count: u32 = seen["stdout"].as_str().unwrap().trim().parse().unwrap_or(999);
    assert!(count < 20, "{count} processes are left: {seen}");
    arena.close();
}

#[test]
fn r1_the_api_answers_beside_a_fork_bomb_in_the_background_and_ends_it() {
    let arena = Arena::with(&small());
    // One that does not fade away when it reaches the limit.
    let bomb = "python3 -c '
import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.001)' >/dev/null 2>&1 &";
    arena.execute(&json!({"command": bomb, "timeout": 5}));
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let path = format!("/v1/sandbox/{}", arena.attacker);
    assert_eq!(arena.daemon.ask("GET", &path, "").status, 200);
    let metrics = arena.ask("GET", "metrics", &Value::Null);
    assert_eq!(metrics.status, 200, "{}", metrics.json());
    let (user, kill) = rescue();
    for _ in 0..3 {
        let seen = arena.execute(&json!({"command": "echo here", "user": user, "timeout": 9}));
        assert_eq!(seen["stdout"], "here\n", "{seen}");
    }
    let ended = arena.execute(&json!({"command": kill, "user": user, "timeout": 9}));
    assert_eq!(ended["exit_code"], 0, "{ended}");
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    crate::support::eventually("the bomb goes on", || {
        let seen = arena.execute(&json!({"command": "ps -eo user= | grep -cw user"}));
        seen["stdout"].as_str().unwrap().trim().parse::<u32>().is_ok_and(|count| count < 6)
    });
    arena.close();
}

#[test]
fn r1_who_fills_the_reserve_as_well_has_no_more_than_the_reserve() {
    if needs_root("r1_who_fills_the_reserve_as_well", "reserve of processes") {
        return;
    }
    let arena = Arena::with(&small());
    // They stay, and take what becomes free, so that there is no moment with room for one more.
    let fill = "exec python3 -c '
import os, time
if os.fork():
    time.sleep(1)
    os._exit(0)
os.closerange(0, 3)
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError: time.sleep(0.005)'";
    let fill = json!({"command": fill, "timeout": 20});
    arena.execute(&fill);
    // However long that takes: who comes too early gets a place among the others.
    crate::support::eventually("it is never full", || processes_of(&arena) > 64);
    // This one finds no room there, and fills the reserve.
    arena.execute(&fill);
    let refusal = || arena.ask("POST", "process/execute", &json!({"command": "true"}));
    crate::support::eventually("there is room for another", || refusal().status == 503);
    assert!(refusal().message().contains("limit"), "{}", refusal().json());
    let metrics = arena.ask("GET", "metrics", &Value::Null);
    assert_eq!(metrics.status, 200, "{}", metrics.json());
    let count = processes_of(&arena);
    // Its share, the reserve's, and process 1.
    assert!((70..=64 + 16 + 1).contains(&count), "{count} processes");
    arena.close();
}

/// How many processes the attacker's sandbox has, as the host counts them.
fn processes_of(arena: &Arena) -> usize {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let first = arena.daemon.home.first_process(&arena.attacker.parse().unwrap());
    let wanted = namespace(&first.to_string()).unwrap();
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| namespace(entry.unwrap().file_name().to_str()?))
        .filter(|found| *found == wanted)
        .count()
}

/// `pkill` looks at one after the other, and a bomb goes on meanwhile unless it is stopped.
const STOPPED_FIRST: &str =
    "for _ in 1 2 3 4 5 6 7 8; do pkill -STOP -u user; done; pkill -KILL -u user";

/// Who still gets a process beside a bomb of the user's, and how that one ends it. Where cgroups
/// count, everybody does; where the kernel counts by id, the sandbox's root has an allowance of its
/// own.
fn rescue() -> (&'static str, &'static str) {
    if is_root() { ("user", "kill -KILL -1") } else { ("root", STOPPED_FIRST) }
}
