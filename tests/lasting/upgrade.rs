//! An update: a daemon and an engine of another version are replaced while sandboxes go on.
//!
//! The other version is the program under test with another number in it, so it is another build
//! with another engine: each tells the other to leave.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{delete, process_id, start, stop};
use crate::daemon::Daemon;
use crate::support::{Home, SOMA};

/// How the program calls itself, and how its predecessor does.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/");

/// Makes a program of another version.
fn predecessor(folder: &Path) -> PathBuf {
    let (own, other) = (VERSION.as_bytes(), VERSION.replace('.', "x"));
    let mut program = fs::read(&*SOMA).unwrap();
    let mut places = 0;
    let mut from = 0;
    while let Some(at) = program[from..].windows(own.len()).position(|window| window == own) {
        let at = from + at;
        // Names of folders end like this too, and mean nothing.
        program[at..at + own.len()].copy_from_slice(other.as_bytes());
        (places, from) = (places + 1, at + own.len());
    }
    assert!(places > 0, "the program does not say its version");
    let path = folder.join("predecessor");
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The program that the only engine of the home is.
fn engine(home: &Home) -> (u32, PathBuf) {
    let engines = home.engines();
    assert_eq!(engines.len(), 1, "{engines:?}");
    (engines[0], fs::read_link(format!("/proc/{}/exe", engines[0])).unwrap())
}

#[test]
fn sandboxes_go_on_while_daemon_and_engine_are_replaced_by_another_version() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let older = predecessor(folder.path());
    let mut daemon = Daemon::of_program(Home::new(), &older);
    let (running, stopped) = (daemon.create(r#"{"name": "box"}"#), daemon.create("{}"));
    daemon.execute(&stopped, "echo here > /workspace/file; sync");
    stop(&daemon, &stopped);
    let command = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done";
    let path = format!("/v1/sandbox/{running}/process");
    let begun = daemon.ask("POST", &path, &json!({ "command": command }).to_string());
    let pid = begun.json()["pid"].as_u64().unwrap();
    let first = process_id(&daemon, &running);
    let (engine_before, program) = engine(&daemon.home);
    assert_eq!(program, older, "the engine is not the predecessor's");

    // There and back: a later version, which is the one under test, and the earlier one again.
    let mut last = (engine_before, program);
    let mut offset = 0;
    let mut next = 0_u64;
    for later in [true, false, true] {
        assert!(daemon.end().success());
        daemon.set_program(if later { Path::new(&*SOMA) } else { &older });
        daemon.restart();
        // The sandbox, its process 1 and its command are the same; no line is lost or said twice.
        assert_eq!(daemon.execute("box", "echo fine"), "fine\n");
        assert_eq!(process_id(&daemon, &running), first, "it was started again");
        let wanted = next + 20;
        crate::crash::follow(&daemon, &running, pid, offset, |event| {
            if event["type"] == "stdout" {
                for line in event["data"].as_str().unwrap().lines() {
                    assert_eq!(line, next.to_string());
                    next += 1;
                }
            }
            offset = event["next_offset"].as_u64().unwrap_or(offset);
            next >= wanted
        });
        let now = engine(&daemon.home);
        assert_ne!(now.0, last.0, "the engine of the other version is still there");
        assert_ne!(now.1, last.1, "the engine is of the version before");
        last = now;
    }
    start(&daemon, &stopped);
    assert_eq!(daemon.execute(&stopped, "cat /workspace/file"), "here\n");
    delete(&daemon, &running);
    delete(&daemon, &stopped);
    daemon.close();
}
