//! Life as an ordinary user, beside what every test does a second time as one: what a user's
//! sandboxes are not held to, and what becomes of them with many ids and with one.

use std::process::{Command, Output};

use domain::{Limit, SandboxSpec};
use provider::ProviderError;

use crate::support::{Home, SOMA, is_root, needs_root, skip};

/// `script` as an ordinary user, with `soma` as its first word and a home of its own.
fn as_user(ids: &[&str], script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let soma = folder.path().join("soma");
    std::fs::copy(&*SOMA, &soma).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    // Sandboxes and engine end with the script, also when a line of it failed.
    let script = format!("set -e; trap 'kill $(cat $HOME/engine) || true' EXIT\n{script}");
    let mut command: Command = sys_linux::command::command(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/user/as-user"
    ));
    command.args(ids).args(["bash", "-c", &script, "bash"]).env("soma", &soma);
    command.output().unwrap()
}

/// Starts an engine whose end is the script's.
const ENGINE: &str = "
export SOMA_HOME=$HOME/soma
$soma engine 2>$HOME/log & echo $! >$HOME/engine
until [ -S $SOMA_HOME/engine.sock ]; do sleep 0.01; done
";

/// The last line that a script printed.
#[track_caller]
fn last_line(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

fn has_ids() -> bool {
    std::path::Path::new("/usr/bin/newuidmap").exists()
}

#[test]
fn what_cannot_be_enforced_is_refused_with_the_fix() {
    if needs_root("what_cannot_be_enforced_is_refused_with_the_fix", "second user to act as") {
        return;
    }
    let output = as_user(&[], &format!("{ENGINE} $soma run 1 2>&1 || echo code $?"));
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("disk") && words.contains("run Soma as root"), "{words}");
    assert!(words.contains("hint: ") && words.contains("--allow-unenforced"), "{words}");
    assert!(words.ends_with("code 125\n"), "{words}");
    // Processes are counted without any cgroup.
    assert!(!words.contains("pids"), "{words}");
}

#[tokio::test]
async fn what_is_not_enforced_is_written_down() {
    let home = Home::new();
    let provider = home.provider();
    let id = provider_native::random_id().unwrap();
    let strict = SandboxSpec::default();
    let made = provider.create(&id, &strict).await;
    if is_root() {
        made.unwrap();
        assert_eq!(provider.inspect(&id).await.unwrap().unenforced, []);
    } else {
        let Err(ProviderError::Unenforced { limits, fix }) = made else { panic!("{made:?}") };
        assert!(limits.contains(&Limit::Disk) && !limits.contains(&Limit::Pids), "{limits:?}");
        assert!(!fix.is_empty());
        let relaxed = SandboxSpec { allow_unenforced: true, ..strict };
        provider.create(&id, &relaxed).await.unwrap();
        assert_eq!(provider.inspect(&id).await.unwrap().unenforced, limits);
        let written: Vec<Limit> =
            serde_json::from_value(home.manifest(&id)["unenforced"].clone()).unwrap();
        assert_eq!(written, limits);
        // And it is known after the engine that knew it.
        home.kill_engine();
        assert_eq!(home.provider().inspect(&id).await.unwrap().unenforced, limits);
    }
    home.provider().destroy(&id).await.unwrap();
    drop(provider);
    home.assert_nothing_left();
}

#[test]
fn root_inside_is_none_of_the_hosts_ids_that_matter() {
    let name = "root_inside_is_none_of_the_hosts_ids_that_matter";
    if needs_root(name, "second user to act as") {
        return;
    }
    if !has_ids() {
        return skip(name, "newuidmap is not installed (package uidmap)");
    }
    let script = format!(
        "{ENGINE} $soma run --allow-unenforced --user root -- sh -c '
            id -u; touch /usr/bin/added /usr/local/lib/added /etc/added
            rm /usr/bin/tac; ls /usr/bin/tac 2>/dev/null; id -u user; chown user /etc/added
            stat -c %U /etc/added /usr/bin/added' && ls /usr/bin/tac"
    );
    let output = as_user(&[], &script);
    let words = String::from_utf8_lossy(&output.stdout);
    // The host's own is still there.
    assert_eq!(words, "0\n1000\nuser\nroot\n/usr/bin/tac\n", "{output:?}");
}

#[test]
fn two_sandboxes_of_a_user_share_no_id() {
    let name = "two_sandboxes_of_a_user_share_no_id";
    if needs_root(name, "second user to act as") {
        return;
    }
    if !has_ids() {
        return skip(name, "newuidmap is not installed (package uidmap)");
    }
    // Both run at the same time: of one that is gone the next may have the ids.
    let map = "$soma run --allow-unenforced -- sh -c 'cat /proc/self/uid_map; sleep 5'";
    let output = as_user(&[], &format!("{ENGINE} {map} & first=$!; {map}; wait $first"));
    let words = String::from_utf8_lossy(&output.stdout);
    let first: Vec<&str> =
        words.lines().filter_map(|line| line.strip_prefix("         0 ")).collect();
    assert_eq!(first.len(), 2, "{output:?}");
    assert_ne!(first[0], first[1]);
}

#[test]
fn with_a_single_id_everybody_is_the_user() {
    if needs_root("with_a_single_id_everybody_is_the_user", "second user to act as") {
        return;
    }
    let script = format!(
        "{ENGINE} export SOMA_ALLOW_UNENFORCED=true
         $soma run -- sh -c 'id -un; touch /etc/mine /usr/local/bin/mine /workspace/mine; ls -A /etc/mine'
         $soma run --pids 40 'import os
n = 0
try:
    while n < 100:
        if os.fork() == 0:
            os.closerange(0, 3); os.execvp(\"sleep\", [\"sleep\", \"60\"])
        n += 1
except OSError as error: print(error.errno, n < 40)'
         $soma run --user root -- true 2>&1 || echo code $?"
    );
    let output = as_user(&["--without-ids"], &script);
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.starts_with("user\n/etc/mine\n11 True\n"), "{output:?}");
    assert!(words.contains("there is no root in it") && words.ends_with("code 2\n"), "{words}");
}

#[test]
fn a_users_sandbox_outlives_its_engine_and_is_found_by_the_next() {
    // The conformance suite and those of the engine do this as a user as well; here the user
    // has one id.
    if needs_root("a_users_sandbox_outlives_its_engine", "second user to act as") {
        return;
    }
    let output = as_user(
        &["--without-ids"],
        &format!(
            "{ENGINE} $soma run --allow-unenforced -- true; kill -9 $(cat $HOME/engine)
            until ! kill -0 $(cat $HOME/engine) 2>/dev/null; do sleep 0.01; done
            rm $SOMA_HOME/engine.sock; {ENGINE} $soma run --allow-unenforced 'print(6*7)'"
        ),
    );
    assert_eq!(last_line(&output), "42");
}
