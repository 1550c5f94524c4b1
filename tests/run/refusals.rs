//! What a user can get wrong: one clear message, a sensible code, nothing left.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use super::{assert_one_message, code, stderr};
use crate::support::{Home, SOMA};

/// What is refused before any engine is asked: with a home that could not even be made.
#[track_caller]
fn refused(words: &[&str]) -> String {
    let mut soma = sys_linux::command::command(&*SOMA);
    let output = soma.arg("run").args(words).env("SOMA_HOME", "/dev/null/no").output().unwrap();
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_one_message(&output);
    stderr(&output).to_owned()
}

#[test]
fn an_unknown_language_is_answered_with_the_known_ones() {
    assert!(refused(&["--lang", "cobol", "1"]).contains("bash, python, node and r"));
}

#[test]
fn an_unknown_flag_is_named() {
    assert!(refused(&["--memroy", "1g", "1"]).contains("--memroy"));
}

#[test]
fn nothing_to_run_is_said() {
    assert!(refused(&[]).contains("nothing to run"));
    assert!(refused(&["--"]).contains("nothing to run"));
    assert!(refused(&["--", ""]).contains("no name"));
}

#[test]
fn code_and_a_program_at_once_are_refused() {
    refused(&["print(1)", "--", "true"]);
    refused(&["--lang", "bash", "--", "true"]);
}

#[test]
fn a_limit_that_makes_no_sense_is_refused() {
    for (flag, value, word) in [
        ("--memory", "lots", "512m"),
        ("--memory", "4k", "too little"),
        ("--memory", "99999t", "too much"),
        ("--cpus", "0", "too little"),
        ("--cpus", "nan", "0.5"),
        ("--pids", "0", "too little"),
        ("--pids", "many", "many"),
        ("--disk", "1k", "too little"),
        ("--timeout", "0", "too little"),
        ("--timeout", "soon", "30s"),
    ] {
        let words = refused(&[flag, value, "1"]);
        assert!(words.contains(word), "{flag} {value}: {words}");
    }
}

#[test]
fn a_network_that_makes_no_sense_is_refused() {
    for (words, said) in [
        (&["--network"][..], "--network"),
        (&["--network", "host", "1"], "host"),
        (&["--network", "none", "--allow", "a.com", "1"], "--network none"),
        (&["--allow", "localhost", "1"], "two labels"),
        (&["--inject", "a.com:X=hunter2", "1"], "DOMAIN:HEADER=@FILE"),
    ] {
        let words = refused(words);
        assert!(words.contains(said) && !words.contains("hunter2"), "{words}");
    }
}

#[test]
fn a_value_is_never_repeated() {
    for words in [["--env", "=hunter2"], ["--env", "hunter2 \u{1b}[2J"]] {
        let message = refused(&[words[0], words[1], "1"]);
        assert!(!message.contains("=hunter2") && !message.contains('\u{1b}'), "{message}");
    }
    let home = Home::new();
    let output = home.run(&["-e", "TOKEN=hunter2", "--user", "nobody-here", "1"]);
    assert!(!stderr(&output).contains("hunter2"));
    let output = home.run(&["-e", "TOKEN=hunter2", "--", "true"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let mut grep = sys_linux::command::command("grep");
    let found =
        grep.args(["-rl", "hunter2", "--exclude-dir=base"]).arg(home.path()).output().unwrap();
    assert_eq!(found.stdout, b"", "a value is on disk");
    home.assert_nothing_left();
}

#[test]
fn words_that_are_not_utf_8_are_refused() {
    let word = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    for before in [&["run"][..], &["run", "--", "echo"], &["run", "1", "--env"]] {
        let mut soma = sys_linux::command::command(&*SOMA);
        let output = soma.args(before).arg(word).output().unwrap();
        assert_eq!(code(&output), 2, "{output:?}");
        assert_one_message(&output);
    }
}

#[test]
fn an_unknown_user_is_named_with_those_who_exist() {
    let home = Home::new();
    let output = home.run(&["--user", "nobody-here", "1"]);
    assert_eq!(code(&output), 2);
    assert_one_message(&output);
    assert!(stderr(&output).contains("`nobody-here`"), "{output:?}");
    assert!(stderr(&output).contains("root and user exist"), "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let home = Home::new();
    let output = home.run(&["--workdir", "/nowhere", "1"]);
    assert_eq!(code(&output), 2);
    assert_one_message(&output);
    assert!(stderr(&output).contains("/nowhere"), "{output:?}");
    home.assert_nothing_left();
}

#[test]
fn a_program_that_cannot_run_is_named_as_shells_do() {
    let home = Home::new();
    let output = home.run(&["--", "no-such-program"]);
    assert_eq!(code(&output), 127);
    assert_one_message(&output);
    assert!(stderr(&output).contains("`no-such-program`"), "{output:?}");
    let output = home.run(&["--", "/etc"]);
    assert_eq!(code(&output), 126, "{output:?}");
    assert_one_message(&output);
    home.assert_nothing_left();
}

#[test]
fn a_command_over_its_time_is_ended_with_all_below_it() {
    let home = Home::new();
    home.run(&["--", "true"]);
    let begun = Instant::now();
    let output = home.run(&["--timeout", "500ms", "--", "sh", "-c", "sleep 600 & sleep 600"]);
    assert_eq!(code(&output), 124, "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_one_message(&output);
    assert!(stderr(&output).contains("500 ms") && stderr(&output).contains("--timeout"));
    home.assert_nothing_left();
}

#[test]
fn what_was_written_before_the_time_was_over_is_not_lost() {
    let home = Home::new();
    let output = home.run(&["--timeout", "1s", "--", "sh", "-c", "echo early; sleep 600"]);
    assert_eq!((code(&output), output.stdout.as_slice()), (124, &b"early\n"[..]));
    home.assert_nothing_left();
}

#[test]
fn a_home_that_cannot_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for home in [file.clone(), file.join("below")] {
        let mut soma = sys_linux::command::command(&*SOMA);
        let output = soma.args(["run", "1"]).env("SOMA_HOME", &home).output().unwrap();
        assert_eq!(code(&output), 125, "{output:?}");
        assert_one_message(&output);
    }
}

#[test]
fn a_full_disk_is_said() {
    if crate::support::needs_root("a_full_disk_is_said", "right to mount a full disk") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = |words: &[&str]| {
        let mut mount = sys_linux::command::command(words[0]);
        assert!(mount.args(&words[1..]).arg(folder.path()).status().unwrap().success());
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]);
    let mut soma = sys_linux::command::command(&*SOMA);
    let output = soma.args(["run", "1"]).env("SOMA_HOME", folder.path().join("home")).output();
    mount(&["umount", "--lazy"]);
    let output = output.unwrap();
    assert_eq!(code(&output), 125, "{output:?}");
    assert_one_message(&output);
    assert!(stderr(&output).to_lowercase().contains("no space left"), "{output:?}");
}
