//! What scripts and people rely on: the JSON document, the lines, the exit codes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Machine;

/// Every check, in the order in which it is shown. A name is for ever.
const NAMES: [&str; 22] = [
    "kernel",
    "container",
    "user-namespaces",
    "apparmor",
    "subordinate-ids",
    "cgroups",
    "favordynmods",
    "overlay",
    "id-mapped-mounts",
    "seccomp",
    "landlock",
    "nftables",
    "fuse",
    "loop-devices",
    "disk-tool",
    "kvm",
    "criu",
    "docker",
    "podman",
    "gvisor",
    "disk",
    "memory",
];

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_document_has_the_shape_that_is_documented() {
    let seen = Machine::new().examine();
    assert_eq!(keys(&seen.report), BTreeSet::from(["version", "whom", "verdict", "findings"]));
    assert_eq!(seen.report["version"], 1);
    assert_eq!(seen.report["whom"], "root");
    assert_eq!(keys(&seen.report["verdict"]), BTreeSet::from(["runs", "quality", "says"]));
    let findings = seen.report["findings"].as_array().unwrap();
    let names: Vec<&str> =
        findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    assert_eq!(names, NAMES);
    for finding in findings {
        let expected = ["name", "state", "required", "says", "without", "fix"];
        assert_eq!(keys(finding), BTreeSet::from(expected));
        let states = ["works", "limited", "missing", "unknown"];
        assert!(states.contains(&finding["state"].as_str().unwrap()), "{finding:#}");
        assert!(!finding["says"].as_str().unwrap().is_empty(), "{finding:#}");
        assert!(!finding["without"].as_str().unwrap().is_empty(), "{finding:#}");
        if !finding["fix"].is_null() {
            assert_eq!(keys(&finding["fix"]), BTreeSet::from(["command", "safe", "needs_root"]));
            assert_ne!(finding["state"], "works", "{finding:#}");
        }
    }
}

#[test]
fn root_on_a_machine_that_runs_these_tests_can_run_sandboxes() {
    let seen = Machine::new().examine();
    assert_eq!((seen.code, &seen.report["verdict"]["runs"]), (0, &Value::Bool(true)));
    for name in NAMES {
        let finding = seen.finding(name);
        if finding["required"] == true {
            assert_ne!(finding["state"], "missing", "{finding:#}");
        }
    }
}

#[test]
fn there_is_one_line_for_each_thing_and_more_only_where_something_lacks() {
    let machine = Machine::new().variable("PATH", "");
    let output = machine.run("doctor");
    let text = String::from_utf8(output.stdout).unwrap();
    let (lines, verdict) = text.trim_end().rsplit_once("\n\n").unwrap();
    assert!(verdict.starts_with("sandboxes can run here as root"), "{verdict}");
    let is_detail = |line: &&str| line.starts_with("     ");
    let heads: Vec<&str> = lines.lines().filter(|line| !is_detail(line)).collect();
    for (head, name) in heads.iter().zip(NAMES) {
        let mut words = head.split_whitespace();
        assert!(["ok", "part", "no", "?"].contains(&words.next().unwrap()), "{head}");
        assert_eq!(words.next(), Some(name));
    }
    assert_eq!(heads.len(), NAMES.len());
    let mut lines = lines.lines().peekable();
    while let Some(line) = lines.next() {
        let fine = line.starts_with("ok ");
        let details = std::iter::from_fn(|| lines.next_if(is_detail)).collect::<Vec<&str>>();
        assert_eq!(fine, details.is_empty(), "{line}");
        if !fine {
            assert!(details[0].trim().starts_with("without: "), "{details:?}");
        }
    }
    assert!(text.contains("fix:     apt-get install -y podman"), "{text}");
}

#[test]
fn words_that_make_no_sense_together_are_refused() {
    let machine = Machine::new();
    for words in ["--json --fix", "--yes", "--be-dumped --json", "--fly"] {
        let output = machine.run(&format!("doctor {words}"));
        assert_eq!(output.status.code(), Some(2), "{words}: {output:?}");
        assert!(output.stdout.is_empty(), "{words}: {output:?}");
    }
}

#[test]
fn nothing_is_left_behind() {
    // In a process namespace of its own, so that every process in it is ours.
    // Mounts are shared as on a usual host: one that is not kept apart shows here.
    let machine = || {
        let machine = Machine::new().unshare(&["--pid", "--fork", "--mount-proc"]);
        machine.with("mount --make-rshared /")
    };
    // Groups of other tests come and go; what is left behind stays.
    let script = "\
        before=$(cat /proc/self/mountinfo); \
        doctor >/dev/null; \
        [ \"$before\" = \"$(cat /proc/self/mountinfo)\" ] || echo mounts; \
        find /sys/fs/cgroup -name \"soma-doctor-*\" > $D/groups; \
        grep -l $D /sys/block/loop*/loop/backing_file 2>/dev/null; \
        ls -A $D/homes; \
        ps -e -o comm= | grep -v -x -e sh -e ps -e grep; \
        sleep 1; while read group; do [ ! -d $group ] || echo $group; done < $D/groups";
    let of_root = match std::env::var("SOMA_CRIU") {
        Ok(criu) => machine().variable("SOMA_CRIU", criu),
        Err(_) => machine(),
    };
    for machine in [of_root, machine().for_user()] {
        let output = machine.run(script);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{output:?}");
    }
}
