//! What can be got wrong: one clear message, a sensible code, nothing left.

use super::{new, refused, works};
use crate::support::{Home, SOMA};

#[test]
fn an_unknown_sandbox_is_said_by_every_command() {
    let home = Home::new();
    for (code, words) in [
        (125, &["exec", "nobody", "--", "true"][..]),
        (1, &["rm", "nobody"]),
        (1, &["cp", "nobody:/etc/hostname", "-"]),
        (1, &["cp", "/etc/hostname", "nobody:"]),
        (1, &["stats", "nobody"]),
        (1, &["logs", "nobody"]),
        (1, &["logs", "nobody", "1"]),
        (1, &["timeout", "nobody", "1h"]),
    ] {
        assert_eq!(
            refused(&home, code, words),
            "soma: there is no sandbox `nobody`: `soma ps --all` lists those that are there\n",
            "{words:?}"
        );
    }
    home.assert_nothing_left();
}

#[test]
fn a_beginning_that_several_have_is_refused_with_some_of_them() {
    let home = Home::new();
    new(&home, &["--name", "box-one"]);
    new(&home, &["--name", "box-two"]);
    for (code, words) in [
        (1, &["rm", "box"][..]),
        (2, &["exec", "box", "--", "true"]),
        (2, &["timeout", "box-", "1h"]),
    ] {
        let said = refused(&home, code, words);
        assert!(said.contains("could be any of") && said.contains("write more of it"), "{said}");
    }
    works(&home, &["rm", "box-one"]);
    works(&home, &["rm", "box"]);
    home.assert_nothing_left();
}

#[test]
fn a_name_that_is_taken_is_said() {
    let home = Home::new();
    new(&home, &["--name", "mine"]);
    assert_eq!(
        refused(&home, 1, &["new", "--name", "mine"]),
        "soma: there is a sandbox `mine` already: choose another name, or delete that one\n"
    );
    works(&home, &["rm", "mine"]);
    new(&home, &["--name", "mine"]);
    works(&home, &["rm", "mine"]);
    home.assert_nothing_left();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_asked() {
    for (words, said) in [
        (&["new", "--label", "x"][..], "a label is KEY=VALUE"),
        (&["new", "--name", "Not Good"], "is no name for a sandbox"),
        (&["new", "--memory", "1k"], "too little"),
        (&["new", "--env", "=hunter2"], "is not a variable"),
        (&["new", "--network"], "--network"),
        (&["new", "--network", "none", "--block", "a.com"], "--network none"),
        (&["net", "allow", "box"], "required"),
        (&["net", "deny", "box", "localhost"], "two labels"),
        (&["exec", "box"], "required"),
        (&["exec", "box", "--", ""], "has no name"),
        (&["exec", "-t", "box", "--", "true"], "needs a terminal"),
        (&["rm"], "required"),
        (&["cp", "a", "b"], "neither place is in a sandbox"),
        (&["cp", "a:x", "b:x"], "both places are in a sandbox"),
        (&["cp", ":x", "b"], "without a name"),
        (&["logs", "box", "--follow"], "required"),
        (&["timeout", "box", "soon"], "a time such as"),
        (&["completions", "cobol"], "cobol"),
    ] {
        let mut soma = sys_linux::command::command(&*SOMA);
        let output = soma.args(words).env("SOMA_HOME", "/dev/null/no").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.starts_with("soma: ") && stderr.contains(said), "{words:?}: {stderr}");
        assert!(stderr.lines().count() <= 2 && !stderr.contains("hunter2"), "{words:?}: {stderr}");
    }
}

#[test]
fn what_the_daemon_finds_wrong_is_its_own_message() {
    let home = Home::new();
    let id = new(&home, &[]);
    let said = refused(&home, 2, &["timeout", &id, "0s"]);
    assert!(said.starts_with("soma: `timeout`: it has to be between 1 and "), "{said}");
    let said = refused(&home, 2, &["ps", "--state", "flying"]);
    assert!(said.starts_with("soma: `state`: it has to be one of "), "{said}");
    let said = refused(&home, 2, &["ps", "--label", "x"]);
    assert_eq!(said, "soma: `label`: it has to be key=value\n");
    works(&home, &["rm", &id]);
    home.assert_nothing_left();
}

#[test]
fn a_daemon_somewhere_else_that_does_not_answer_is_said() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut soma = home.soma(["ps"]);
    let output = soma.env("SOMA_API_URL", &address).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("soma: no daemon answers at http://{address}")), "{said}");
    assert_eq!((home.daemons(), home.engines()), (Vec::new(), Vec::new()), "one was started");
}
