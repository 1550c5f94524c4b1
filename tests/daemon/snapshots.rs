//! Snapshots, copies and ways back, over HTTP and by the commands.

use serde_json::{Value, json};

use super::Daemon;
use crate::code::through_daemon::{context, execute, stdout};
use crate::support::{cannot_checkpoint, skip};

#[track_caller]
fn ask(daemon: &Daemon, method: &str, path: &str, body: &Value, status: u16) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = daemon.ask(method, path, &text);
    let seen = if answer.body.is_empty() { Value::Null } else { answer.json() };
    assert_eq!(answer.status, status, "{method} {path}: {seen}");
    seen
}

#[track_caller]
fn forked(daemon: &Daemon, id: &str, count: usize) -> Vec<String> {
    let made =
        ask(daemon, "POST", &format!("/v1/sandbox/{id}/fork"), &json!({"count": count}), 201);
    assert_eq!(made["errors"], json!([]), "{made}");
    let ids = made["items"].as_array().unwrap().iter();
    let ids: Vec<String> = ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), count);
    ids
}

/// What draws a random number in each language, after what remembers something.
const LANGUAGES: [(&str, &str, &str, &str); 4] = [
    (
        "python",
        "import random; kept = 'python'; random.seed(7)",
        "print(kept)",
        "print(random.random())",
    ),
    ("javascript", "const kept = 'javascript'", "console.log(kept)", "console.log(Math.random())"),
    ("r", "kept <- 'r'; set.seed(7)", "cat(kept)", "cat(runif(1))"),
    ("bash", "kept=bash; RANDOM=7", "echo $kept", "echo $RANDOM-$RANDOM"),
];

#[test]
fn copies_have_what_kernels_hold_and_are_told_apart() {
    let test = "copies_have_what_kernels_hold_and_are_told_apart";
    if cannot_checkpoint(test) {
        return;
    }
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "first"}"#);
    let token = |id: &str| {
        let answer = daemon.ask("GET", &format!("/sandboxes/{id}"), "");
        answer.json()["envdAccessToken"].as_str().unwrap().to_owned()
    };
    let mut contexts = Vec::new();
    for (language, set, get, draw) in LANGUAGES {
        let is_there = daemon
            .execute(&id, "for one in python3 node Rscript bash; do command -v $one; done; true");
        let program = match language {
            "javascript" => "node",
            "r" => "Rscript",
            "python" => "python3",
            other => other,
        };
        if !is_there.contains(program) {
            skip(&format!("{test} ({language})"), &format!("there is no {program} here"));
            continue;
        }
        let context = context(&daemon, &id, language);
        execute(&daemon, &id, Some(&context), set);
        contexts.push((language, context, get, draw));
    }
    assert!(!contexts.is_empty());
    let copies = forked(&daemon, &id, 3);
    let mut tokens: Vec<String> = copies.iter().chain([&id]).map(|id| token(id)).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "copies have one token");
    for (language, context, get, draw) in &contexts {
        let mut drawn = Vec::new();
        for copy in copies.iter().chain([&id]) {
            let kept = stdout(&execute(&daemon, copy, Some(context), get));
            assert_eq!(kept.trim(), *language, "{language} in {copy}");
            drawn.push(stdout(&execute(&daemon, copy, Some(context), draw)));
        }
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 4, "{language}: {drawn:?}");
    }
    for copy in &copies {
        daemon.execute(copy, &format!("echo {copy} > /workspace/own"));
    }
    for copy in &copies {
        assert_eq!(daemon.execute(copy, "cat /workspace/own").trim(), copy);
    }
    assert_eq!(daemon.execute(&id, "ls /workspace"), "");
    for one in copies.iter().chain([&id]) {
        ask(&daemon, "DELETE", &format!("/v1/sandbox/{one}"), &Value::Null, 204);
    }
    daemon.close();
}

#[test]
fn a_snapshot_has_a_name_is_listed_restored_and_refused_when_it_is_used() {
    if cannot_checkpoint("a_snapshot_has_a_name_is_listed_restored_and_refused_when_it_is_used") {
        return;
    }
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "source", "timeout": 3600}"#);
    daemon.execute(&id, "echo first > /workspace/mark");
    let path = format!("/v1/sandbox/{id}/snapshot/create");
    let taken = ask(&daemon, "POST", &path, &json!({"name": "before"}), 201);
    assert!(
        taken["id"].as_str().unwrap().starts_with("snap-") && taken["has_memory"] == true,
        "{taken}"
    );
    assert_eq!(
        ask(&daemon, "GET", &format!("/v1/sandbox/{id}"), &Value::Null, 200)["state"],
        "running"
    );
    let again = ask(&daemon, "POST", &path, &json!({"name": "before"}), 409);
    assert!(again["message"].as_str().unwrap().contains("already"), "{again}");
    for wrong in ["snap-1", "a b", ""] {
        ask(&daemon, "POST", &path, &json!({"name": wrong}), 400);
    }
    let unnamed = ask(&daemon, "POST", &path, &Value::Null, 201);
    assert_eq!(unnamed["layers"], json!([taken["id"]]), "{unnamed}");
    let listed = ask(&daemon, "GET", "/v1/snapshots?query=&page-size=1", &Value::Null, 200);
    assert_eq!((&listed["total_items"], &listed["items"][0]["id"]), (&json!(2), &unnamed["id"]));
    let found = ask(&daemon, "GET", "/v1/snapshots?query=befo", &Value::Null, 200);
    assert_eq!(found["total_items"], 1);

    daemon.execute(&id, "echo second > /workspace/mark");
    let wish = json!({"snapshot_name": "before", "auto_pause": false, "name": "copy"});
    let made = ask(&daemon, "POST", "/v1/snapshot/restore", &wish, 201);
    let copy = made["id"].as_str().unwrap();
    assert_eq!((&made["timeout"], &made["state"]), (&json!(300), &json!("running")), "{made}");
    assert_eq!(daemon.execute(copy, "cat /workspace/mark"), "first\n");
    let used = ask(
        &daemon,
        "DELETE",
        &format!("/v1/snapshot/{}", taken["id"].as_str().unwrap()),
        &Value::Null,
        409,
    );
    assert!(used["message"].as_str().unwrap().contains(copy), "{used}");
    ask(&daemon, "POST", "/v1/snapshot/restore", &json!({"snapshot_name": "nothing"}), 404);

    // The next daemon has all of it.
    daemon.kill();
    daemon.restart();
    assert_eq!(ask(&daemon, "GET", "/v1/snapshots", &Value::Null, 200)["total_items"], 2);
    let back = format!("/v1/sandbox/{id}/rollback");
    ask(&daemon, "POST", &back, &json!({"snapshot_name": "before"}), 200);
    assert_eq!(daemon.execute(&id, "cat /workspace/mark"), "first\n");
    let other = ask(
        &daemon,
        "POST",
        &format!("/v1/sandbox/{copy}/rollback"),
        &json!({"snapshot_name": "before"}),
        400,
    );
    assert!(other["message"].as_str().unwrap().contains("itself"), "{other}");

    // The commands.
    let soma = |words: &[&str]| {
        let output = daemon.home.soma(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(soma(&["snapshot", "create", "copy", "--name", "third", "--files"]), "third");
    assert!(soma(&["snapshot", "ls"]).contains("third"));
    let restored = soma(&["restore", "third", "--name", "cold"]);
    assert_eq!(daemon.execute(&restored, "cat /workspace/mark"), "first\n");
    assert_eq!(soma(&["fork", "cold", "-n", "2"]).lines().count(), 2);
    assert_eq!(soma(&["rollback", "copy", "third"]), copy);
    let events = soma(&["events"]);
    assert!(events.contains("captured") && events.contains("rolled_back"), "{events}");
    for listed in soma(&["ps", "--all", "-q"]).lines() {
        soma(&["rm", listed]);
    }
    for name in soma(&["snapshot", "ls", "-q"]).lines() {
        soma(&["snapshot", "rm", name]);
    }
    assert_eq!(ask(&daemon, "GET", "/v1/snapshots", &Value::Null, 200)["total_items"], 0);
    daemon.close();
}
