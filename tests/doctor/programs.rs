//! Machines that lack a program, or have one that does not work.

use std::time::{Duration, Instant};

use super::{Machine, Seen};
use crate::support::skip;

const EPERM: i32 = 1;
const PTRACE: u32 = 101;

/// The CRIU to test with, or why there is none.
fn criu(test: &str) -> Option<String> {
    let criu = std::env::var("SOMA_CRIU").ok();
    if criu.is_none() {
        let reason = std::env::var("SOMA_CRIU_MISSING");
        skip(test, reason.as_deref().unwrap_or("SOMA_CRIU names none"));
    }
    criu
}

#[test]
fn an_empty_search_path_has_no_programs_and_sandboxes_run_all_the_same() {
    let seen = Machine::new().variable("PATH", "").examine();
    seen.assert("docker", "missing", "no `docker` in PATH", Some("apt-get install -y docker.io"));
    seen.assert("podman", "missing", "no `podman` in PATH", Some("apt-get install -y podman"));
    seen.assert("gvisor", "missing", "no `runsc` in PATH", None);
    seen.assert("criu", "missing", "no `criu` in PATH", Some("SOMA_CRIU"));
    for name in ["docker", "podman", "criu"] {
        assert_eq!(seen.finding(name)["fix"]["safe"], false, "packages are for people to install");
    }
    // What Soma itself starts is not looked for in the caller's path.
    seen.assert("disk-tool", "works", "mkfs.ext4` formatted a small disk", None);
    assert_eq!(seen.code, 0);
}

#[test]
fn a_machine_without_mkfs_cannot_make_disks() {
    let seen = Machine::new()
        .with("for folder in /usr/sbin /sbin; do mount -t tmpfs none $folder; done")
        .examine();
    seen.assert("disk-tool", "missing", "no mkfs.ext4", Some("apt-get install -y e2fsprogs"));
    seen.assert_cannot_run(&["disk-tool"]);
    // The wires of the network are laid without a program.
    seen.assert("nftables", "works", "led connections to a socket", None);
}

#[test]
fn programs_that_answer_are_told_with_their_version() {
    let seen = Machine::new()
        .program("docker", "[ \"$1\" = version ] && echo 99.1")
        .program("podman", "echo podman version 98.2")
        .program("runsc", "echo runsc version 97.3; echo spec: 1")
        .examine();
    seen.assert("docker", "works", "the daemon answers, version 99.1", None);
    seen.assert("podman", "works", "podman version 98.2", None);
    assert_eq!(seen.finding("gvisor")["says"], "runsc version 97.3");
}

#[test]
fn a_daemon_that_refuses_this_user_is_told_from_one_that_is_not_running() {
    let seen = Machine::new()
        .with_ids("")
        .for_user()
        .program("docker", "echo 'permission denied while connecting to docker.sock' >&2; exit 1")
        .examine();
    let fix = Some("usermod -aG docker soma-test");
    seen.assert("docker", "limited", "permission denied", fix);
    let seen = Machine::new().program("docker", "echo 'Cannot connect' >&2; exit 1").examine();
    seen.assert("docker", "limited", "no daemon answers: Cannot connect", Some("systemctl start"));
}

#[test]
fn a_daemon_that_hangs_holds_nobody_up() {
    let begun = Instant::now();
    let seen = Machine::new().program("docker", "/bin/sleep 1000 & wait").examine();
    seen.assert("docker", "limited", "it does not answer in time", Some("systemctl start"));
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn a_criu_that_is_too_old_is_told_the_version_that_is_needed() {
    let seen = Machine::new().program("criu", "echo Version: 3.17.1").examine();
    let reason = "CRIU 3.17.1 is older than 4.2";
    seen.assert("criu", "missing", reason, Some("4.2 or newer"));
    let without = seen.finding("criu")["without"].as_str().unwrap();
    assert!(without.contains("cannot hibernate"), "{without}");
}

#[test]
fn a_criu_that_is_named_wins_over_one_that_is_found() {
    let machine = Machine::new().program("criu", "echo Version: 3.17.1");
    let seen = machine.variable("SOMA_CRIU", "/nowhere/criu").examine();
    seen.assert("criu", "missing", "SOMA_CRIU names `/nowhere/criu`, which is no program", None);
}

#[test]
fn a_criu_that_works_is_tried_and_found_to_work() {
    let Some(criu) = criu("a_criu_that_works_is_tried_and_found_to_work") else { return };
    let seen = Machine::new().variable("SOMA_CRIU", criu).examine();
    seen.assert("criu", "works", "dumped and restored two processes", None);
}

#[test]
fn a_criu_that_fails_when_it_is_tried_says_at_which_step_and_why() {
    let test = "a_criu_that_fails_when_it_is_tried_says_at_which_step_and_why";
    let Some(criu) = criu(test) else { return };
    // Without following other processes nothing can be dumped.
    let machine = Machine::new().variable("SOMA_CRIU", criu);
    let seen = machine.refusing(PTRACE, EPERM, 0).examine();
    let says = seen.finding("criu")["says"].as_str().unwrap();
    assert!(says.contains("could not `check`") || says.contains("could not `dump`"), "{says}");
    assert!(says.contains("Error"), "{says}");
    assert_eq!(seen.finding("criu")["state"], "missing");
    assert_eq!(seen.report["verdict"]["quality"], "reduced");
    assert_eq!(seen.code, 0, "sandboxes run without it");
}

#[test]
fn a_criu_that_restores_nothing_is_found_out() {
    let Some(criu) = criu("a_criu_that_restores_nothing_is_found_out") else { return };
    // Says that all went well, and has brought nobody back.
    let machine = Machine::new();
    let machine = machine.program("liar", &format!("[ \"$1\" = restore ] || exec {criu} \"$@\""));
    let liar = machine.path().join("programs/liar").to_str().unwrap().to_owned();
    let seen = machine.variable("SOMA_CRIU", liar).examine();
    seen.assert("criu", "missing", "could not reach the restored process", None);
}

#[test]
fn a_criu_that_hangs_is_ended() {
    let begun = Instant::now();
    let machine = Machine::new()
        .unshare(&["--pid", "--fork", "--mount-proc"])
        .program("criu", "[ \"$1\" = --version ] && echo Version: 4.2 || /bin/sleep 1000");
    // Whatever is left would be said on standard error, which must be empty.
    let seen =
        Seen::of(&machine.run("doctor --json; ps -e -o comm= | grep -x -e sleep -e criu >&2"));
    seen.assert("criu", "missing", "could not `check`: it does not answer in time", None);
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
}
