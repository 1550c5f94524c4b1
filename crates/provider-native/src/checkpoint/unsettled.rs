//! Processes that stand still in a moment in which CRIU cannot take them.
//!
//! One that started a program by `vfork` (`posix_spawn`, shells, Python) does not stop for a tracer
//! before the new program runs, which is held as well: CRIU would wait for it until its time is over.
//! One that was killed ends in its hands, and is waited for in vain.

use std::fs;

use crate::cgroup::Group;

/// The calls by which processes and threads are made.
#[cfg(target_arch = "x86_64")]
const BIRTHS: [&str; 3] = ["56", "58", "435"];
#[cfg(not(target_arch = "x86_64"))]
const BIRTHS: [&str; 2] = ["220", "435"];

/// Whether there is one in this group, which is frozen.
pub(super) fn any(group: &Group) -> bool {
    group.processes().into_iter().any(|process| {
        let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid()));
        threads.into_iter().flatten().flatten().any(|thread| {
            let file = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            is_in_birth(&file("syscall")) || has_signal(&file("status"))
        })
    })
}

/// Whether the call that it is in makes a process.
fn is_in_birth(call: &str) -> bool {
    call.split_whitespace().next().is_some_and(|number| BIRTHS.contains(&number))
}

/// Whether it has a signal that it would take now, were it let go.
fn has_signal(status: &str) -> bool {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = set("SigPnd:") | set("ShdPnd:");
    pending & !set("SigBlk:") & !set("SigIgn:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process_tells_whether_its_moment_passes() {
        assert!(is_in_birth("435 0x7ffc 0x58 0x0\n"));
        assert!(!is_in_birth("running\n") && !is_in_birth("0 0x3 0x7ffc\n") && !is_in_birth(""));
        let status = |pending, blocked| {
            format!("SigPnd:\t{pending}\nShdPnd:\t0\nSigBlk:\t{blocked}\nSigIgn:\t0\n")
        };
        assert!(has_signal(&status("0000000000000100", "0000000000000000")));
        assert!(!has_signal(&status("0000000000004000", "0000000000004000")));
        assert!(!has_signal(&status("0", "0")) && !has_signal(""));
    }
}
