//! The kernel itself, by programs that were written to make kernels fall.
//!
//! LTP, whose tests of known holes would do the same more thoroughly, is no package of Debian's
//! (neither of 12 nor of 13), so `stress-ng` it is: its stressors of the operating system, one
//! after the other, as the sandbox's root, with everything of the sandbox's that they can get.

use std::path::Path;

use serde_json::json;

use super::Arena;
use super::resources::small;
use crate::support::skip;

#[test]
fn e31_the_kernel_is_stressed_in_every_way_that_stress_ng_knows() {
    let name = "e31_the_kernel_is_stressed_in_every_way_that_stress_ng_knows";
    if !Path::new("/usr/bin/stress-ng").exists() {
        return skip(name, "stress-ng is not installed (package stress-ng)");
    }
    let arena = Arena::with(&small());
    // Each class for so many seconds in all; most stressors find that they may not.
    let seconds: u64 = if std::env::var_os("SOMA_LONG").is_some() { 900 } else { 3 };
    let before = taint();
    for (user, class) in [("root", "os"), ("user", "filesystem"), ("root", "memory")] {
        let command = format!(
            "cd /tmp && timeout -s KILL {seconds} stress-ng --sequential 1 --class {class} \
             --timeout 1 --oomable >/tmp/stress.log 2>&1; tail -n 3 /tmp/stress.log; \
             pkill -KILL stress-ng; rm -rf /tmp/*; true"
        );
        let wish = json!({"command": command, "user": user, "timeout": seconds + 60});
        let answer = arena.ask("POST", "process/execute", &wish);
        assert!(answer.status < 500, "{}", answer.json());
        let alive = arena.execute(&json!({"command": "echo alive", "timeout": 30}));
        assert_eq!(alive["stdout"], "alive\n", "after {class}: {alive}");
    }
    assert_eq!(taint(), before, "the kernel noted an error of its own");
    arena.close();
}

/// What the kernel has noted against itself, such as that it complained or nearly fell.
fn taint() -> String {
    std::fs::read_to_string("/proc/sys/kernel/tainted").unwrap()
}
