//! All that a sandbox holds goes through pauses again and again, and through the death of the daemon.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::support::{cannot_checkpoint, eventually, skip};

/// How often it is paused: with `SOMA_LONG` 1,000 times, and each time put on the disk.
const CYCLES: u32 = 100;

/// Without, it is put on the disk in as many of the first as fit in this time, and only frozen in
/// those that follow.
const TIME_FOR_THE_DISK: Duration = Duration::from_secs(30);
const LEAST_TO_DISK: u32 = 5;

/// What each language remembers: how it is told, and how it is asked.
const LANGUAGES: [(&str, &str, &str); 3] = [
    ("python", "kept = 4000 + 2", "print(kept)"),
    ("javascript", "globalThis.kept = 4000 + 2", "console.log(kept)"),
    ("r", "kept <- 4000 + 2", "cat(kept)"),
];

fn code(daemon: &Daemon, id: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/code{path}"), &body.to_string());
    (answer.status, answer.json())
}

fn act(daemon: &Daemon, id: &str, what: &str) -> Value {
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/{what}"), "");
    assert!(answer.status < 300, "{}", answer.json());
    answer.json()
}

/// The contexts of those languages that this host has.
fn contexts(daemon: &Daemon, id: &str, name: &str) -> Vec<(String, &'static str)> {
    let mut contexts = Vec::new();
    for (language, set, get) in LANGUAGES {
        let (status, made) = code(daemon, id, "/contexts", &json!({ "language": language }));
        if status != 201 {
            skip(&format!("{name} ({language})"), &made.to_string());
            continue;
        }
        let context = made["id"].as_str().unwrap().to_owned();
        let (status, said) =
            code(daemon, id, "/execute", &json!({ "code": set, "context_id": context }));
        assert!(status == 200 && said["error"].is_null(), "{language}: {said}");
        contexts.push((context, get));
    }
    contexts
}

#[test]
fn everything_goes_through_a_hundred_pauses_and_a_killed_daemon() {
    let name = "everything_goes_through_a_hundred_pauses_and_a_killed_daemon";
    if cannot_checkpoint(name) {
        return;
    }
    let is_long = std::env::var_os("SOMA_LONG").is_some();
    let cycles = if is_long { 10 * CYCLES } else { CYCLES };
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "box", "timeout": 86400}"#);
    let folder = daemon.home.path().join("sandboxes").join(&id);
    let write = format!("/v1/sandbox/{id}/filesystem/write-file?path=/workspace/proof.py");
    let written = daemon.ask("POST", &write, include_str!("proof.py"));
    assert_eq!(written.status, 204, "{}", written.json());
    let start = "head -c 3000000 /dev/urandom > blob; mkdir -p many; \
                 for i in $(seq 100); do echo $i > many/$i; done; \
                 nohup python3 proof.py > said 2>&1 &";
    daemon.execute(&id, &format!("cd /workspace; {start}"));
    let ask = "python3 -c \"import urllib.request as r; \
               print(r.urlopen('http://127.0.0.1:8123/', timeout=30).read().decode())\" 2>&1";
    eventually("the server does not answer", || !daemon.execute(&id, ask).contains("Error"));
    let hash = "cd /workspace; cat blob many/* | sha256sum";
    let files = daemon.execute(&id, hash);
    let contexts = contexts(&daemon, &id, name);
    let (mut asked, mut count, mut slept) = (0_u64, 0_u64, 0);
    let begun = Instant::now();
    for cycle in 0..cycles {
        let to_disk = is_long || cycle < LEAST_TO_DISK || begun.elapsed() < TIME_FOR_THE_DISK;
        let paused = act(&daemon, &id, if to_disk { "pause?grace=0" } else { "pause?grace=600" });
        assert_eq!(paused["state"], "paused", "cycle {cycle}");
        if to_disk {
            assert!(folder.join("asleep").exists(), "cycle {cycle}: {paused}");
            slept += 1;
        }
        if cycle == 3 || cycle == cycles / 2 {
            daemon.kill();
            if cycle == 3 {
                daemon.home.kill_engine();
            }
            daemon.restart();
            assert_eq!(daemon.state(&id), "paused", "cycle {cycle}");
        }
        // Whoever asks next has it resumed.
        let said = daemon.execute(&id, &format!("{hash}; {ask}"));
        let (now, answer) = said.split_once('\n').unwrap();
        assert_eq!(now, files.trim_end(), "cycle {cycle}");
        let numbers: Vec<u64> = answer.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [number, counted] = numbers[..] else { panic!("cycle {cycle}: {said}") };
        assert!(number > asked && counted > count, "cycle {cycle}: {said}, {asked}, {count}");
        (asked, count) = (number, counted);
        if cycle % 10 == 9 {
            for (context, get) in &contexts {
                let wish = json!({ "code": get, "context_id": context });
                let (status, said) = code(&daemon, &id, "/execute", &wish);
                assert_eq!(status, 200, "cycle {cycle}: {said}");
                assert!(said.to_string().contains("4002"), "cycle {cycle}: {said}");
            }
        }
    }
    let took = begun.elapsed();
    let words = format!("{cycles} cycles, {slept} of them to the disk, took {took:?}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), words.as_bytes());
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    daemon.close();
}

#[test]
fn ten_requests_at_once_cause_one_resume_and_looking_causes_none() {
    if cannot_checkpoint("ten_requests_at_once_cause_one_resume_and_looking_causes_none") {
        return;
    }
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "box", "labels": {"a": "b"}}"#);
    act(&daemon, &id, "pause?grace=0");
    let folder = daemon.home.path().join("sandboxes").join(&id);
    for path in [format!("/v1/sandbox/{id}"), "/v1/sandboxes".to_owned()] {
        assert_eq!(daemon.ask("GET", &path, "").status, 200);
    }
    assert!(folder.join("asleep").exists(), "somebody looked, and it was resumed");
    std::thread::scope(|scope| {
        let asks: Vec<_> = (0..10)
            .map(|n| {
                scope.spawn({
                    let (daemon, id) = (&daemon, &id);
                    move || daemon.execute(id, &format!("echo {n}"))
                })
            })
            .collect();
        for (n, ask) in asks.into_iter().enumerate() {
            assert_eq!(ask.join().unwrap(), format!("{n}\n"));
        }
    });
    let events = daemon.ask("GET", &format!("/v1/events?sandbox={id}"), "").json();
    let all = events["items"].as_array().unwrap_or_else(|| panic!("{events}"));
    let resumes = all.iter().filter(|event| event.to_string().contains("unpausing")).count();
    assert_eq!(resumes, 1, "{events}");
    act(&daemon, &id, "pause?grace=0");
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    let events = daemon.ask("GET", &format!("/v1/events?sandbox={id}"), "").json();
    let all = events["items"].as_array().unwrap();
    let resumes = all.iter().filter(|event| event.to_string().contains("unpausing")).count();
    assert_eq!(resumes, 1, "it was resumed to be deleted: {events}");
    daemon.close();
}
