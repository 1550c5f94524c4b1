//! What holds for a user who is not root.

use std::path::Path;

use super::{Machine, NOBODYS_ID};
use crate::support::skip;

/// Ids for the user in both files.
fn promised(count: u32) -> String {
    format!("soma-test:700000:{count}\n")
}

/// `newuidmap` may be missing, and then there is nothing to take away.
fn has_helpers(name: &str) -> bool {
    let has =
        ["newuidmap", "newgidmap"].iter().all(|name| Path::new("/usr/bin").join(name).exists());
    if !has {
        skip(name, "there is no newuidmap; the package uidmap has it");
    }
    has
}

#[test]
fn an_ordinary_user_can_run_sandboxes_with_less() {
    let seen = Machine::new().with_ids("").for_user().examine();
    assert_eq!(seen.report["whom"], "user `soma-test`");
    seen.assert("user-namespaces", "works", "made, with mounts, processes", None);
    seen.assert("overlay", "works", "in a user namespace", None);
    seen.assert("loop-devices", "missing", "only root can make them", None);
    seen.assert("id-mapped-mounts", "missing", "only root can map the ids of a mount", None);
    for name in ["loop-devices", "id-mapped-mounts", "cgroups", "subordinate-ids", "disk-tool"] {
        assert_eq!(seen.finding(name)["required"], false, "{name}");
    }
    let verdict = &seen.report["verdict"];
    assert_eq!((seen.code, &verdict["quality"]), (0, &"reduced".into()), "{verdict:#}");
    assert!(verdict["says"].as_str().unwrap().ends_with("; root has more"), "{verdict:#}");
}

#[test]
fn a_user_without_a_name_is_called_by_number() {
    let seen = Machine::new().for_user().examine();
    assert_eq!(seen.report["whom"], format!("user {NOBODYS_ID}"));
}

#[test]
fn a_user_without_subordinate_ids_is_shown_how_to_get_free_ones() {
    let seen = Machine::new().with_ids("somebody:100000:65536\n").for_user().examine();
    let reason = "neither /etc/subuid nor /etc/subgid gives any to user `soma-test`";
    let fix = "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 soma-test";
    seen.assert("subordinate-ids", "missing", reason, Some(fix));
    let without = seen.finding("subordinate-ids")["without"].as_str().unwrap();
    assert!(without.contains("single id") && without.contains("no `sudo`"), "{without}");
}

#[test]
fn subordinate_ids_are_used_and_not_only_counted() {
    if !has_helpers("subordinate_ids_are_used_and_not_only_counted") {
        return;
    }
    let seen = Machine::new().with_ids(&promised(65_536)).for_user().examine();
    seen.assert("subordinate-ids", "works", "has 65536 and can use them", None);
    let by_number = format!("{NOBODYS_ID}:700000:131072\n");
    let seen = Machine::new().with_ids(&by_number).for_user().examine();
    seen.assert("subordinate-ids", "works", "has 131072 and can use them", None);
    let seen = Machine::new().with_ids(&promised(1000)).for_user().examine();
    seen.assert("subordinate-ids", "limited", "has 1000", Some("usermod --add-subuids"));
}

#[test]
fn helpers_that_have_lost_their_rights_are_found_out() {
    if !has_helpers("helpers_that_have_lost_their_rights_are_found_out") {
        return;
    }
    let seen = Machine::new()
        .with_ids(&promised(65_536))
        .with("cp --no-preserve=all /usr/bin/newuidmap $D/powerless; chmod 755 $D/powerless")
        .with("mount --bind $D/powerless /usr/bin/newuidmap")
        .for_user()
        .examine();
    let fix = Some("apt-get install -y --reinstall uidmap");
    seen.assert("subordinate-ids", "missing", "has 65536, but could not use newuidmap", fix);
}

#[test]
fn helpers_that_are_not_there_are_a_package() {
    if !has_helpers("helpers_that_are_not_there_are_a_package") {
        return;
    }
    let seen = Machine::new()
        .with_ids(&promised(65_536))
        .with("mount --bind /dev/null /usr/bin/newuidmap")
        .with("mount --bind /dev/null /usr/bin/newgidmap")
        .for_user()
        .examine();
    let fix = Some("apt-get install -y uidmap");
    let reason = "there is no newuidmap and no newgidmap";
    seen.assert("subordinate-ids", "missing", reason, fix);
}

#[test]
fn a_user_is_told_which_limits_would_not_hold() {
    let seen = Machine::new().for_user().examine();
    let finding = seen.finding("cgroups");
    assert_eq!(finding["state"], "missing", "{finding:#}");
    let without = finding["without"].as_str().unwrap();
    assert!(without.contains("--allow-unenforced"), "{without}");
    assert!(!finding["fix"].is_null(), "{finding:#}");
}

#[test]
fn a_group_that_was_given_to_a_user_is_found() {
    // Where version 2 has no controllers, because version 1 has them, there is none to give.
    let name = "a_group_that_was_given_to_a_user_is_found";
    let machine = Machine::new();
    let given = format!("soma-test-{}", std::process::id());
    let script = format!(
        "mount -t cgroup2 none $D/empty 2>/dev/null || exit 3
         grep -q memory $D/empty/cgroup.controllers || exit 3
         umount --recursive /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup
         echo +memory +cpu +pids > $D/empty/cgroup.subtree_control
         mkdir -p $D/empty/{given}/inner
         chown -R {NOBODYS_ID} $D/empty/{given}
         echo $$ > $D/empty/{given}/inner/cgroup.procs
         echo +memory +cpu +pids > $D/empty/{given}/cgroup.subtree_control
         doctor --json; code=$?
         echo $$ > $D/empty/cgroup.procs
         rmdir $D/empty/{given}/inner $D/empty/{given}
         exit $code"
    );
    let output = machine.for_user().run(&script);
    if output.status.code() == Some(3) {
        return skip(name, "cgroups of version 2 have no controllers here");
    }
    super::Seen::of(&output).assert("cgroups", "works", "is this user's", None);
}
