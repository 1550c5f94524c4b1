//! Sandboxes that were captured: made again, multiplied, brought back.

use domain::{Ending, Origin, Rest, SandboxId, SandboxSpec, SnapshotId};
use provider::{Condition, ProviderError};
use provider_native::random_id;

use super::slept::{busy, goes_on, made, rounds};
use crate::conformance::{output_of, run};
use crate::support::{Home, cannot_checkpoint};

fn new_snapshot() -> SnapshotId {
    format!("snap-{}", random_id().unwrap()).parse().unwrap()
}

/// Takes a snapshot of a sandbox that runs, which goes on.
async fn captured(home: &Home, id: &SandboxId, memory: bool) -> SnapshotId {
    let (provider, snapshot) = (home.provider(), new_snapshot());
    provider.pause(id).await.unwrap();
    assert_eq!(provider.hibernate(id).await.unwrap(), Rest::Hibernated);
    provider.capture(id, &snapshot, memory).await.unwrap();
    provider.resume(id, &SandboxSpec::default()).await.unwrap();
    snapshot
}

fn from(snapshot: &SnapshotId) -> SandboxSpec {
    let origin = Some(Origin { snapshot: snapshot.clone(), token: None });
    SandboxSpec { origin, ..SandboxSpec::default() }
}

async fn restored(home: &Home, snapshot: &SnapshotId) -> SandboxId {
    let id = random_id().unwrap();
    let seen = home.provider().create(&id, &from(snapshot)).await.unwrap();
    assert_eq!(seen.condition, Condition::Running);
    id
}

async fn shell(home: &Home, id: &SandboxId, script: &str) -> String {
    output_of(&home.provider().guest(id), "sh", &["-c", script]).await
}

#[tokio::test]
async fn a_snapshot_is_taken_of_what_runs_and_becomes_others_that_go_their_own_ways() {
    if cannot_checkpoint("a_snapshot_is_taken_of_what_runs_and_becomes_others") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    drop(home.provider().guest(&id).start(busy()).await.unwrap());
    goes_on(&home, &id).await;
    shell(&home, &id, "echo first > /workspace/mark; mkdir /workspace/folder").await;
    let snapshot = captured(&home, &id, true).await;
    let at = rounds(&home, &id).await;
    goes_on(&home, &id).await;
    let mut copies = Vec::new();
    for number in 0..3 {
        let copy = restored(&home, &snapshot).await;
        assert!(rounds(&home, &copy).await >= at.saturating_sub(2), "it began anew");
        goes_on(&home, &copy).await;
        let script = format!("echo {number} >> /workspace/mark; rmdir /workspace/folder; hostname");
        assert_eq!(shell(&home, &copy, &script).await.trim(), copy.as_str());
        copies.push(copy);
    }
    shell(&home, &id, "echo source >> /workspace/mark").await;
    for (number, copy) in copies.iter().enumerate() {
        let seen = shell(&home, copy, "cat /workspace/mark").await;
        assert_eq!(seen, format!("first\n{number}\n"), "one sees another");
    }
    assert_eq!(
        shell(&home, &id, "cat /workspace/mark; ls -d /workspace/folder").await,
        "first\nsource\n/workspace/folder\n"
    );
    let mut machines: Vec<String> = Vec::new();
    for copy in &copies {
        machines.push(shell(&home, copy, "cat /etc/machine-id").await);
    }
    machines.sort();
    machines.dedup();
    assert_eq!(machines.len(), 3, "{machines:?}");

    // A snapshot of a copy lies over the first.
    let second = captured(&home, &copies[0], true).await;
    let listed = home.provider().snapshots().await.unwrap();
    let of = |id: &SnapshotId| listed.iter().find(|one| one.id == *id).unwrap();
    assert_eq!(of(&second).layers, std::slice::from_ref(&snapshot));
    assert!(of(&second).bytes > 0 && of(&second).memory);
    let grandchild = restored(&home, &second).await;
    goes_on(&home, &grandchild).await;
    assert_eq!(shell(&home, &grandchild, "cat /workspace/mark").await, "first\n0\n");

    // What others were made from stays.
    let refused = home.provider().remove_snapshot(&snapshot).await.unwrap_err();
    assert!(matches!(refused, ProviderError::SnapshotInUse { .. }), "{refused}");
    // Also without the engine, and after it.
    home.kill_engine();
    goes_on(&home, &grandchild).await;
    for copy in copies.iter().chain([&grandchild]) {
        home.provider().destroy(copy).await.unwrap();
    }
    for snapshot in [&second, &snapshot] {
        home.provider().remove_snapshot(snapshot).await.unwrap();
        let gone = home.provider().create(&random_id().unwrap(), &from(snapshot)).await;
        assert!(matches!(gone, Err(ProviderError::NoSnapshot { .. })), "{gone:?}");
    }
    // The source stands on the disk of the first, and goes on.
    goes_on(&home, &id).await;
    let kept = || std::fs::read_dir(home.path().join("snapshots")).unwrap().count();
    assert_eq!(kept(), 1);
    home.provider().destroy(&id).await.unwrap();
    crate::support::eventually("a sealed disk is left", || kept() == 0);
    home.assert_nothing_left();
}

#[tokio::test]
async fn a_sandbox_is_brought_back_with_its_files_and_its_processes() {
    if cannot_checkpoint("a_sandbox_is_brought_back_with_its_files_and_its_processes") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    drop(home.provider().guest(&id).start(busy()).await.unwrap());
    goes_on(&home, &id).await;
    shell(&home, &id, "echo first > /workspace/mark").await;
    let snapshot = captured(&home, &id, true).await;
    for _ in 0..2 {
        goes_on(&home, &id).await;
        shell(&home, &id, "rm /workspace/mark; pkill -f round_number; echo x > /workspace/new")
            .await;
        home.provider().roll_back(&id, &snapshot).await.unwrap();
        assert_eq!(
            shell(&home, &id, "ls /workspace; cat /workspace/mark").await,
            "log\nmark\nfirst\n"
        );
        goes_on(&home, &id).await;
    }
    home.provider().destroy(&id).await.unwrap();
    home.provider().remove_snapshot(&snapshot).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn files_alone_are_captured_of_what_ended_and_are_begun_anew() {
    if crate::support::needs_root("files_alone_are_captured_of_what_ended", "disk of its own") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    shell(&home, &id, "echo first > /workspace/mark").await;
    let (provider, snapshot) = (home.provider(), new_snapshot());
    let refused = provider.capture(&id, &snapshot, true).await.unwrap_err();
    assert!(refused.to_string().contains("is in memory"), "{refused}");
    provider.stop(&id).await.unwrap();
    provider.capture(&id, &snapshot, true).await.unwrap();
    // Asked twice, because the answer was lost.
    provider.capture(&id, &snapshot, true).await.unwrap();
    let listed = provider.snapshots().await.unwrap();
    assert!(!listed[0].memory && listed[0].layers.is_empty());
    let seen = provider.inspect(&id).await.unwrap().condition;
    assert_eq!(seen, Condition::Ended(Ending::Stopped));
    provider.start(&id, &SandboxSpec::default()).await.unwrap();
    shell(&home, &id, "rm /workspace/mark").await;
    let copy = restored(&home, &snapshot).await;
    assert_eq!(shell(&home, &copy, "cat /workspace/mark").await, "first\n");
    assert_eq!(run(&provider.guest(&id), "cat", &["/workspace/mark"]).await.code, 1);

    // A byte that is another is found before anything is made of it.
    let disk = home.path().join("snapshots").join(snapshot.as_str()).join("disk.ext4");
    provider.destroy(&copy).await.unwrap();
    home.kill_engine();
    {
        use std::os::unix::fs::FileExt;
        let disk = std::fs::File::options().read(true).write(true).open(&disk).unwrap();
        let mut byte = [0];
        disk.read_exact_at(&mut byte, 1024 + 0x78).unwrap();
        disk.write_all_at(&[byte[0] ^ 1], 1024 + 0x78).unwrap();
    }
    let provider = home.provider();
    let refused = provider.create(&random_id().unwrap(), &from(&snapshot)).await.unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.contains("is damaged"), "{text}");
    crate::support::eventually("something is left of the attempt", || {
        std::fs::read_dir(home.path().join("sandboxes")).unwrap().count() == 1
    });
    provider.destroy(&id).await.unwrap();
    provider.remove_snapshot(&snapshot).await.unwrap();
    home.assert_nothing_left();
}

#[tokio::test]
async fn many_snapshots_lie_over_one_another_and_more_than_that_are_refused() {
    let name = "many_snapshots_lie_over_one_another_and_more_than_that_are_refused";
    if crate::support::needs_root(name, "disk of its own") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    shell(&home, &id, "echo first > /workspace/mark").await;
    let provider = home.provider();
    provider.stop(&id).await.unwrap();
    let mut all = Vec::new();
    for number in 0..64 {
        all.push(new_snapshot());
        provider.capture(&id, &all[number], false).await.unwrap();
    }
    let refused = provider.capture(&id, &new_snapshot(), false).await.unwrap_err();
    assert!(matches!(&refused, ProviderError::Conflict { .. }), "{refused}");
    provider.start(&id, &SandboxSpec::default()).await.unwrap();
    shell(&home, &id, "echo second >> /workspace/mark; touch /usr/local/own").await;
    assert_eq!(shell(&home, &id, "cat /workspace/mark").await, "first\nsecond\n");
    let copy = restored(&home, &all[20]).await;
    assert_eq!(shell(&home, &copy, "cat /workspace/mark").await, "first\n");
    for one in [&id, &copy] {
        provider.destroy(one).await.unwrap();
    }
    for snapshot in &all {
        provider.remove_snapshot(snapshot).await.unwrap();
    }
    home.assert_nothing_left();
}
