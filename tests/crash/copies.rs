//! Somebody dies while a sandbox is captured, copied or brought back.

use serde_json::{Value, json};

use super::deaths::dies_over;
use super::operations::{DELETE, Operation, Outcome, Subject, Victim};
use super::orphans;
use super::scene::{Request, Scene};
use crate::support::cannot_checkpoint;
use crate::support::eventually;

const BOTH: &[Victim] = &[Victim::Daemon, Victim::Engine];

/// A snapshot of a sandbox that runs.
const CAPTURE: Operation = Operation {
    name: "capture",
    victims: &[Victim::Daemon, Victim::Engine, Victim::Child],
    is_engines: true,
    prepare: with_mark,
    request: |Subject { id, word }| {
        let path = format!("/v1/sandbox/{id}/snapshot/create");
        Request::new("POST", path, json!({ "name": word }).to_string())
    },
    done: 201,
    check: check_capture,
};

/// Another sandbox from it.
const RESTORE: Operation = Operation {
    name: "restore",
    victims: BOTH,
    prepare: |scene| {
        let subject = with_mark(scene);
        capture(scene, &subject);
        subject
    },
    request: |Subject { word, .. }| {
        let wish = json!({ "snapshot_name": word, "timeout": 3600 });
        Request::new("POST", "/v1/snapshot/restore".to_owned(), wish.to_string())
    },
    check: |scene, subject, outcome| check_copies(scene, subject, outcome, 1),
    ..CAPTURE
};

/// Two copies at once.
const FORK: Operation = Operation {
    name: "fork",
    victims: BOTH,
    request: |Subject { id, .. }| {
        let path = format!("/v1/sandbox/{id}/fork");
        Request::new("POST", path, json!({ "count": 2 }).to_string())
    },
    check: |scene, subject, outcome| check_copies(scene, subject, outcome, 2),
    ..CAPTURE
};

/// A sandbox that becomes what it was.
const ROLL_BACK: Operation = Operation {
    name: "roll back",
    victims: BOTH,
    prepare: |scene| {
        let subject = with_mark(scene);
        capture(scene, &subject);
        scene.daemon.execute(&subject.id, "echo later > /workspace/mark; sync");
        subject
    },
    request: |Subject { id, word }| {
        let path = format!("/v1/sandbox/{id}/rollback");
        Request::new("POST", path, json!({ "snapshot_name": word }).to_string())
    },
    done: 200,
    check: check_roll_back,
    ..CAPTURE
};

#[test]
fn a_snapshot_during_which_somebody_dies_is_there_whole_or_not_at_all() {
    let name = "a_snapshot_during_which_somebody_dies_is_there_whole_or_not_at_all";
    if !cannot_checkpoint(name) {
        dies_over(name, &[CAPTURE]);
    }
}

#[test]
fn a_restore_during_which_somebody_dies_is_made_whole_or_not_at_all() {
    let name = "a_restore_during_which_somebody_dies_is_made_whole_or_not_at_all";
    if !cannot_checkpoint(name) {
        dies_over(name, &[RESTORE]);
    }
}

#[test]
fn copies_during_which_somebody_dies_are_each_made_whole_or_not_at_all() {
    let name = "copies_during_which_somebody_dies_are_each_made_whole_or_not_at_all";
    if !cannot_checkpoint(name) {
        dies_over(name, &[FORK]);
    }
}

#[test]
fn a_way_back_during_which_somebody_dies_is_gone_or_not_begun() {
    let name = "a_way_back_during_which_somebody_dies_is_gone_or_not_begun";
    if !cannot_checkpoint(name) {
        dies_over(name, &[ROLL_BACK]);
    }
}

fn with_mark(scene: &mut Scene) -> Subject {
    let subject = (DELETE.prepare)(scene);
    scene.daemon.execute(&subject.id, "echo $PROOF > /workspace/mark; sync");
    subject
}

#[track_caller]
fn capture(scene: &Scene, subject: &Subject) {
    let answer = scene.attempt(&(CAPTURE.request)(subject)).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.json());
}

/// The snapshots with this name.
#[track_caller]
fn snapshots(scene: &Scene, word: &str) -> Vec<Value> {
    let answer = scene.daemon.ask("GET", &format!("/v1/snapshots?query={word}&page-size=100"), "");
    assert_eq!(answer.status, 200, "{}", answer.json());
    let items = answer.json()["items"].as_array().unwrap().clone();
    items.into_iter().filter(|one| one["name"] == word).collect()
}

/// A sandbox goes on, from wherever it is, and has this in its file.
#[track_caller]
fn assert_goes_on(scene: &Scene, id: &str, word: &str, marks: &[&str]) {
    let settled = || scene.seen(id).is_some_and(|seen| !is_on_its_way(&seen));
    eventually("it does not come to rest", settled);
    let seen = scene.seen(id).unwrap();
    if ["stopped", "error"].contains(&seen["state"].as_str().unwrap()) {
        assert!(seen["reason"].as_str().is_some_and(|why| !why.is_empty()), "{seen}");
        let answer = scene.daemon.ask("POST", &format!("/v1/sandbox/{id}/start"), "");
        assert!(answer.status < 300, "{seen}: {}", answer.json());
    }
    let mark = scene.daemon.execute(id, "cat /workspace/mark");
    assert!(marks.contains(&mark.trim()), "{mark}, and not one of {marks:?}: {seen}");
    scene.assert_usable(id, word);
}

fn is_on_its_way(seen: &Value) -> bool {
    let state = seen["state"].as_str().unwrap();
    ["starting", "snapshotting", "pausing", "unpausing", "deleting"].contains(&state)
}

/// Leaves nothing of a subject and what was made from it.
#[track_caller]
fn tidy(scene: &Scene, word: &str) {
    for seen in scene.found(word) {
        scene.delete(seen["id"].as_str().unwrap());
    }
    for one in snapshots(scene, word) {
        let path = format!("/v1/snapshot/{}", one["id"].as_str().unwrap());
        let answer = scene.daemon.ask("DELETE", &path, "");
        assert_eq!(answer.status, 204, "{}", answer.json());
    }
    orphans::assert_folders(scene.home(), &[scene.witness()]);
    let folder = scene.home().path().join("snapshots");
    eventually("a snapshot is left", || std::fs::read_dir(&folder).unwrap().count() == 0);
}

#[track_caller]
fn check_capture(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>) {
    assert_goes_on(scene, id, word, &[word]);
    let there = snapshots(scene, word);
    assert!(there.len() <= 1, "it is there twice: {there:?}");
    if outcome.answer.is_some_and(|answer| answer.status == 201) {
        assert_eq!(there.len(), 1, "it is lost");
    }
    if !there.is_empty() {
        // What is listed can be used.
        scene.daemon.execute(id, "echo later > /workspace/mark");
        let made =
            scene.attempt(&(RESTORE.request)(&Subject { id: id.clone(), word: word.clone() }));
        let made = made.unwrap();
        assert_eq!(made.status, 201, "{}", made.json());
        assert_goes_on(scene, made.json()["id"].as_str().unwrap(), word, &[word]);
    }
    tidy(scene, word);
}

#[track_caller]
fn check_copies(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>, most: usize) {
    assert_goes_on(scene, id, word, &[word]);
    let copies = || -> Vec<String> {
        let found = scene.found(word).into_iter();
        let ids = found.map(|seen| seen["id"].as_str().unwrap().to_owned());
        ids.filter(|other| other != id).collect()
    };
    let is_done = outcome.answer.is_some_and(|answer| answer.status == 201);
    let complete = match outcome.answer.filter(|_| is_done).map(|answer| answer.json()) {
        // Some copies may have failed, and that was said.
        Some(said) if said["items"].is_array() => said["items"].as_array().unwrap().len(),
        Some(_) => most,
        None => 0,
    };
    if outcome.answer.is_some() {
        eventually("what failed stays", || copies().len() == complete);
    }
    let copies = copies();
    assert!(copies.len() <= most, "there are too many: {copies:?}");
    for copy in &copies {
        assert_goes_on(scene, copy, word, &[word]);
    }
    tidy(scene, word);
}

#[track_caller]
fn check_roll_back(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>) {
    let is_done = outcome.answer.is_some_and(|answer| answer.status == 200);
    let marks: &[&str] = if is_done { &[word] } else { &[word, "later"] };
    assert_goes_on(scene, id, word, marks);
    tidy(scene, word);
}
