//! More than the host has: its disk is filled by what runs on it.
//!
//! The host here is a small file system in a file, with a home on it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Answer, Daemon};
use crate::support::{Home, eventually, needs_root};

/// What is left to the host.
const RESERVE: &str = "320m";

/// A file system of its own, mounted on the host for as long as a test takes.
struct SmallHost {
    folder: tempfile::TempDir,
}

impl SmallHost {
    fn new(mebibytes: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("soma-host-").tempdir().unwrap();
        let (image, place) = (folder.path().join("image"), folder.path().join("place"));
        fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        fs::create_dir(&place).unwrap();
        run("mkfs.ext4", &["-q", "-F", "-m", "0", image.to_str().unwrap()]);
        run("mount", &["-o", "loop", image.to_str().unwrap(), place.to_str().unwrap()]);
        // What somebody can free.
        let host = Self { folder };
        run("fallocate", &["-l", "400M", host.ballast().to_str().unwrap()]);
        // Whoever serves has no privileges, and passes through here.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(host.folder.path(), open).unwrap();
        host
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    fn ballast(&self) -> PathBuf {
        self.place().join("ballast")
    }

    fn left(&self) -> u64 {
        let found = rustix::fs::statvfs(self.place()).unwrap();
        found.f_bavail * found.f_frsize
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let place = self.place();
        let _ = sys_linux::command::command("umount").arg("-l").arg(place).status();
    }
}

#[track_caller]
fn run(program: &str, words: &[&str]) {
    let ended = sys_linux::command::command(program).args(words).output().unwrap();
    assert!(ended.status.success(), "{program}: {ended:?}");
}

fn ask(daemon: &Daemon, id: &str, rest: &str, body: &Value) -> Answer {
    daemon.ask("POST", &format!("/v1/sandbox/{id}/{rest}"), &body.to_string())
}

#[track_caller]
fn execute(daemon: &Daemon, id: &str, command: &str) -> Value {
    let wish = json!({"command": command, "timeout": 60});
    let answer = ask(daemon, id, "process/execute", &wish);
    assert_eq!(answer.status, 200, "{command}: {}", answer.json());
    answer.json()
}

fn started(host: &SmallHost, variables: &[(&str, &str)]) -> Daemon {
    Daemon::with(Home::within(&host.place()), variables)
}

/// Deletes these, and looks for remains.
fn close(daemon: Daemon, sandboxes: &[&str]) {
    for id in sandboxes {
        assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    }
    daemon.close();
}

#[test]
fn r16_sandboxes_fill_the_hosts_disk_and_are_refused_before_anything_breaks() {
    let name = "r16_sandboxes_fill_the_hosts_disk_and_are_refused_before_anything_breaks";
    if needs_root(name, "disk of its own for each sandbox") {
        return;
    }
    let host = SmallHost::new(1400);
    let daemon = started(&host, &[("SOMA_RESERVE_DISK", RESERVE)]);
    let writer = daemon.create(r#"{"disk": 8192}"#);
    let neighbour = daemon.create("{}");
    let before = "echo acknowledged > kept && sync kept && echo done";
    assert_eq!(execute(&daemon, &neighbour, before)["stdout"], "done\n");
    let filled = execute(&daemon, &writer, "dd if=/dev/zero of=large bs=1M count=3000 2>&1");
    let words = filled["stdout"].as_str().unwrap();
    assert!(words.contains("No space left on device"), "{filled}");
    assert_eq!(filled["reason"]["code"], "host_disk_full", "{filled}");
    assert!(host.left() > 40 << 20, "{} bytes are left to the host", host.left());
    // All of what was taken is there, also when it is asked of the disk.
    let size = "sync large && stat -c %s large && sync -f / && cmp -n $(stat -c %s large) large \
                /dev/zero && echo whole";
    assert!(execute(&daemon, &writer, size)["stdout"].as_str().unwrap().ends_with("whole\n"));
    // Nobody new, and what runs is told the truth and can read.
    let refused = daemon.ask("POST", "/v1/sandbox", "{}");
    assert_eq!(refused.status, 503, "{}", refused.json());
    assert!(refused.message().contains("reserve_disk"), "{}", refused.message());
    let told = execute(&daemon, &neighbour, "cat kept; head -c 10M /dev/zero > more");
    assert_eq!(told["stdout"], "acknowledged\n");
    assert!(told["stderr"].as_str().unwrap().contains("No space left"), "{told}");
    assert_eq!(told["reason"]["code"], "host_disk_full", "{told}");
    // Room is made, and it goes on by itself.
    fs::remove_file(host.ballast()).unwrap();
    eventually("the disks stay closed", || {
        execute(&daemon, &neighbour, "head -c 10M /dev/zero > more && sync more")["exit_code"] == 0
    });
    assert_eq!(execute(&daemon, &neighbour, "cat kept")["stdout"], "acknowledged\n");
    close(daemon, &[&writer, &neighbour]);
}

#[test]
fn r16_room_that_was_promised_before_is_used_up_and_who_does_it_is_stopped() {
    let name = "r16_room_that_was_promised_before_is_used_up_and_who_does_it_is_stopped";
    if needs_root(name, "disk of its own for each sandbox") {
        return;
    }
    let host = SmallHost::new(1200);
    let daemon = started(&host, &[("SOMA_RESERVE_DISK", "480m")]);
    let (writer, neighbour) = (daemon.create(r#"{"disk": 8192}"#), daemon.create("{}"));
    let kept = "echo acknowledged > kept && sync kept && fallocate -l 6G large && echo done";
    assert_eq!(execute(&daemon, &writer, kept)["stdout"], "done\n");
    let wish = json!({"command": "dd if=/dev/zero of=large bs=1M count=6000 conv=notrunc"});
    assert_eq!(ask(&daemon, &writer, "process", &wish).status, 201);
    // As long as a slow machine takes to write so much.
    let begun = Instant::now();
    while daemon.state(&writer) != "stopped" {
        assert!(begun.elapsed() < Duration::from_mins(1), "nobody stops it");
        std::thread::sleep(Duration::from_millis(100));
    }
    let seen = daemon.ask("GET", &format!("/v1/sandbox/{writer}"), "").json();
    assert!(seen["reason"].as_str().unwrap().contains("nearly full"), "{seen}");
    // Who did nothing goes on, and nothing of theirs broke.
    assert_eq!(execute(&daemon, &neighbour, "echo here")["stdout"], "here\n");
    fs::remove_file(host.ballast()).unwrap();
    eventually("the disks stay closed", || {
        execute(&daemon, &neighbour, "head -c 1M /dev/zero > more && sync more")["exit_code"] == 0
    });
    // The one that was stopped starts again with its files.
    assert_eq!(ask(&daemon, &writer, "start", &json!({})).status, 200);
    assert_eq!(execute(&daemon, &writer, "cat kept")["stdout"], "acknowledged\n");
    close(daemon, &[&writer, &neighbour]);
}

#[test]
fn r16_a_disk_that_broke_below_a_sandbox_is_told_and_repaired_by_a_start() {
    let name = "r16_a_disk_that_broke_below_a_sandbox_is_told_and_repaired_by_a_start";
    if needs_root(name, "disk of its own for each sandbox") {
        return;
    }
    let host = SmallHost::new(900);
    // Nothing is left to the host, and so nothing is watched.
    let daemon = started(&host, &[("SOMA_RESERVE_DISK", "0")]);
    let id = daemon.create(r#"{"disk": 8192}"#);
    let kept = "for n in $(seq 30); do echo line $n > kept$n; sync kept$n; done; echo done";
    assert_eq!(execute(&daemon, &id, kept)["stdout"], "done\n");
    execute(&daemon, &id, "dd if=/dev/zero of=large bs=1M count=2000; sync");
    eventually("the disk does not break", || {
        let told = execute(&daemon, &id, "echo x > another && sync another");
        told["reason"]["code"] == "disk_failed"
    });
    let told = execute(&daemon, &id, "echo x > another");
    assert!(told["reason"]["hint"].as_str().unwrap().contains("soma start"), "{told}");
    fs::remove_file(host.ballast()).unwrap();
    assert!(ask(&daemon, &id, "stop", &json!({})).status < 300);
    let again = ask(&daemon, &id, "start", &json!({}));
    assert_eq!(again.status, 200, "{}", again.json());
    let check = "for n in $(seq 30); do [ \"$(cat kept$n)\" = \"line $n\" ] || echo lost $n; done; \
                 rm -f large; echo new > another && sync another && cat another";
    assert_eq!(execute(&daemon, &id, check)["stdout"], "new\n");
    close(daemon, &[&id]);
}

#[test]
fn r16_a_host_that_has_less_than_its_reserve_makes_nothing_and_says_why() {
    for (variable, word) in [("SOMA_RESERVE_MEMORY", "memory"), ("SOMA_RESERVE_DISK", "disk")] {
        let daemon = Daemon::with(Home::new(), &[(variable, "900t")]);
        let wish = json!({ "allow_unenforced": true }).to_string();
        let answer = daemon.ask("POST", "/v1/sandbox", &wish);
        assert_eq!(answer.status, 503, "{}", answer.json());
        let words = answer.message();
        let setting = format!("`reserve_{word}`");
        assert!(words.contains(&setting) && words.contains("delete sandboxes"), "{words}");
        daemon.home.assert_no_sandbox();
    }
}
