//! What is the host's and the neighbours' stays theirs. A host that runs low is in
//! `attacks/room.rs`.

use std::fs;

use serde_json::json;

use super::Sandbox;
use crate::daemon::Daemon;
use crate::support::needs_root;

#[test]
fn open_files_are_limited() {
    let sandbox = Sandbox::new(r#"{"open_files": 200}"#);
    assert_eq!(sandbox.run("ulimit -Hn; ulimit -Sn")["stdout"], "200\n200\n");
    let opened = sandbox.python(
        "import os\nn = 0\ntry:\n    while True: os.dup(0); n += 1\nexcept OSError as e: print(e.errno, n)",
    );
    assert!(opened["stdout"].as_str().unwrap().starts_with("24 19"), "{opened}");
    // Nobody in it gets more, its root included.
    let ended = sandbox.run("sudo -n sh -c 'ulimit -Hn 201' 2>&1; ulimit -Hn");
    assert!(ended["stdout"].as_str().unwrap().ends_with("200\n"), "{ended}");
    assert_eq!(sandbox.ask("GET", "", &json!({})).json()["open_files"], 200);
}

#[test]
fn what_the_kernel_keeps_for_a_user_is_bounded_and_the_sandboxs_own() {
    let name = "what_the_kernel_keeps_for_a_user_is_bounded_and_the_sandboxs_own";
    if needs_root(name, "ids of its own for each sandbox") {
        return;
    }
    let sandbox = Sandbox::new("{}");
    let neighbour = sandbox.daemon.create("{}");
    let limits = sandbox.run("cat /proc/self/limits")["stdout"].as_str().unwrap().to_owned();
    for name in ["Max pending signals", "Max msgqueue size", "Max locked memory"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }
    // Takes all there is of each, and holds it.
    let greedy = "import ctypes, os, signal, time
c, held = ctypes.CDLL(None, use_errno=True), []
while (f := c.inotify_init1(0)) >= 0: held.append(f)
print(len(held), end=\" \")
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
n = 0
while c.sigqueue(os.getpid(), 40, None) == 0: n += 1
print(n, flush=True)
time.sleep(60)";
    let taken = sandbox.run(&format!(
        "python3 -c '{greedy}' > /tmp/taken & until test -s /tmp/taken; do :; done; cat /tmp/taken"
    ));
    let words = taken["stdout"].as_str().unwrap();
    let counts: Vec<u64> = words.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(counts[0] > 0 && (1..=4096).contains(&counts[1]), "{taken}");
    let modest = "import ctypes, os, signal
c = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
r, w = os.pipe()
import fcntl; fcntl.fcntl(w, 1031, 1 << 20)
print(c.inotify_init1(0) >= 0, c.sigqueue(os.getpid(), 40, None))";
    let seen = sandbox.daemon.execute(&neighbour, &format!("python3 -c '{modest}'"));
    assert_eq!(seen, "True 0\n");
}

#[test]
fn much_output_costs_the_daemon_little_and_its_tail_is_there() {
    let sandbox = Sandbox::new("{}");
    sandbox.run("true");
    let before = memory_of(&sandbox.daemon);
    let ended = sandbox.run("head -c 128M /dev/zero >&2; head -c 128M /dev/zero; echo the end");
    let text = ended["stdout"].as_str().unwrap();
    assert!(text.ends_with("the end\n") && text.contains("bytes are left out here"));
    assert_eq!(ended["dropped_bytes"], (256 << 20) + 8 - (4 << 20));
    let after = memory_of(&sandbox.daemon);
    assert!(after - before < 64 << 10, "{before} KiB became {after} KiB");
}

/// The most that any of the daemon's processes ever had, in KiB.
fn memory_of(daemon: &Daemon) -> u64 {
    let peak = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    daemon.home.daemons().iter().filter_map(peak).max().unwrap()
}
