//! Commands in a sandbox that is there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{new, refused, soma, text, works};
use crate::support::{Home, eventually};

#[test]
fn output_code_and_variables_are_the_commands_own() {
    let home = Home::new();
    new(&home, &["--name", "work", "--env", "COLOUR=blue"]);
    let output = soma(&home, &["exec", "work", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("out\n", Some(7)));
    assert_eq!(text(&output.stderr), "err\n");
    let words = ["exec", "-e", "SIZE=big", "-w", "/tmp", "-u", "root", "work", "sh", "-c"];
    let words: Vec<&str> =
        words.iter().copied().chain(["echo $COLOUR $SIZE $PWD $(id -un)"]).collect();
    assert_eq!(works(&home, &words), "blue big /tmp root\n");
    // What one leaves, the next one finds.
    works(&home, &["exec", "work", "--", "sh", "-c", "echo kept > file"]);
    assert_eq!(works(&home, &["exec", "work", "--", "cat", "file"]), "kept\n");
    let said = refused(&home, 127, &["exec", "work", "--", "no-such-program"]);
    assert!(said.contains("no program `no-such-program`"), "{said}");
    let said = refused(&home, 124, &["exec", "--timeout", "300ms", "work", "--", "sleep", "60"]);
    assert!(said.contains("it took longer than 300 ms"), "{said}");
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn input_is_passed_on_only_when_asked_for() {
    let home = Home::new();
    new(&home, &["--name", "work"]);
    for (words, expected) in [(&["exec", "-i"][..], "typed\n"), (&["exec"], "")] {
        let words = words.iter().copied().chain(["work", "--", "cat"]);
        let mut child = home.soma(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let _ = stdin.write_all(b"typed\n");
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), (expected, Some(0)));
    }
    works(&home, &["rm", "work"]);
}

#[test]
fn ctrl_c_reaches_the_command_and_the_sandbox_stays() {
    let home = Home::new();
    new(&home, &["--name", "work"]);
    for (script, code) in [
        ("trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done", 7),
        ("trap '' INT; echo ready; while :; do sleep 0.05; done", 130),
    ] {
        let mut child = home.soma(["exec", "work", "--", "sh", "-c", script]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        if code == 130 {
            std::thread::sleep(Duration::from_millis(100));
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
    eventually("the command goes on", || {
        !works(&home, &["exec", "work", "--", "ps", "-eo", "args"]).contains("trap")
    });
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn what_a_process_wrote_can_be_read_by_others() {
    let home = Home::new();
    new(&home, &["--name", "work"]);
    let script = "echo $$; echo first; echo wrong >&2; sleep 1; echo last";
    let mut child = home.soma(["exec", "work", "--", "sh", "-c", script]).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut pid = String::new();
    reader.read_line(&mut pid).unwrap();
    let pid = pid.trim();
    let output = soma(&home, &["logs", "work", pid, "--follow"]);
    assert_eq!(text(&output.stdout), format!("{pid}\nfirst\nlast\n"));
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), ("wrong\n", Some(0)));
    drop(reader);
    child.wait().unwrap();
    let said = refused(&home, 1, &["logs", "work", "4194303"]);
    assert!(said.starts_with("soma: ") && said.lines().count() == 1, "{said}");
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn a_sandbox_that_ended_runs_nothing_and_says_why() {
    let home = Home::new();
    new(&home, &["--name", "brief", "--timeout", "1s"]);
    eventually("it does not end", || {
        text(&soma(&home, &["ps", "--state", "stopped"]).stdout).contains("brief")
    });
    let said = refused(&home, 125, &["exec", "brief", "--", "true"]);
    assert_eq!(
        said,
        "soma: sandbox `brief` is stopped: its time was over\n\
         hint: `soma start brief` runs it again\n"
    );
    works(&home, &["rm", "brief"]);
    home.assert_nothing_left();
}
