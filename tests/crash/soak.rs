//! Daemon and engine are killed at random while others work.
//!
//! Workers make sandboxes, write files, run commands and delete, and remember what they were told.
//! At the end all of it has to be true.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::operations::{CREATE, DELETE, EXECUTE, Operation, Outcome, Subject, WRITE};
use super::scene::{Request, Scene};
use super::{Chance, Where, is_long, say};
use crate::daemon::Answer;
use crate::support::needs_root;

/// How many work at a time.
const WORKERS: u64 = 3;

/// The longest pause between two kills, in milliseconds.
const PAUSE: u64 = 700;

/// How long something is asked for again and again.
const PATIENCE: Duration = Duration::from_mins(1);

/// Of so many sandboxes one is kept until the end. Each engine that starts takes all of them over,
/// so hundreds would be a test of that.
fn kept() -> u64 {
    if is_long() { 40 } else { 4 }
}

/// How a story ended.
enum Story {
    /// With a sandbox whose making was confirmed, and what else was.
    Kept(Subject, Operation, Option<Answer>),
    /// With one whose end was.
    Deleted(String),
    /// Nobody confirmed that there is a sandbox.
    Open,
}

#[test]
fn what_was_confirmed_outlives_a_daemon_and_an_engine_that_die_again_and_again() {
    let name = "what_was_confirmed_outlives_a_daemon_and_an_engine_that_die_again_and_again";
    if needs_root(name, "daemon apart from its starter") {
        return;
    }
    let kills = if is_long() { 1000 } else { 12 };
    let mut chance = Chance::of_this_run();
    let scene = RwLock::new(Scene::set());
    let (over, words) = (AtomicBool::new(false), AtomicU64::new(0));
    let stories: Vec<Story> = std::thread::scope(|scope| {
        let work = || {
            let mut stories = Vec::new();
            while !over.load(Ordering::Relaxed) {
                stories.push(story(&scene, words.fetch_add(1, Ordering::Relaxed)));
            }
            stories
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        // The workers must end also when this fails.
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..kills {
                std::thread::sleep(Duration::from_millis(chance.below(PAUSE)));
                kill_one(&scene, &mut chance);
            }
        }));
        over.store(true, Ordering::Relaxed);
        let stories = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        killed.unwrap();
        stories
    });
    let mut scene = scene.into_inner().unwrap();
    say(&format!("{kills} kills, {} stories", stories.len()));
    // What an engine finished that nobody waited for any more is found at the next start.
    scene.restart_daemon();
    let mut deleted = BTreeSet::new();
    for story in &stories {
        match story {
            Story::Kept(subject, operation, answer) => {
                let _where = Where(format!("{}: {} {answer:?}", operation.name, subject.word));
                scene.assert_usable(&subject.id, &subject.word);
                assert_eq!(scene.found(&subject.word).len(), 1, "it was made twice");
                let outcome = Outcome { answer: answer.as_ref(), may_have_ended: false };
                (operation.check)(&scene, subject, outcome);
            }
            Story::Deleted(id) => drop(deleted.insert(id.clone())),
            Story::Open => {}
        }
    }
    delete_rest(&scene, &deleted);
    scene.witness_testifies();
    scene.close();
}

/// Deletes what is there without anybody having been told, each of which is whole or explained.
fn delete_rest(scene: &Scene, deleted: &BTreeSet<String>) {
    let listed = scene.daemon.ask("GET", "/v1/sandboxes?page-size=100", "").json();
    let mut words = BTreeSet::new();
    for item in listed["items"].as_array().unwrap() {
        let id = item["id"].as_str().unwrap();
        if id == scene.witness() {
            continue;
        }
        assert!(!deleted.contains(id), "it is back: {item}");
        let word = item["labels"]["word"].as_str().unwrap();
        assert!(words.insert(word.to_owned()), "it was made twice: {item}");
        scene.assert_usable_or_explained(&scene.seen(id).unwrap(), word);
        scene.delete(id);
    }
}

/// Kills the daemon and starts the next one, or the engine, which the daemon replaces.
fn kill_one(scene: &RwLock<Scene>, chance: &mut Chance) {
    let is_daemon = chance.below(2) == 0;
    let processes = {
        let scene = look(scene);
        if is_daemon { scene.home().daemons() } else { scene.home().engines() }
    };
    for process in processes {
        let _ = kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL);
    }
    if is_daemon {
        scene.write().unwrap_or_else(PoisonError::into_inner).restart_daemon();
    }
}

/// One sandbox from beginning to end, or until it is to be kept.
fn story(scene: &RwLock<Scene>, number: u64) -> Story {
    let mut subject = Subject { id: String::new(), word: format!("story{number}") };
    let _where = Where(format!("story {number}"));
    match attempt(scene, &(CREATE.request)(&subject)) {
        Some(answer) if answer.status == CREATE.done => {
            answer.json()["id"].as_str().unwrap().clone_into(&mut subject.id);
        }
        _ => return tidy_up(scene, &subject.word),
    }
    let operation = if number.is_multiple_of(2) { WRITE } else { EXECUTE };
    let answer = attempt(scene, &(operation.request)(&subject));
    if number.is_multiple_of(kept()) {
        return Story::Kept(subject, operation, answer);
    }
    let gone = insist(scene, &(DELETE.request)(&subject));
    assert!([204, 404].contains(&gone.status), "{}", String::from_utf8_lossy(&gone.body));
    let left = insist(scene, &Request::new("GET", format!("/v1/sandbox/{}", subject.id), ""));
    assert_eq!(left.status, 404, "it is back: {}", String::from_utf8_lossy(&left.body));
    Story::Deleted(subject.id)
}

/// Deletes what nobody confirmed, which is there once at most.
fn tidy_up(scene: &RwLock<Scene>, word: &str) -> Story {
    let path = format!("/v1/sandboxes?label=word%3D{word}");
    let listed = insist(scene, &Request::new("GET", path, "")).json();
    let items = listed["items"].as_array().unwrap();
    assert!(items.len() <= 1, "it was made twice: {listed}");
    for item in items {
        let path = format!("/v1/sandbox/{}", item["id"].as_str().unwrap());
        let gone = insist(scene, &Request::new("DELETE", path, ""));
        assert!([204, 404].contains(&gone.status), "{}", String::from_utf8_lossy(&gone.body));
    }
    Story::Open
}

fn attempt(scene: &RwLock<Scene>, request: &Request) -> Option<Answer> {
    look(scene).attempt(request)
}

/// Asks until somebody answers who is not just dying.
#[track_caller]
fn insist(scene: &RwLock<Scene>, request: &Request) -> Answer {
    let begun = Instant::now();
    loop {
        match attempt(scene, request) {
            Some(answer) if answer.status < 500 => return answer,
            answer => assert!(begun.elapsed() < PATIENCE, "{} {answer:?}", request.path),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn look(scene: &RwLock<Scene>) -> RwLockReadGuard<'_, Scene> {
    scene.read().unwrap_or_else(PoisonError::into_inner)
}
