//! Dumps and wakes that something comes in between of.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use domain::{Rest, SandboxId, SandboxSpec};
use provider::Condition;
use tokio::task::JoinSet;

use super::frozen::{COUNTER, count};
use super::slept::made;
use crate::conformance::run;
use crate::support::{Home, cannot_checkpoint, eventually};

/// Starts something in a sandbox that goes on by itself.
async fn leave_running(home: &Home, id: &SandboxId, command: &str) {
    let background = format!("({command}) > /dev/null 2>&1 & true");
    let guest = home.provider().guest(id);
    assert_eq!(run(&guest, "sh", &["-c", &background]).await.code, 0);
}

/// Waits until the counter is beyond this, and says where it is then.
async fn counted_beyond(home: &Home, id: &SandboxId, before: u64) -> u64 {
    for _ in 0..300 {
        let now = count(home, id).await;
        if now > before {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the counter does not go on after {before}");
}

/// An engine that uses another CRIU.
fn engine_with(home: &Home, criu: &Path) -> Child {
    let mut engine = home.soma(["engine", &format!("--home={}", home.path().display())]);
    let engine = engine.arg("--detach").env("SOMA_CRIU", criu).spawn().unwrap();
    eventually("no engine comes", || home.path().join("engine.sock").exists());
    engine
}

/// A program of the test's own in place of CRIU.
fn script(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("criu");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Processes come to be, end and kill each other all the time: also while CRIU looks for them, and
/// in the moment in which it lets them go.
#[tokio::test]
async fn a_sandbox_full_of_short_lived_processes_is_put_on_the_disk_and_woken() {
    if cannot_checkpoint("a_sandbox_full_of_short_lived_processes_is_put_on_the_disk_and_woken") {
        return;
    }
    let cycles = if std::env::var_os("SOMA_LONG").is_some() { 200 } else { 10 };
    let home = Home::new();
    let id = made(&home).await;
    leave_running(&home, &id, COUNTER).await;
    leave_running(&home, &id, "while :; do /bin/true & wait; done").await;
    leave_running(&home, &id, "while :; do sleep 9 & kill -9 $!; wait; done").await;
    leave_running(&home, &id, "while :; do sleep 9 & kill $!; wait; done").await;
    let mut before = 0;
    for cycle in 0..cycles {
        home.provider().pause(&id).await.unwrap();
        let rest = home.provider().hibernate(&id).await.unwrap();
        assert_eq!(rest, Rest::Hibernated, "cycle {cycle}");
        home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
        before = counted_beyond(&home, &id, before).await;
    }
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

/// CRIU waits in vain for a process that it held and that ended.
#[tokio::test]
async fn a_dump_that_lost_count_of_the_processes_is_tried_again() {
    if cannot_checkpoint("a_dump_that_lost_count_of_the_processes_is_tried_again") {
        return;
    }
    // Not in `/tmp`, which is another one for whoever restores.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tries = folder.path().join("tries");
    std::fs::write(&tries, "").unwrap();
    std::fs::set_permissions(&tries, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let criu = script(
        folder.path(),
        &format!(
            "if [ \"$1\" = dump ]; then echo try >> {tries}\n\
             [ $(wc -l < {tries}) = 3 ] || {{ echo 'Error (criu/util.c:1): Timeout reached. Try to \
             interrupt: 0' >&2; exit 1; }}; fi\nexec {criu} \"$@\"",
            tries = tries.display(),
            criu = std::env::var("SOMA_CRIU").unwrap(),
        ),
    );
    let home = Home::new();
    let mut engine = engine_with(&home, &criu);
    let id = made(&home).await;
    leave_running(&home, &id, COUNTER).await;
    home.provider().pause(&id).await.unwrap();
    assert_eq!(home.provider().hibernate(&id).await.unwrap(), Rest::Hibernated);
    home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
    let before = counted_beyond(&home, &id, 0).await;
    // It counts on from the third: this one is the fourth, and all others are lost too.
    home.provider().pause(&id).await.unwrap();
    let rest = home.provider().hibernate(&id).await.unwrap();
    let Rest::Frozen { because: Some(because) } = rest else { panic!("{rest:?}") };
    assert!(because.contains("Timeout reached"), "{because}");
    assert_eq!(std::fs::read_to_string(&tries).unwrap().lines().count(), 6);
    home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
    counted_beyond(&home, &id, before).await;
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
    let _ = engine.wait();
}

/// Whoever dumps goes on without the engine, and the next one hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_killed_during_a_dump_leaves_a_sandbox_that_stands_still() {
    if cannot_checkpoint("an_engine_killed_during_a_dump_leaves_a_sandbox_that_stands_still") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    leave_running(&home, &id, COUNTER).await;
    let hold = "exec python3 -c 'import os, time; b = os.urandom(200 << 20); time.sleep(9999)'";
    leave_running(&home, &id, hold).await;
    let mut before = counted_beyond(&home, &id, 0).await;
    for after in [5, 20, 40, 80, 120, 160, 200, 300, 400, 600, 900, 1500] {
        home.provider().pause(&id).await.unwrap();
        let (provider, sleeper) = (home.provider(), id.clone());
        let mut dump = JoinSet::new();
        dump.spawn(async move { provider.hibernate(&sleeper).await });
        tokio::time::sleep(Duration::from_millis(after)).await;
        home.kill_engine();
        let seen = home.provider().inspect(&id).await.unwrap().condition;
        assert!(matches!(seen, Condition::Paused(_)), "after {after} ms: {seen:?}");
        if after % 3 == 0 {
            // Whoever asked asks the next engine, which knows.
            assert_eq!(
                dump.join_next().await.unwrap().unwrap().unwrap(),
                Rest::Hibernated,
                "after {after} ms"
            );
        }
        home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
        before = counted_beyond(&home, &id, before).await;
    }
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

/// Whoever dumps may be killed too, and CRIU with it: then what it held runs on, and stands still
/// again before anybody is told that it does not.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dumps_may_be_killed_and_the_sandbox_stands_still() {
    if cannot_checkpoint("whoever_dumps_may_be_killed_and_the_sandbox_stands_still") {
        return;
    }
    let home = Home::new();
    let id = made(&home).await;
    leave_running(&home, &id, COUNTER).await;
    let hold = "exec python3 -c 'import os, time; b = os.urandom(100 << 20); time.sleep(9999)'";
    leave_running(&home, &id, hold).await;
    let mut before = counted_beyond(&home, &id, 0).await;
    for (after, with_engine) in [(100, false), (300, true), (450, false), (600, true)] {
        home.provider().pause(&id).await.unwrap();
        let (provider, sleeper) = (home.provider(), id.clone());
        let mut dump = JoinSet::new();
        dump.spawn(async move { provider.hibernate(&sleeper).await });
        tokio::time::sleep(Duration::from_millis(after)).await;
        if with_engine {
            home.kill_engine();
        }
        for process in dumpers(&home, with_engine) {
            let process = rustix::process::Pid::from_raw(process).unwrap();
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        let said = dump.join_next().await.unwrap().unwrap();
        assert!(with_engine || said.is_ok(), "{said:?}");
        let seen = home.provider().inspect(&id).await.unwrap().condition;
        assert!(matches!(seen, Condition::Paused(_)), "after {after} ms: {seen:?}");
        home.provider().resume(&id, &SandboxSpec::default()).await.unwrap();
        before = counted_beyond(&home, &id, before).await;
        let folder = home.path().join("sandboxes").join(id.as_str());
        assert!(!folder.join("asleep.new").exists(), "after {after} ms something is left");
        assert_eq!(dumpers(&home, true), [0; 0], "who dumped is left");
    }
    home.provider().destroy(&id).await.unwrap();
    home.assert_nothing_left();
}

/// Who dumps in this home: CRIU, or also who waits for it.
fn dumpers(home: &Home, with_criu: bool) -> Vec<i32> {
    let images = home.path().display().to_string();
    let engines = home.engines();
    let is_one = |process: &i32| {
        let file = |name| std::fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
        let line = String::from_utf8_lossy(&file("cmdline")).replace('\0', " ");
        with_criu && line.contains(" dump ") && line.contains(&images)
            || !with_criu && has_parent_among(*process, &engines) && line.contains(" engine ")
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

fn has_parent_among(process: i32, parents: &[u32]) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    parent.is_some_and(|parent| parents.contains(&parent))
        && !parents.contains(&u32::try_from(process).unwrap())
}
