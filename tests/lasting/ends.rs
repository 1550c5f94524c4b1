//! Sandboxes that ended, for whatever reason, are there with their files and can be started again.

use std::fs;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::{delete, kill, process, reason, start, stop};
use crate::daemon::Daemon;
use crate::support::{eventually, needs_root};

#[test]
fn a_sandbox_that_was_stopped_has_its_files_when_it_is_started_and_nothing_runs_in_it() {
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 600, "env_vars": {"STAGE": "test"}}"#);
    daemon.execute(&id, "sudo useradd ann; sudo -u ann id -un > /tmp/who; sleep 1000 & sync");
    for round in 0..3 {
        daemon.execute(&id, &format!("echo {round} >> /workspace/rounds"));
        stop(&daemon, &id);
        assert_eq!(reason(&daemon, &id), "it was stopped");
        let refused = daemon.ask(
            "POST",
            &format!("/v1/sandbox/{id}/process/execute"),
            r#"{"command":"true"}"#,
        );
        assert_eq!(refused.status, 409, "{}", refused.json());
        assert!(refused.message().contains("soma start"), "{}", refused.message());
        start(&daemon, &id);
    }
    assert_eq!(daemon.execute(&id, "cat /workspace/rounds"), "0\n1\n2\n");
    assert_eq!(daemon.execute(&id, "echo $STAGE; hostname"), format!("test\n{id}\n"));
    assert_eq!(daemon.execute(&id, "pgrep sleep || echo none"), "none\n");
    let seen = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
    assert!(seen["timeout_at"].as_i64().is_some_and(|at| at > 0), "{seen}");
    delete(&daemon, &id);
    daemon.close();
}

#[test]
fn a_sandbox_whose_supervisor_or_guest_was_killed_is_an_error_and_can_be_started() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    for (who, why) in [("supervisor", "its supervisor was killed"), ("first", "signal 9")] {
        daemon.execute(&id, &format!("echo {who} >> /workspace/file; sync"));
        kill(&daemon, &id, who);
        let said = reason(&daemon, &id);
        assert!(said.contains(why), "{said}");
        start(&daemon, &id);
    }
    assert_eq!(daemon.execute(&id, "cat /workspace/file"), "supervisor\nfirst\n");
    delete(&daemon, &id);
    daemon.close();
}

#[test]
fn a_sandbox_whose_time_was_over_starts_with_new_time() {
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 2}"#);
    daemon.execute(&id, "echo here > /workspace/file");
    eventually("its time is never over", || daemon.state(&id) == "stopped");
    start(&daemon, &id);
    assert_eq!(daemon.execute(&id, "cat /workspace/file"), "here\n");
    eventually("its time is not over again", || daemon.state(&id) == "stopped");
    assert_eq!(reason(&daemon, &id), "its time was over");
    delete(&daemon, &id);
    daemon.close();
}

#[test]
fn its_time_is_over_also_while_nobody_looks_after_it() {
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 3}"#);
    let guest = process(&daemon, &id, "first");
    daemon.kill();
    daemon.home.kill_engine();
    eventually("it goes on", || rustix::process::test_kill_process(guest).is_err());
    daemon.restart();
    assert_eq!(daemon.state(&id), "stopped");
    assert_eq!(reason(&daemon, &id), "its time was over");
    delete(&daemon, &id);
    daemon.close();
}

#[test]
fn after_a_restart_of_the_host_what_ran_is_stopped_with_its_files() {
    if needs_root("after_a_restart_of_the_host", "way to its manifest") {
        return;
    }
    let mut daemon = Daemon::start();
    let (one, two) = (daemon.create(r#"{"name": "one"}"#), daemon.create("{}"));
    daemon.execute(&one, "echo here > /workspace/file; sync");
    let processes = ["first", "supervisor"].map(|who| process(&daemon, &one, who));
    daemon.kill();
    daemon.home.kill_engine();
    // Everything dies at once and has no time to write anything down; the host's life is another.
    for process in processes {
        let _ = kill_process(process, Signal::KILL);
    }
    let folder = daemon.home.path().join("sandboxes").join(&one);
    let mut manifest = daemon.home.manifest(&one.parse().unwrap());
    manifest["boot"] = "an earlier one".into();
    fs::write(folder.join(manifest["ended"].as_str().unwrap()), "").unwrap();
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    fs::remove_file(folder.join("manifest.json.copy")).unwrap();
    daemon.restart();
    assert_eq!(daemon.state("one"), "stopped");
    assert_eq!(reason(&daemon, "one"), "its host was restarted");
    assert_eq!(daemon.state(&two), "running");
    start(&daemon, "one");
    assert_eq!(daemon.execute("one", "cat /workspace/file"), "here\n");
    delete(&daemon, &one);
    delete(&daemon, &two);
    daemon.close();
}

#[test]
fn a_manifest_that_is_damaged_is_read_from_its_copy_and_else_set_aside() {
    if needs_root("a_manifest_that_is_damaged", "way to damage it") {
        return;
    }
    let mut daemon = Daemon::start();
    let (bad, good) = (daemon.create("{}"), daemon.create("{}"));
    daemon.execute(&bad, "echo here > /workspace/file; sync");
    let folder = daemon.home.path().join("sandboxes").join(&bad);
    let damage = |name: &str| {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(folder.join(name), bytes).unwrap();
    };
    damage("manifest.json");
    daemon.kill();
    daemon.home.kill_engine();
    daemon.restart();
    assert_eq!(daemon.execute(&bad, "cat /workspace/file"), "here\n");
    damage("manifest.json.copy");
    daemon.kill();
    daemon.home.kill_engine();
    daemon.restart();
    assert_eq!(daemon.state(&bad), "error");
    let said = reason(&daemon, &bad);
    assert!(said.contains("its seal does not fit"), "{said}");
    let refused = daemon.ask("POST", &format!("/v1/sandbox/{bad}/start"), "");
    assert_eq!(refused.status, 409, "{}", refused.json());
    assert!(folder.join("disk.ext4").exists(), "its files were removed");
    assert_eq!(daemon.execute(&good, "echo fine"), "fine\n");
    delete(&daemon, &bad);
    delete(&daemon, &good);
    daemon.close();
}

#[test]
fn a_folder_without_a_manifest_is_not_ours_to_remove() {
    if needs_root("a_folder_without_a_manifest", "way to its folder") {
        return;
    }
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    daemon.kill();
    daemon.home.kill_engine();
    let folder = daemon.home.path().join("sandboxes").join(&id);
    for name in ["manifest.json", "manifest.json.copy"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    daemon.restart();
    assert_eq!(daemon.state(&id), "error");
    assert!(folder.join("disk.ext4").exists(), "its files were removed");
    delete(&daemon, &id);
    assert!(!folder.exists());
    daemon.close();
}

#[test]
fn a_sandbox_of_which_nothing_is_found_stays_listed_until_it_is_deleted() {
    if needs_root("a_sandbox_of_which_nothing_is_found", "way to its folder") {
        return;
    }
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "lost"}"#);
    stop(&daemon, &id);
    assert!(daemon.end().success());
    daemon.home.kill_engine();
    let (place, away) =
        (daemon.home.path().join("sandboxes").join(&id), daemon.home.path().join("away"));
    fs::rename(&place, &away).unwrap();
    daemon.restart();
    assert_eq!(
        (daemon.state("lost").as_str(), reason(&daemon, "lost").as_str()),
        ("error", "nothing of it was found on its host")
    );
    assert!(daemon.end().success());
    daemon.home.kill_engine();
    fs::rename(&away, &place).unwrap();
    daemon.restart();
    assert_eq!(daemon.state("lost"), "stopped");
    start(&daemon, "lost");
    delete(&daemon, "lost");
    daemon.close();
}

#[test]
fn what_a_command_writes_while_the_daemon_is_away_is_there_from_an_offset() {
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    let command = r#"{"command": "for n in $(seq 1 200); do echo line $n; sleep 0.02; done; echo once >> /workspace/once"}"#;
    let begun = daemon.ask("POST", &format!("/v1/sandbox/{id}/process"), command);
    let pid = begun.json()["pid"].as_u64().unwrap();
    daemon.execute(&id, "sleep 0.3");
    daemon.kill();
    daemon.home.kill_engine();
    std::thread::sleep(Duration::from_millis(500));
    daemon.restart();
    let lines: Vec<String> = (1..=200).map(|n| format!("line {n}\n")).collect();
    let whole = lines.concat();
    for offset in [0, 7, whole.len() / 2] {
        let path = format!("/v1/sandbox/{id}/process/{pid}/output?offset={offset}");
        let told = String::from_utf8(daemon.ask("GET", &path, "").body).unwrap();
        assert_eq!(output_of(&told), whole[offset..], "from {offset}");
    }
    assert_eq!(daemon.execute(&id, "cat /workspace/once"), "once\n");
    delete(&daemon, &id);
    daemon.close();
}

/// What a process wrote, as its events tell it.
fn output_of(events: &str) -> String {
    let data = events.lines().filter_map(|line| line.strip_prefix("data:"));
    let told = data.filter_map(|text| serde_json::from_str::<serde_json::Value>(text.trim()).ok());
    told.filter_map(|event| Some(event.get("stdout").or(event.get("data"))?.as_str()?.to_owned()))
        .collect()
}
