//! Sandboxes on the disk, and woken from there.

use std::time::Duration;

use domain::{Rest, SandboxId, SandboxSpec};
use guest_proto::client::StartOptions;
use provider::Condition;
use provider_native::random_id;

use crate::conformance::{output_of, run};
use crate::support::{Home, cannot_checkpoint, eventually, needs_root};

/// The program that uses a TCP connection, a terminal and a watch, and counts.
pub(super) fn busy() -> StartOptions {
    StartOptions {
        cmd: "python3".to_owned(),
        args: vec!["-c".to_owned(), include_str!("program.py").to_owned()],
        ..StartOptions::default()
    }
}

pub(super) async fn made(home: &Home) -> SandboxId {
    let id = random_id().unwrap();
    home.provider().create(&id, &SandboxSpec::default()).await.unwrap();
    id
}

/// How many rounds the program has gone through.
pub(super) async fn rounds(home: &Home, id: &SandboxId) -> u64 {
    let guest = home.provider().guest(id);
    output_of(&guest, "sh", &["-c", "wc -l < /workspace/log"]).await.trim().parse().unwrap_or(0)
}

pub(super) async fn goes_on(home: &Home, id: &SandboxId) {
    let before = rounds(home, id).await;
    for _ in 0..200 {
        if rounds(home, id).await > before + 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let look = "cat /workspace/error; ps ax -o pid,stat,wchan:20,args";
    let seen = output_of(&home.provider().guest(id), "sh", &["-c", look]).await;
    panic!("the program does not go on after round {before}: {seen}");
}

fn processes(home: &Home, id: &SandboxId) -> usize {
    let slot = home.manifest(id)["slot"].as_str().unwrap().to_owned();
    let proc = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    proc.filter(|entry| {
        std::fs::read_to_string(entry.path().join("cgroup")).is_ok_and(|it| it.contains(&slot))
    })
    .count()
}

#[tokio::test]
async fn a_sandbox_is_put_on_the_disk_and_woken_again_and_again() {
    let name = "a_sandbox_is_put_on_the_disk_and_woken_again_and_again";
    if cannot_checkpoint(name) {
        return;
    }
    let cycles = if std::env::var_os("SOMA_LONG").is_some() { 1000 } else { 5 };
    let home = Home::new();
    let id = made(&home).await;
    let guest = home.provider().guest(&id);
    drop(guest.start(busy()).await.unwrap());
    // A child of a command whose session leader has ended.
    let orphan = "nohup sh -c 'while :; do date > /workspace/date; sleep 0.05; done' \
                  > /dev/null 2>&1 &";
    assert_eq!(run(&guest, "sh", &["-c", orphan]).await.code, 0);
    let blob = "head -c 3000000 /dev/urandom > /workspace/blob; sha256sum /workspace/blob";
    let hash = output_of(&guest, "sh", &["-c", blob]).await;
    goes_on(&home, &id).await;
    for cycle in 0..cycles {
        home.provider().pause(&id).await.unwrap();
        let rest = home.provider().hibernate(&id).await.unwrap();
        assert_eq!(rest, Rest::Hibernated, "cycle {cycle}");
        assert_eq!(processes(&home, &id), 0, "something of it is in memory");
        if cycle % 5 == 1 {
            home.kill_engine();
        }
        let seen = home.provider().inspect(&id).await.unwrap().condition;
        assert_eq!(seen, Condition::Paused(Rest::Hibernated));
        let woken = home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
        assert_eq!(woken.condition, Condition::Running);
        assert!(woken.missing_layers.contains(&domain::Layer::Landlock), "{woken:?}");
        goes_on(&home, &id).await;
        let guest = home.provider().guest(&id);
        assert_eq!(output_of(&guest, "sha256sum", &["/workspace/blob"]).await, hash);
        if cycle % 5 == 2 {
            home.kill_engine();
            goes_on(&home, &id).await;
        }
    }
    let guest = home.provider().guest(&id);
    let unshared = run(&guest, "unshare", &["--user", "true"]).await;
    assert_ne!(unshared.code, 0, "a namespace within could be made");
    // Stopped and started anew it has all of its layers again.
    home.provider().stop(&id).await.unwrap();
    let started = home.provider().start(&id, &SandboxSpec::default()).await.unwrap();
    assert!(!started.missing_layers.contains(&domain::Layer::Landlock), "{started:?}");
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn what_is_on_the_disk_can_be_stopped_and_destroyed() {
    if cannot_checkpoint("what_is_on_the_disk_can_be_stopped_and_destroyed") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    let guest = home.provider().guest(&id);
    assert_eq!(run(&guest, "sh", &["-c", "echo here > /workspace/mark"]).await.code, 0);
    for destroyed in [false, true] {
        home.provider().pause(&id).await.unwrap();
        assert_eq!(home.provider().hibernate(&id).await.unwrap(), Rest::Hibernated);
        if destroyed {
            home.provider().destroy(&id).await.unwrap();
            break;
        }
        home.provider().stop(&id).await.unwrap();
        home.kill_engine();
        let seen = home.provider().inspect(&id).await.unwrap().condition;
        assert_eq!(seen, Condition::Ended(domain::Ending::Stopped));
        home.provider().start(&id, &SandboxSpec::default()).await.unwrap();
        let guest = home.provider().guest(&id);
        assert_eq!(output_of(&guest, "cat", &["/workspace/mark"]).await, "here\n");
    }
    home.assert_nothing_left();
}

#[tokio::test]
async fn where_criu_cannot_it_stays_frozen_and_says_why() {
    if needs_root("where_criu_cannot_it_stays_frozen_and_says_why", "freezer") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let old = script("old", "echo 'Version: 4.1.1'");
    let full = script(
        "full",
        "[ \"$1\" = --version ] && echo 'Version: 4.2' && exit\n\
         echo 'Error (criu/pages.c:1): Unable to write: No space left on device' >&2; exit 1",
    );
    for (criu, words) in [
        ("/nonexistent/criu".to_owned(), "install CRIU 4.2 or newer"),
        (old, "is CRIU 4.1, and 4.2 or newer is needed"),
        (full, "No space left on device"),
    ] {
        let home = Home::new();
        let mut engine = home.soma(["engine", &format!("--home={}", home.path().display())]);
        let mut engine = engine.arg("--detach").env("SOMA_CRIU", criu).spawn().unwrap();
        eventually("no engine comes", || home.path().join("engine.sock").exists());
        let id = made(&home).await;
        home.provider().pause(&id).await.unwrap();
        let rest = home.provider().hibernate(&id).await.unwrap();
        let Rest::Frozen { because: Some(because) } = rest else { panic!("{rest:?}") };
        assert!(because.contains(words), "{because}");
        let seen = home.provider().inspect(&id).await.unwrap().condition;
        assert!(matches!(seen, Condition::Paused(Rest::Frozen { .. })), "{seen:?}");
        home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
        let guest = home.provider().guest(&id);
        assert_eq!(run(&guest, "true", &[]).await.code, 0);
        home.provider().destroy(&id).await.unwrap();
        home.assert_nothing_left();
        let _ = engine.wait();
    }
}
