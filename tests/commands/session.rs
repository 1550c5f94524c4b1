//! A whole session, every word of it as it was recorded.

use std::fmt::Write as _;

use super::{plain, soma, text};
use crate::snapshots::{compare, settled};
use crate::support::{Home, needs_root};

/// What is typed. Columns of measured figures are not in it: those of `stats` are checked in
/// `life`, and here as a document.
const SESSION: [&[&str]; 25] = [
    &["ps"],
    &["new", "--name", "web", "--label", "project=shop", "--timeout", "90m", "--memory", "300m"],
    &["new", "--name", "web"],
    &["new", "--name", "job", "--cpus", "0.5", "--env", "GREETING=hello", "--json"],
    &["ps"],
    &["ps", "--label", "project=shop"],
    &["ps", "--json"],
    &["ps", "--state", "tired"],
    &["exec", "web", "--", "sh", "-c", "echo out; echo problem >&2; exit 3"],
    &["exec", "job", "--", "printenv", "GREETING"],
    &["exec", "web", "--", "no-such-program"],
    &["exec", "web", "--user", "nobody-here", "--", "true"],
    &["cp", "web:/etc/hostname", "-"],
    &["cp", "web:/no/such/file", "."],
    &["stats", "--json", "web"],
    &["timeout", "web", "2h"],
    &["timeout", "web", "soon"],
    &["logs", "web"],
    &["logs", "web", "--json"],
    &["rm", "nobody"],
    &["rm", "web"],
    &["rm", "job"],
    &["ps", "--all"],
    &["ps", "--json"],
    &["events", "--limit", "1", "--json"],
];

#[test]
fn a_session_is_as_it_was() {
    if needs_root("a_session_is_as_it_was", "limits on every host, and they are in these outputs") {
        return;
    }
    let home = Home::new();
    let mut transcript = String::new();
    for words in SESSION {
        let output = soma(&home, words);
        let _ = writeln!(transcript, "$ soma {}", words.join(" "));
        let said = text(&output.stdout);
        match serde_json::from_str(&said) {
            Ok(document) if words.contains(&"--json") => transcript += &settled(&document),
            _ if said.is_empty() => {}
            _ => {
                let _ = writeln!(transcript, "{}", without_times(&plain(&said)));
            }
        }
        for line in plain(&text(&output.stderr)).lines() {
            let _ = writeln!(transcript, "! {line}");
        }
        let _ = writeln!(transcript, "= {}\n", output.status.code().unwrap());
    }
    compare("session.txt", &transcript);
    home.assert_nothing_left();
}

/// Times are longer or shorter from run to run, and so are the columns that they stand in.
fn without_times(words: &str) -> String {
    let line = |line: &str| -> String {
        if !line.contains("  T") {
            return line.to_owned();
        }
        let is_time = |word: &str| word.bytes().all(|byte| byte == b'T');
        let words = line.split_whitespace().map(|word| if is_time(word) { "T" } else { word });
        let mut words: Vec<&str> = words.collect();
        words.dedup_by(|one, other| one == other && *one == "T");
        words.join("  ")
    };
    words.lines().map(line).collect::<Vec<_>>().join("\n")
}
