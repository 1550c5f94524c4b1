//! Machines with little disk or memory.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Machine, Seen};
use crate::support::skip;

#[test]
fn a_home_without_room_cannot_hold_sandboxes() {
    let seen = Machine::new().with("mount -t tmpfs -o size=20m none $D/homes").examine();
    let fix = Some("export SOMA_HOME=/a/folder/with/more/space");
    seen.assert("disk", "missing", "20 MiB free on", fix);
    seen.assert("disk", "missing", "tmpfs: it is memory, and gone after a boot", fix);
    seen.assert_cannot_run(&["disk"]);
}

#[test]
fn a_home_with_little_room_is_said_and_sandboxes_run() {
    let seen = Machine::new().with("mount -t tmpfs -o size=300m none $D/homes").examine();
    seen.assert("disk", "limited", "300 MiB free on", Some("export SOMA_HOME="));
    assert_eq!(seen.code, 0);
}

#[test]
fn a_home_that_cannot_be_written_is_said_with_the_reason() {
    let seen = Machine::new()
        .with("mount --bind $D/homes $D/homes; mount -o remount,bind,ro $D/homes")
        .examine();
    let fix = Some("export SOMA_HOME=/a/folder/that/you/can/write");
    seen.assert("disk", "missing", "read-only file system", fix);
    seen.assert_cannot_run(&["disk"]);
    let seen = Machine::new().with("chown 0 $D/homes").for_user().examine();
    seen.assert("disk", "missing", "permission denied", fix);
}

/// A group of cgroups that is gone with the test.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn memory_that_a_cgroup_holds_back_is_not_counted_as_free() {
    let test = "memory_that_a_cgroup_holds_back_is_not_counted_as_free";
    let name = format!("soma-test-memory-{}", std::process::id());
    let places =
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let made = places.into_iter().find_map(|(root, file)| {
        let group = Path::new(root).join(&name);
        fs::create_dir(&group).ok()?;
        let group = Group(group);
        fs::write(group.0.join(file), (200 << 20).to_string()).ok()?;
        Some(group)
    });
    let Some(group) = made else { return skip(test, "there is no cgroup for memory") };
    let machine = Machine::new();
    let join = format!("echo $$ > {}/cgroup.procs; doctor --json", group.0.display());
    let seen = Seen::of(&machine.run(&join));
    seen.assert("memory", "limited", "all that this process's cgroup has left", None);
    assert_eq!(seen.code, 0);
}
