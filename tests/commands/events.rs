//! `soma events`: a table, a document, and what happens while it is watched.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{new, refused, soma, text, works};
use crate::support::Home;

#[test]
fn what_happened_is_a_table_also_of_what_is_gone() {
    let home = Home::new();
    let output = soma(&home, &["events"]);
    assert_eq!((text(&output.stdout), output.status.code()), (String::new(), Some(0)));
    assert_eq!(text(&output.stderr), "nothing is written down\n");
    let id = new(&home, &["--name", "web"]);
    works(&home, &["rm", "web"]);
    let other = new(&home, &[]);
    let shown = works(&home, &["events", &id]);
    let lines: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TIME", "SANDBOX", "WHO", "WHAT", "RESULT"]);
    let words: Vec<&str> = lines[1..].iter().map(|line| line[3]).collect();
    assert_eq!(words, ["asked", "running", "deleting", "deleted"], "{shown}");
    assert!(lines[1..].iter().all(|line| line[1] == &id[..12] && line[2] == "local"), "{shown}");
    assert!(lines[1..].iter().all(|line| line.last() == Some(&"ok")), "{shown}");

    let two: Value = serde_json::from_str(&works(&home, &["events", "-n", "2", "--json"])).unwrap();
    let numbers: Vec<_> = two.as_array().unwrap().iter().map(|event| &event["sequence"]).collect();
    assert_eq!(numbers, [5, 6]);
    let since = works(&home, &["events", "--since", "5", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&since).unwrap()[0]["state"], "running");
    assert_eq!(works(&home, &["events", "--since", "1h"]).lines().count(), 7);
    let future = soma(&home, &["events", "--since", "2999-01-01T00:00:00Z"]);
    assert_eq!(text(&future.stdout), "");
    assert!(refused(&home, 2, &["events", "--since", "yesterday"]).contains("yesterday"));
    refused(&home, 1, &["events", "nobody"]);
    works(&home, &["rm", &other]);
    home.assert_nothing_left();
}

#[test]
fn what_happens_is_shown_while_it_happens() {
    let home = Home::new();
    let id = new(&home, &["--name", "web"]);
    let mut following =
        home.soma(["events", "web", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["what"], "creation_asked");
    assert_eq!(next()["state"], "running");
    new(&home, &["--name", "other"]);
    works(&home, &["rm", "web", "other"]);
    assert_eq!(next()["state"], "deleting");
    let last = next();
    assert_eq!((last["state"].as_str(), last["sandbox"].as_str()), (Some("deleted"), Some(&*id)));
    following.kill().unwrap();
    following.wait().unwrap();
    home.assert_nothing_left();
}
