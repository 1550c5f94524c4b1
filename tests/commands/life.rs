//! A sandbox from its first to its last command.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{new, plain, soma, text, works};
use crate::support::{Home, eventually};

#[test]
fn a_sandbox_is_made_listed_given_time_and_removed() {
    let home = Home::new();
    let id = new(&home, &["--name", "web", "--label", "project=shop", "--timeout", "90m"]);
    let listed = works(&home, &["ps"]);
    assert!(listed.contains(&id[..12]) && !listed.contains(&id), "{listed}");
    let lines: Vec<String> = listed.lines().map(ToOwned::to_owned).collect();
    assert_eq!(lines[0], "ID            NAME  STATE    AGE  TIMEOUT  TEMPLATE");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(words[1..3], ["web", "running"]);
    assert_eq!((words[4], words.last()), ("1h", Some(&"default")), "{listed}");
    assert!(works(&home, &["ps", "--no-trunc"]).contains(&id));
    assert_eq!(works(&home, &["ps", "-q"]), format!("{id}\n"));
    assert_eq!(works(&home, &["ps", "-q", "--label", "project=shop"]), format!("{id}\n"));

    assert_eq!(works(&home, &["timeout", "web", "330m"]), "");
    assert!(works(&home, &["ps"]).contains("  5h "));

    assert_eq!(works(&home, &["rm", "web"]), "web\n");
    let output = soma(&home, &["ps", "--all"]);
    assert_eq!((text(&output.stdout), output.status.code()), (String::new(), Some(0)));
    assert_eq!(text(&output.stderr), "there are no sandboxes\n");
    // By its whole id, what happened to it can still be read.
    let logs = plain(&works(&home, &["logs", &id]));
    assert_eq!(
        logs,
        "[moment]  local     asked for, as web\n\
         [moment]  local     running\n\
         [moment]  local     may run until [moment]\n\
         [moment]  local     deleting\n\
         [moment]  local     deleted"
    );
    home.assert_nothing_left();
}

#[test]
fn what_has_ended_is_listed_with_all_only() {
    let home = Home::new();
    let id = new(&home, &["--timeout", "1s", "--name", "brief"]);
    eventually("it does not end", || {
        works(&home, &["ps", "-aq", "--no-trunc"]).contains(&id) && {
            let stopped = soma(&home, &["ps", "-q", "--state", "stopped"]);
            text(&stopped.stdout).contains(&id)
        }
    });
    let output = soma(&home, &["ps"]);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(text(&output.stderr), "there are no sandboxes that match; `--all` shows all\n");
    let line = works(&home, &["ps", "--all"]).lines().nth(1).unwrap().to_owned();
    assert!(line.contains("  stopped  ") && line.contains("  -  "), "{line}");
    works(&home, &["rm", "brief"]);
    home.assert_nothing_left();
}

#[test]
fn every_listing_has_a_document() {
    let home = Home::new();
    // The first starts a daemon, which prepares bodies; the second gets one that has waited.
    works(&home, &["rm", &new(&home, &[])]);
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let made: Value = parse(&works(&home, &["new", "--name", "doc", "--json", "--memory", "300m"]));
    assert_eq!((made["name"].as_str(), made["memory"].as_u64()), (Some("doc"), Some(300)));
    let id = made["id"].as_str().unwrap();
    let listed = parse(&works(&home, &["ps", "--json"]));
    assert_eq!(listed[0]["id"].as_str(), Some(id));
    let stats = parse(&works(&home, &["stats", "--json"]));
    assert_eq!(stats[0]["id"].as_str(), Some(id));
    assert!(stats[0]["metrics"]["processes"]["count"].as_u64() > Some(0), "{stats}");
    let running = stats[0]["running_seconds"].as_u64().unwrap();
    assert!(running <= begun.elapsed().as_secs() + 1, "{stats}");
    let logs = parse(&works(&home, &["logs", "doc", "--json"]));
    assert!(logs.as_array().unwrap().iter().any(|event| event["state"] == "running"), "{logs}");
    let renewed = parse(&works(&home, &["timeout", "doc", "1h", "--json"]));
    assert!(renewed["timeout_at"].as_i64() > made["timeout_at"].as_i64());
    works(&home, &["rm", "doc"]);
    assert_eq!(parse(&works(&home, &["ps", "--json"])), serde_json::json!([]));
    home.assert_nothing_left();
}

fn parse(words: &str) -> Value {
    serde_json::from_str(words).unwrap()
}

#[test]
fn what_is_used_is_shown_for_all_or_for_some() {
    let home = Home::new();
    let output = soma(&home, &["stats"]);
    assert_eq!(
        (text(&output.stderr).as_str(), output.status.code()),
        ("no sandbox runs\n", Some(0))
    );
    let (one, other) = (new(&home, &["--name", "one"]), new(&home, &[]));
    let all = works(&home, &["stats"]);
    assert!(all.starts_with("ID            NAME  CPU  "), "{all}");
    assert!(all.contains(&one[..12]) && all.contains(&other[..12]), "{all}");
    let some = works(&home, &["stats", "one"]);
    assert!(some.contains(&one[..12]) && !some.contains(&other[..12]), "{some}");
    let words = some.lines().nth(1).unwrap();
    assert!(words.contains('%') && words.contains(" / 2.0 GiB"), "{some}");
    works(&home, &["rm", "one", &other]);
    home.assert_nothing_left();
}

#[test]
fn pipes_get_no_colours() {
    let home = Home::new();
    let id = new(&home, &[]);
    for words in [&["ps"][..], &["stats"], &["logs", &id], &["--help"], &["ps", "--help"]] {
        assert!(!works(&home, words).contains('\x1b'), "{words:?}");
    }
    works(&home, &["rm", &id]);
}

#[test]
fn an_id_can_be_shortened_as_long_as_it_is_the_only_one() {
    let home = Home::new();
    let id = new(&home, &["--name", "short"]);
    assert_eq!(works(&home, &["exec", &id[..8], "--", "echo", "hello"]), "hello\n");
    assert_eq!(works(&home, &["exec", "sho", "--", "echo", "hello"]), "hello\n");
    works(&home, &["rm", &id[..12]]);
    home.assert_nothing_left();
}

#[test]
fn several_are_removed_and_one_that_is_not_there_stops_nothing() {
    let home = Home::new();
    let (one, other) = (new(&home, &[]), new(&home, &["--name", "other"]));
    let output = soma(&home, &["rm", &one, "nobody", "other"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), format!("{one}\nother\n"));
    assert_eq!(
        text(&output.stderr),
        "soma: there is no sandbox `nobody`: `soma ps --all` lists those that are there\n"
    );
    assert_ne!(one, other);
    assert_eq!(works(&home, &["rm", "--force", "nobody"]), "");
    home.assert_nothing_left();
}
