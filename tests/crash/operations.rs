//! What is interrupted, and what has to hold afterwards.

use std::time::{Duration, Instant};

use serde_json::json;

use super::orphans;
use super::scene::{Request, Scene, wish};
use super::tracer::{Plan, Seen, Tracer};
use super::witness::follow;
use crate::daemon::Answer;
use crate::support::eventually;

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Daemon,
    Engine,
    /// What the engine forks for the operation: a launcher, which becomes a supervisor, or
    /// whoever removes a folder.
    Child,
    /// The supervisor of the sandbox that it is about.
    Supervisor,
}

/// What an operation is about.
pub(super) struct Subject {
    pub(super) id: String,
    pub(super) word: String,
}

/// What came of an operation.
#[derive(Clone, Copy)]
pub(super) struct Outcome<'a> {
    /// What was answered; nothing when the daemon died over it.
    pub(super) answer: Option<&'a Answer>,
    /// Whether whoever holds the sandbox was killed, so that it may have ended.
    pub(super) may_have_ended: bool,
}

impl Outcome<'_> {
    /// The answer, if it says that it is done.
    fn done(&self, status: u16) -> Option<&Answer> {
        self.answer.filter(|answer| answer.status == status)
    }
}

/// Something that is asked of a daemon, and what is promised about it.
pub(super) struct Operation {
    pub(super) name: &'static str,
    /// Who has a part in it, and so can die over it.
    pub(super) victims: &'static [Victim],
    /// Whether the engine and the supervisor do something in it, so that their own calls count.
    pub(super) is_engines: bool,
    /// Makes what it is about.
    pub(super) prepare: fn(&mut Scene) -> Subject,
    pub(super) request: fn(&Subject) -> Request,
    /// The status of an answer that says that it is done.
    pub(super) done: u16,
    /// Checks what is promised, and leaves nothing of the subject.
    pub(super) check: fn(&Scene, &Subject, Outcome<'_>),
}

impl Operation {
    /// Asks for it while somebody is watched.
    pub(super) fn traced(
        &self,
        scene: &Scene,
        subject: &Subject,
        plan: Plan,
    ) -> (Option<Answer>, Seen) {
        let request = (self.request)(subject);
        let tracer = Tracer::begin(plan);
        let answer = scene.attempt(&request);
        (answer, tracer.end())
    }
}

const ALL: &[Victim] = &[Victim::Daemon, Victim::Engine, Victim::Supervisor];

/// A sandbox, from those that are prepared.
pub(super) const CREATE: Operation = Operation {
    name: "create",
    victims: &[Victim::Daemon, Victim::Engine],
    is_engines: true,
    prepare: |scene| Subject { id: String::new(), word: scene.word() },
    request: |Subject { word, .. }| {
        Request::new("POST", "/v1/sandbox".to_owned(), wish(word, None).to_string())
    },
    done: 201,
    check: check_create,
};

/// A sandbox of a size for which none is prepared.
pub(super) const LAUNCH: Operation = Operation {
    name: "create with a launch",
    victims: &[Victim::Child, Victim::Engine],
    request: |Subject { word, .. }| {
        Request::new("POST", "/v1/sandbox".to_owned(), wish(word, Some(100)).to_string())
    },
    ..CREATE
};

/// A command that is waited for.
pub(super) const EXECUTE: Operation = Operation {
    name: "execute",
    victims: ALL,
    is_engines: false,
    prepare: with_sandbox,
    request: |Subject { id, word }| {
        let command = format!("echo {word} >> /workspace/ledger; echo {word}");
        let path = format!("/v1/sandbox/{id}/process/execute");
        Request::new("POST", path, json!({ "command": command }).to_string())
    },
    done: 200,
    check: check_execute,
};

/// A command that is left running.
pub(super) const PROCESS: Operation = Operation {
    name: "process",
    request: |Subject { id, word }| {
        let command = format!("echo {word} >> /workspace/ledger; seq {LINES}; exec sleep 1000");
        let path = format!("/v1/sandbox/{id}/process");
        Request::new("POST", path, json!({ "command": command, "tag": word }).to_string())
    },
    done: 201,
    check: check_process,
    ..EXECUTE
};

/// A file that takes another's place.
pub(super) const REPLACE: Operation = Operation {
    name: "replace a file",
    prepare: |scene| {
        let subject = with_sandbox(scene);
        let old = file(&subject, OLD);
        let answer = scene.attempt(&old).unwrap();
        assert_eq!(answer.status, 204, "{}", answer.json());
        subject
    },
    request: |subject| file(subject, NEW),
    done: 204,
    check: |scene, subject, outcome| check_file(scene, subject, outcome, Some(OLD)),
    ..EXECUTE
};

/// A file that was not there.
pub(super) const WRITE: Operation = Operation {
    name: "write a file",
    prepare: with_sandbox,
    check: |scene, subject, outcome| check_file(scene, subject, outcome, None),
    ..REPLACE
};

/// The end of a sandbox and of all of it.
pub(super) const DELETE: Operation = Operation {
    name: "delete",
    victims: &[Victim::Daemon, Victim::Engine, Victim::Child, Victim::Supervisor],
    is_engines: true,
    prepare: with_sandbox,
    request: |Subject { id, .. }| Request::new("DELETE", format!("/v1/sandbox/{id}"), Vec::new()),
    done: 204,
    check: check_delete,
};

/// A sandbox that was stopped and runs again.
pub(super) const START: Operation = Operation {
    name: "start",
    victims: &[Victim::Daemon, Victim::Engine, Victim::Child],
    prepare: |scene| {
        let subject = with_sandbox(scene);
        scene.daemon.execute(&subject.id, "echo $PROOF > /workspace/mark; sync");
        let path = format!("/v1/sandbox/{}/stop", subject.id);
        let answer = scene.daemon.ask("POST", &path, "");
        assert!(answer.status < 300, "{}", answer.json());
        subject
    },
    request: |Subject { id, .. }| {
        Request::new("POST", format!("/v1/sandbox/{id}/start"), Vec::new())
    },
    done: 200,
    check: check_start,
    ..DELETE
};

/// A sandbox that stands still, and goes to the disk where there is CRIU. Whoever dumps is not watched:
/// CRIU cannot hold what somebody else traces.
pub(super) const PAUSE: Operation = Operation {
    name: "pause",
    victims: &[Victim::Daemon, Victim::Engine],
    prepare: with_counter,
    request: |Subject { id, .. }| {
        Request::new("POST", format!("/v1/sandbox/{id}/pause?grace=0"), Vec::new())
    },
    done: 201,
    check: check_pause,
    ..DELETE
};

/// A sandbox that stood still and goes on.
pub(super) const RESUME: Operation = Operation {
    name: "resume",
    prepare: |scene| {
        let subject = with_counter(scene);
        let path = format!("/v1/sandbox/{}/pause?grace=0", subject.id);
        let answer = scene.daemon.ask("POST", &path, "");
        assert_eq!(answer.status, 201, "{}", answer.json());
        subject
    },
    request: |Subject { id, .. }| {
        Request::new("POST", format!("/v1/sandbox/{id}/resume"), Vec::new())
    },
    done: 200,
    ..PAUSE
};

/// How much a command says that is left running.
const LINES: u64 = 5000;

/// What a file holds before, and what it shall hold: a byte, and how often.
type Content = (u8, usize);
const OLD: Content = (b'o', 300_000);
const NEW: Content = (b'n', 1_500_000);

/// How long what is done without an answer may go on.
const PATIENCE: Duration = Duration::from_secs(15);

fn with_sandbox(scene: &mut Scene) -> Subject {
    let word = scene.word();
    Subject { id: scene.make(&word), word }
}

/// A sandbox in which something counts.
fn with_counter(scene: &mut Scene) -> Subject {
    let subject = with_sandbox(scene);
    let count = "(n=0; while :; do n=$((n+1)); echo $n > /workspace/n.new; \
                 mv /workspace/n.new /workspace/n; sleep 0.02; done) > /dev/null 2>&1 & \
                 echo $PROOF > /workspace/mark";
    scene.daemon.execute(&subject.id, count);
    subject
}

/// It stands still or runs, and goes on counting for whoever asks next.
#[track_caller]
fn check_pause(scene: &Scene, Subject { id, word }: &Subject, _: Outcome<'_>) {
    assert_eq!(scene.found(word).len(), 1, "it is lost, or there twice");
    eventually("it stays on its way", || {
        let seen = scene.seen(id).unwrap();
        ["running", "paused"].contains(&seen["state"].as_str().unwrap())
    });
    let path = format!("/v1/sandbox/{id}/resume");
    eventually("it cannot be resumed", || scene.daemon.ask("POST", &path, "").status == 200);
    assert_eq!(scene.daemon.execute(id, "cat /workspace/mark"), format!("{word}\n"));
    let count = || scene.daemon.execute(id, "cat /workspace/n").trim().parse::<u64>().unwrap_or(0);
    let before = count();
    eventually("it does not go on", || count() > before);
    scene.delete(id);
}

fn file(Subject { id, word }: &Subject, (byte, length): Content) -> Request {
    let path = format!("/v1/sandbox/{id}/filesystem/write-file?path=/workspace/{word}/file");
    Request::new("POST", path, vec![byte; length])
}

#[track_caller]
fn check_create(scene: &Scene, Subject { word, .. }: &Subject, outcome: Outcome<'_>) {
    let found = scene.found(word);
    assert!(found.len() <= 1, "it was made twice: {found:?}");
    match outcome.done(201) {
        Some(answer) => {
            assert_eq!(found.len(), 1, "it is lost: {}", answer.json());
            assert_eq!(found[0]["id"], answer.json()["id"]);
            let id = found[0]["id"].as_str().unwrap();
            if outcome.may_have_ended {
                scene.assert_usable_or_ended(id, word);
            } else {
                scene.assert_usable(id, word);
            }
        }
        None if outcome.answer.is_some() => {
            assert!(found.is_empty(), "what failed stays: {found:?}");
        }
        None => {
            if let Some(seen) = found.first() {
                scene.assert_usable_or_explained(seen, word);
            }
        }
    }
    for seen in &found {
        scene.delete(seen["id"].as_str().unwrap());
    }
    orphans::assert_folders(scene.home(), &[scene.witness()]);
}

#[track_caller]
fn check_execute(scene: &Scene, subject: &Subject, outcome: Outcome<'_>) {
    let Subject { id, word } = subject;
    if !runs(scene, subject, outcome) {
        return;
    }
    let times = times_begun(scene, subject);
    assert!(times <= 1, "it was begun {times} times");
    if let Some(answer) = outcome.done(200) {
        assert_eq!(times, 1, "it was never begun");
        assert_eq!(answer.json()["stdout"], format!("{word}\n"));
    }
    scene.delete(id);
}

#[track_caller]
fn check_process(scene: &Scene, subject: &Subject, outcome: Outcome<'_>) {
    let Subject { id, word } = subject;
    if !runs(scene, subject, outcome) {
        return;
    }
    let listed = scene.daemon.ask("GET", &format!("/v1/sandbox/{id}/processes"), "").json();
    let items = listed["items"].as_array().unwrap().iter();
    let own = items.filter(|item| item["tag"] == word.as_str()).count();
    assert!(own <= 1, "it runs {own} times: {listed}");
    if let Some(answer) = outcome.done(201) {
        assert_eq!(own, 1, "it does not run: {listed}");
        let pid = answer.json()["pid"].as_u64().unwrap();
        let lines: Vec<String> = (1..=LINES).map(|line| line.to_string()).collect();
        let all = lines.join("\n") + "\n";
        for offset in [0, all.len() / 3] {
            let rest = &all[offset..];
            assert_eq!(said(scene, id, pid, offset as u64, rest.len()), rest, "from {offset}");
        }
        assert_eq!(times_begun(scene, subject), 1);
    }
    let times = times_begun(scene, subject);
    assert!(times <= 1, "it was begun {times} times");
    scene.delete(id);
}

/// What a process said from an offset on, when it is at least so much.
#[track_caller]
fn said(scene: &Scene, id: &str, pid: u64, offset: u64, length: usize) -> String {
    let mut said = String::new();
    follow(&scene.daemon, id, pid, offset, |event| {
        if event["type"] == "stdout" {
            said.push_str(event["data"].as_str().unwrap());
        }
        assert_ne!(event["type"], "dropped", "{event}");
        said.len() >= length
    });
    said
}

#[track_caller]
fn check_file(scene: &Scene, subject: &Subject, outcome: Outcome<'_>, old: Option<Content>) {
    let Subject { id, word } = subject;
    if !runs(scene, subject, outcome) {
        return;
    }
    let is_written = outcome.done(204).is_some();
    let whole = |content: Option<Content>| {
        content.map_or_else(String::new, |(byte, length)| {
            format!("file {length} {length} {}\n", char::from(byte))
        })
    };
    let wanted: Vec<String> =
        if is_written { vec![whole(Some(NEW))] } else { vec![whole(old), whole(Some(NEW))] };
    // Each entry, its length, how many bytes are like the first, and the first.
    let look = format!(
        "cd /workspace/{word} 2>/dev/null || exit 0; for f in $(ls -A); do first=$(head -c1 $f); \
         echo $f $(wc -c < $f) $(tr -dc \"$first\" < $f | wc -c) $first; done"
    );
    let begun = Instant::now();
    let mut there = scene.daemon.execute(id, &look);
    // Whoever was interrupted without having said that it is done may still tidy up.
    while !wanted.contains(&there) && !is_written && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        there = scene.daemon.execute(id, &look);
    }
    assert!(wanted.contains(&there), "there is `{there}`, and not one of {wanted:?}");
    scene.delete(id);
}

#[track_caller]
fn check_delete(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>) {
    let is_gone = outcome.done(204).is_some();
    if let Some(seen) = scene.seen(id) {
        assert!(!is_gone, "it is back: {seen}");
        if seen["state"] != "deleting" {
            scene.assert_usable_or_explained(&seen, word);
        }
        // Somebody may still be at it.
        let again = scene.daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
        assert!([204, 404].contains(&again.status), "{}", again.json());
    }
    assert!(scene.found(word).is_empty());
    orphans::assert_folders(scene.home(), &[scene.witness()]);
}

#[track_caller]
fn check_start(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>) {
    if outcome.done(200).is_some() && !outcome.may_have_ended {
        scene.assert_usable(id, word);
    } else if outcome.may_have_ended && scene.seen(id).unwrap()["state"] == "running" {
        // Whoever held it was killed, and nobody may have taken note yet.
        scene.assert_usable_or_ended(id, word);
    }
    let seen = scene.seen(id).unwrap();
    if seen["state"] != "running" {
        scene.assert_usable_or_explained(&seen, word);
        let again = scene.daemon.ask("POST", &format!("/v1/sandbox/{id}/start"), "");
        assert!(again.status < 300, "{}", again.json());
    }
    scene.assert_usable(id, word);
    assert_eq!(scene.daemon.execute(id, "cat /workspace/mark"), format!("{word}\n"));
    scene.delete(id);
}

/// Whether the sandbox still runs. One whose supervisor died says so, and can be deleted.
#[track_caller]
fn runs(scene: &Scene, Subject { id, word }: &Subject, outcome: Outcome<'_>) -> bool {
    if !outcome.may_have_ended {
        scene.assert_usable(id, word);
        return true;
    }
    eventually("a dead sandbox is said to run", || {
        scene.seen(id).is_some_and(|seen| seen["state"] != "running")
    });
    scene.assert_usable_or_explained(&scene.seen(id).unwrap(), word);
    scene.delete(id);
    false
}

#[track_caller]
fn times_begun(scene: &Scene, Subject { id, word }: &Subject) -> usize {
    let ledger = scene.daemon.execute(id, "cat /workspace/ledger 2>/dev/null; true");
    ledger.lines().filter(|line| line == word).count()
}
