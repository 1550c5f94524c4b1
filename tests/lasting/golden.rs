//! Homes of every earlier version: what they say is still true, and their sandboxes start.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{delete, start, stop};
use crate::daemon::Daemon;
use crate::support::needs_root;

/// What tells a real sandbox from the one that was written down.
const OWN: [&str; 7] = ["id", "slot", "base_id", "generation", "guest", "first", "supervisor"];

fn golden(version: u32, name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    fs::read_to_string(folder.join(version.to_string()).join(name)).ok()
}

#[test]
fn sandboxes_of_every_earlier_version_are_found_and_start_with_their_files() {
    if needs_root("sandboxes_of_every_earlier_version", "way to their folders") {
        return;
    }
    let mut daemon = Daemon::start();
    for version in 1..=6 {
        let id = daemon.create("{}");
        daemon.execute(&id, &format!("echo {version} > /workspace/file"));
        stop(&daemon, &id);
        assert!(daemon.end().success());
        daemon.home.kill_engine();
        go_back(&daemon, &id, version);
        let database = daemon.home.path().join("daemon/soma.db");
        let _ = fs::remove_file(database);
        daemon.restart();

        let seen = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
        // The first version had no daemon, so nothing was written down for one.
        if version > 1 {
            assert_eq!(seen["name"], "golden", "{version}: {seen}");
            assert_eq!(seen["labels"]["made"], "before", "{version}: {seen}");
            assert_eq!(seen["memory"], 2048, "{version}: {seen}");
            assert_eq!(seen["timeout"], 3600, "{version}: {seen}");
        }
        assert_eq!(seen["state"], "stopped", "{version}: {seen}");
        start(&daemon, &id);
        let said = daemon.execute(&id, "cat /workspace/file; echo $STAGE");
        let stage = if version > 1 { "test" } else { "" };
        assert_eq!(said, format!("{version}\n{stage}\n"), "{version}");
        delete(&daemon, &id);
    }
    daemon.close();
}

/// Writes a sandbox's folder as an earlier version did.
fn go_back(daemon: &Daemon, id: &str, version: u32) {
    let folder = daemon.home.path().join("sandboxes").join(id);
    let now = daemon.home.manifest(&id.parse().unwrap());
    let text = golden(version, "manifest.json").unwrap();
    // Later ones end with a seal, which would have to be another with what is changed here.
    let text = text.split("\n#sealed").next().unwrap();
    let mut manifest: Value = serde_json::from_str(text).unwrap();
    let before = manifest["id"].as_str().unwrap().to_owned();
    for field in OWN {
        manifest[field] = now[field].clone();
    }
    let record = golden(version, "record.json").map(|text| text.replace(&before, id));
    if let Some(inner) = manifest.get_mut("record").filter(|inner| inner.is_string()) {
        *inner = inner.as_str().unwrap().replace(&before, id).into();
    }
    if version < 5 {
        let ended = folder.join(now["ended"].as_str().unwrap());
        fs::rename(ended, folder.join("ended.json")).unwrap();
    } else {
        for field in ["boot", "ended"] {
            manifest[field] = now[field].clone();
        }
    }
    for name in ["manifest.json", "record.json", "network.json"] {
        let _ = fs::remove_file(folder.join(name));
        let _ = fs::remove_file(folder.join(format!("{name}.copy")));
    }
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    if let Some(record) = record {
        fs::write(folder.join("record.json"), record).unwrap();
    }
}

#[test]
fn a_database_of_an_earlier_version_is_opened_and_what_is_missing_is_said() {
    if needs_root("a_database_of_an_earlier_version", "way to the daemon's folder") {
        return;
    }
    let mut daemon = Daemon::start();
    assert!(daemon.end().success());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/4");
    let database = daemon.home.path().join("daemon/soma.db");
    let bytes = fs::read(folder.join("soma.db")).unwrap();
    // Into the file that is there, so that it stays its owner's.
    fs::write(&database, bytes).unwrap();
    daemon.restart();
    let seen = daemon.ask("GET", "/v1/sandbox/golden", "").json();
    assert_eq!((&seen["state"], &seen["labels"]["made"]), (&"error".into(), &"before".into()));
    assert_eq!(seen["reason"], "nothing of it was found on its host");
    delete(&daemon, "golden");
    daemon.close();
}
