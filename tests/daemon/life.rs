//! The daemon's own life: restarts, lost and damaged files, its powers.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;

use rustix::process::{Pid, Signal, kill_process};

use super::Daemon;
use crate::support::{Home, eventually, is_root, needs_root};

#[test]
fn sandboxes_outlive_a_killed_daemon_and_are_found_again() {
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "keeper", "labels": {"team": "blue"}, "timeout": 600}"#);
    daemon.execute(&id, "echo here > /workspace/mark; sleep 1000 & echo $! > /workspace/pid");
    let before = daemon.ask("GET", "/v1/sandbox/keeper", "").json();
    daemon.kill();
    daemon.restart();
    let after = daemon.ask("GET", "/v1/sandbox/keeper", "").json();
    for field in ["id", "name", "labels", "state", "created_at", "vcpu", "memory", "timeout"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    let still =
        daemon.execute(&id, "cat /workspace/mark; kill -0 $(cat /workspace/pid) && echo runs");
    assert_eq!(still, "here\nruns\n");
    assert_eq!(daemon.ask("DELETE", "/v1/sandbox/keeper", "").status, 204);
}

#[test]
fn a_lost_and_a_damaged_database_are_rebuilt_from_the_folders() {
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "one"}"#);
    let key = daemon.key();
    let database = daemon.home.path().join("daemon/soma.db");
    for damage in [None, Some(b"this is no database".as_slice())] {
        assert!(daemon.end().success());
        match damage {
            None => std::fs::remove_file(&database).unwrap(),
            Some(bytes) => std::fs::write(&database, bytes).unwrap(),
        }
        daemon.restart();
        let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
        assert_eq!(listed["items"][0]["name"], "one", "{listed}");
        assert_eq!(daemon.state(&id), "running");
    }
    // The key is in its file, and its hash is back.
    assert_eq!(daemon.key(), key);
    let folder = std::fs::read_dir(daemon.home.path().join("daemon")).unwrap();
    let aside = folder
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("soma.db.damaged-"));
    assert!(aside.is_some(), "nothing was set aside");
    daemon.ask("DELETE", "/v1/sandbox/one", "");
}

#[test]
fn a_damaged_record_is_restored_from_the_index_or_an_error_and_disturbs_nobody() {
    if needs_root("a_damaged_record_is_restored", "way to damage it from here") {
        return;
    }
    let mut daemon = Daemon::start();
    let (bad, good) = (daemon.create("{}"), daemon.create("{}"));
    assert!(daemon.end().success());
    let record = daemon.home.path().join("sandboxes").join(&bad).join("record.json");
    std::fs::write(record, "{\"version\": 1, \"id\": ").unwrap();
    daemon.restart();
    assert_eq!(daemon.execute(&bad, "echo restored"), "restored\n");
    assert!(daemon.end().success());
    std::fs::remove_file(daemon.home.path().join("daemon/soma.db")).unwrap();
    daemon.restart();
    let seen = daemon.ask("GET", &format!("/v1/sandbox/{bad}"), "").json();
    assert_eq!(seen["state"], "error");
    assert!(seen["reason"].as_str().unwrap().contains("its record cannot be read"), "{seen}");
    assert_eq!(daemon.execute(&good, "echo fine"), "fine\n");
    for id in [&bad, &good] {
        assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    }
}

#[test]
fn a_killed_engine_is_replaced_and_nobody_notices() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    daemon.home.kill_engine();
    assert_eq!(daemon.execute(&id, "echo still here"), "still here\n");
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
}

#[test]
fn a_second_daemon_and_a_port_in_use_are_said() {
    let daemon = Daemon::start();
    let second = daemon.home.soma(["serve", "--listen", "off"]).output().unwrap();
    let words = String::from_utf8(second.stderr).unwrap();
    assert!(words.starts_with("soma: a daemon of this home runs already\n"), "{words}");
    assert_eq!(second.status.code(), Some(125));

    let other = Home::new();
    let port = other.soma(["serve", "--listen", &daemon.address]).output().unwrap();
    let words = String::from_utf8(port.stderr).unwrap();
    let expected = format!("another program listens at {}", daemon.address);
    assert!(words.contains(&expected) && words.contains("--listen"), "{words}");
    assert_eq!(port.status.code(), Some(125));
}

#[test]
fn the_daemon_has_no_powers_and_its_files_are_its_own() {
    let daemon = Daemon::start();
    let folder = daemon.home.path().join("daemon");
    for name in ["api-key", "soma.db", "soma.sock", "lock", "events/00000000000000000001.jsonl"] {
        let metadata = std::fs::metadata(folder.join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let inner = daemon.home.daemons().into_iter().find(|process| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        !is_root() || String::from_utf8_lossy(&line).contains("--inside")
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", inner.unwrap())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("CapEff:"), ["0000000000000000"]);
    let owner = std::fs::metadata(&folder).unwrap().uid().to_string();
    assert_eq!(field("Uid:"), [owner.as_str(); 4]);
    if is_root() {
        assert_eq!(field("NoNewPrivs:"), ["1"]);
        assert_ne!(owner, "0");
    }
    // Nowhere but in its file is the key itself.
    let key = daemon.key();
    for name in ["soma.db", "soma.db-wal"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{name}");
    }
}

#[test]
fn a_sandbox_whose_time_is_over_is_stopped_with_the_reason() {
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 1}"#);
    eventually("it goes on", || daemon.state(&id) == "stopped");
    let seen = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
    assert_eq!(seen["reason"], "its time was over");
    let refused =
        daemon.ask("POST", &format!("/v1/sandbox/{id}/process/execute"), r#"{"command":"true"}"#);
    assert_eq!(refused.status, 409);
    assert!(refused.message().contains("is stopped: its time was over"), "{}", refused.message());
    let events = daemon.ask("GET", &format!("/v1/sandbox/{id}/events"), "").json();
    let states: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["state"].as_str())
        .collect();
    assert_eq!(states, ["running", "stopped"]);
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    // What happened is told also when it is gone.
    let events = daemon.ask("GET", &format!("/v1/sandbox/{id}/events"), "").json();
    assert_eq!(events["items"].as_array().unwrap().last().unwrap()["state"], "deleted");
}

#[test]
fn more_time_can_be_given_and_taken() {
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 2}"#);
    let path = format!("/v1/sandbox/{id}/timeout");
    assert_eq!(daemon.ask("POST", &path, r#"{"timeout": 600}"#).status, 200);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(daemon.state(&id), "running");
    assert_eq!(daemon.ask("POST", &path, r#"{"timeout": 1}"#).status, 200);
    eventually("it goes on", || daemon.state(&id) == "stopped");
    assert_eq!(daemon.ask("POST", &path, r#"{"timeout": 600}"#).status, 409);
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
}

#[test]
fn whoever_started_it_is_told_that_it_is_ready_and_that_it_ends() {
    let home = Home::new();
    // Beside the home, because the engine wants that for itself; open to the daemon's user.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    socket.set_read_timeout(Some(super::PATIENCE)).unwrap();
    let told = || {
        let mut words = [0; 100];
        let length = socket.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let mut soma = home.soma(["serve", "--listen", "127.0.0.1:0"]);
    // By this it is found, should the test fail.
    soma.arg(format!("--home={}", home.path().display()));
    let mut child = soma.env("NOTIFY_SOCKET", &path).spawn().unwrap();
    assert_eq!(told(), "READY=1\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_daemon_whose_starter_was_killed_makes_room_for_the_next() {
    if needs_root("a_daemon_whose_starter_was_killed_makes_room_for_the_next", "starter") {
        return;
    }
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    eventually("the daemon goes on without its starter", || daemon.home.daemons().is_empty());
    daemon.restart();
    assert_eq!(daemon.execute(&id, "echo still here"), "still here\n");
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
}
