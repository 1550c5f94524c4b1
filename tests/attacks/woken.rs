//! Escapes again, in sandboxes that were put on the disk and woken before, and in copies.
//!
//! The walls of a woken sandbox are put up by CRIU, from its images, and by whoever wakes it.

use std::cell::Cell;

use serde_json::Value;

use super::{Arena, escape};
use crate::daemon::Daemon;
use crate::support::cannot_checkpoint;

/// What is done with attackers' sandboxes first.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    /// Put on the disk and woken.
    Wake,
    /// Copied, and the copy is the attacker's.
    Copy,
}

thread_local! {
    static ASKED: Cell<Change> = const { Cell::new(Change::Nothing) };
}

/// The attacker's sandbox after what is tried was done with it.
pub(super) fn changed_as_asked(daemon: &Daemon, id: String) -> String {
    match ASKED.get() {
        Change::Nothing => id,
        Change::Wake => {
            wake(daemon, &id);
            id
        }
        Change::Copy => {
            let made = daemon.ask("POST", &format!("/v1/sandbox/{id}/fork"), "");
            assert_eq!(made.status, 201, "{}", made.json());
            let copy = made.json()["items"][0]["id"].as_str().unwrap().to_owned();
            let gone = daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
            assert_eq!(gone.status, 204, "{}", gone.json());
            copy
        }
    }
}

fn wake(daemon: &Daemon, id: &str) {
    let paused = daemon.ask("POST", &format!("/v1/sandbox/{id}/pause?grace=0"), "");
    assert_eq!(paused.status, 201, "{}", paused.json());
    let folder = daemon.home.path().join("sandboxes").join(id);
    assert!(folder.join("asleep").exists(), "{}", paused.json());
    let resumed = daemon.ask("POST", &format!("/v1/sandbox/{id}/resume"), "");
    assert_eq!(resumed.status, 200, "{}", resumed.json());
}

#[test]
fn e34_escapes_are_tried_after_a_resume() {
    if cannot_checkpoint("e34_escapes_are_tried_after_a_resume") {
        return;
    }
    ASKED.set(Change::Wake);
    escape::e1_a_crash_handler_of_the_host_is_set();
    escape::e2_settings_of_the_kernel_are_written();
    escape::e4_the_hosts_helpers_of_cgroups_and_devices_are_replaced();
    escape::e5_cgroups_and_other_file_systems_are_mounted();
    escape::e7_device_files_are_made();
    escape::e8_devices_of_the_host_are_opened();
    escape::e10_process_1_and_the_spawner_are_traced();
    escape::e11_the_guests_program_and_memory_are_overwritten();
    escape::e16_keys_of_the_host_are_read();
    escape::e17_dangerous_system_calls_are_made();
}

#[test]
fn e34_more_escapes_are_tried_after_a_resume() {
    if cannot_checkpoint("e34_more_escapes_are_tried_after_a_resume") {
        return;
    }
    ASKED.set(Change::Wake);
    escape::e17_other_doors_of_the_kernel_are_used();
    escape::e17_the_calls_that_pass_are_those_of_the_list();
    escape::e19_sockets_of_unusual_families_are_opened();
    escape::e20_letters_are_typed_into_the_terminal_of_whoever_watches();
    escape::e22_processes_of_others_get_signals();
    escape::e23_memory_and_queues_are_shared_with_a_neighbour();
    // Not by `SIGTERM`: only Landlock keeps root within from it, which a woken sandbox lacks. It ends
    // its own sandbox with that, and nothing else.
    escape::the_guest_is_attacked("signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGINT");
    escape::e25_the_limits_and_the_pace_of_process_1_are_taken_from_it();
    escape::e25_everything_that_can_be_killed_is_killed();
    escape::e32_something_of_the_host_is_in_sight();
}

#[test]
fn e34_escapes_are_tried_in_a_copy() {
    if cannot_checkpoint("e34_escapes_are_tried_in_a_copy") {
        return;
    }
    ASKED.set(Change::Copy);
    escape::e1_a_crash_handler_of_the_host_is_set();
    escape::e2_settings_of_the_kernel_are_written();
    escape::e5_cgroups_and_other_file_systems_are_mounted();
    escape::e8_devices_of_the_host_are_opened();
    escape::e11_the_guests_program_and_memory_are_overwritten();
    escape::e17_dangerous_system_calls_are_made();
    escape::e17_the_calls_that_pass_are_those_of_the_list();
    escape::e23_memory_and_queues_are_shared_with_a_neighbour();
    escape::e25_everything_that_can_be_killed_is_killed();
    escape::e32_something_of_the_host_is_in_sight();
}

/// What is around processes of a sandbox: those that were restored, and those that they start.
const WALLS: &str = r"
import json, resource
def status(process):
    lines = [line.split(':', 1) for line in open('/proc/%s/status' % process)]
    wanted = ('Uid', 'Gid', 'Groups', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters')
    return {k: v.split() for k, v in lines if k in wanted or k.startswith('Cap')}
def around(process):
    return {'status': status(process), 'limits': open('/proc/%s/limits' % process).read()
            if process == 'self' else None}
# What names its layers and its ids, which are others.
LAYERS = ('lowerdir', 'upperdir', 'workdir', 'uuid', 'uid', 'gid')
mounts = []
for line in open('/proc/self/mountinfo'):
    before, after = line.split(' - ')
    words = before.split()
    options = sorted(o for o in after.split()[-1].split(',') if not o.startswith(LAYERS))
    mounts.append([words[4], words[5], after.split()[0], options])
print(json.dumps({
    'self': around('self'), 'first': around('1'),
    'mounts': sorted(mounts),
    'maps': [open('/proc/self/' + name).read().split()[0::2] for name in ('uid_map', 'gid_map')],
    'namespaces': [open('/proc/sys/user/' + name).read() for name in sorted(os.listdir('/proc/sys/user'))
                   if 'namespaces' in name],
}))
";

fn walls(arena: &Arena, user: &str) -> Value {
    let said = arena.python(user, WALLS);
    let line = said["stdout"].as_str().unwrap().lines().next().unwrap_or_default().to_owned();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("{said}"))
}

/// The limits of all its cgroups, as the host has them.
fn limits(daemon: &Daemon, id: &str) -> Vec<String> {
    let slot = daemon.home.manifest(&id.parse().unwrap())["slot"].as_str().unwrap().to_owned();
    let files = "memory.limit_in_bytes memory.max pids.max cpu.cfs_quota_us cpu.max";
    let find = format!(
        "find /sys/fs/cgroup -path '*{slot}*' -type f | sort | while read f; do for n in {files}; \
         do [ \"${{f##*/}}\" = $n ] && echo \"${{f#*{slot}}} $(cat $f)\"; done; done; true"
    );
    let said = sys_linux::command::command("/bin/sh").args(["-c", &find]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn e34_the_walls_after_a_resume_are_those_from_before() {
    if cannot_checkpoint("e34_the_walls_after_a_resume_are_those_from_before") {
        return;
    }
    let arena = Arena::new();
    let look = || {
        (["root", "user"].map(|user| walls(&arena, user)), limits(&arena.daemon, &arena.attacker))
    };
    let before = look();
    assert!(before.1.len() >= 6, "{before:?}");
    wake(&arena.daemon, &arena.attacker);
    let after = look();
    assert_eq!(before.1, after.1);
    for (before, after) in before.0.iter().zip(&after.0) {
        for (name, wall) in before.as_object().unwrap() {
            assert_eq!(*wall, after[name], "{name}");
        }
    }
    arena.close();
}
