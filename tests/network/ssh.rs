//! The programs of remote shells, inside a sandbox and outside.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;

use super::sandbox;
use super::world::{HERE, World, serve};
use crate::support::{is_root, skip};

/// Who serves where root runs the tests: as root, the server would want a user of its own.
const NOBODY: u32 = 65534;

/// The key of a server that lets nobody in, and what it is told.
fn secrets() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let mut keygen = sys_linux::command::command("ssh-keygen");
    let words = ["-q", "-t", "ed25519", "-N", "", "-f"];
    assert!(keygen.args(words).arg(&key).status().unwrap().success());
    let told = format!(
        "HostKey {}\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         AuthorizedKeysFile none\nPidFile none\n",
        key.display()
    );
    fs::write(folder.path().join("told"), told).unwrap();
    rustix::fs::chmod(folder.path(), 0o755.into()).unwrap();
    if is_root() {
        chown(&key, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}

#[test]
fn ssh_talks_to_where_it_may() {
    let name = "ssh_talks_to_where_it_may";
    let Ok(server) = std::env::var("SOMA_SSHD") else {
        let reason = std::env::var("SOMA_SSHD_MISSING");
        return skip(name, &reason.unwrap_or_else(|_| "SOMA_SSHD names no server".to_owned()));
    };
    if !Path::new("/usr/bin/ssh").exists() {
        return skip(name, "this host has no `ssh` for its sandboxes");
    }
    let world = World::new();
    let secrets = secrets();
    let told = secrets.path().join("told");
    // Whoever serves may not come to where it lies.
    let copy = secrets.path().join("server");
    let from = Path::new(&server).parent().unwrap();
    let mut cp = sys_linux::command::command("cp");
    if !cp.arg("-r").args([from, &copy]).stderr(Stdio::null()).status().unwrap().success() {
        return skip(name, "whoever runs the tests cannot read the server");
    }
    let server = copy.join("sshd");
    let address = serve(move |stream| {
        let mut sshd = sys_linux::command::command("setpriv");
        if is_root() {
            sshd.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
            sshd.arg("--clear-groups");
        }
        sshd.arg(&server).args(["-i", "-f"]).arg(&told);
        let stream = OwnedFd::from(stream);
        let other = stream.try_clone().unwrap();
        let _ = sshd.stdin(stream).stdout(other).stderr(Stdio::null()).status();
    });
    world.name("shell.example.com", &[HERE]);
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["shell.example.com"] }));
    let port = address.port();
    let ssh = |host: &str| {
        let options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
        daemon
            .execute(&id, &format!("ssh {options} -p {port} a@{host}.example.com true 2>&1; true"))
    };
    // It says so after keys were agreed on and the server was known: all but a way in.
    let said = ssh("shell");
    assert!(said.contains("Permanently added"), "{said}");
    assert!(said.contains("Permission denied (publickey)"), "{said}");
    let refused = ssh("other");
    assert!(refused.contains("Could not resolve hostname"), "{refused}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
