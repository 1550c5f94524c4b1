//! What is left of the terminal, and of the sandbox, when a shell is over.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::screen::Screen;
use crate::support::{Home, eventually};

/// A program that switches on all that it can and then does nothing.
const GREEDY: &str = r#"
import os, time, tty
tty.setraw(0)
os.write(1, b"\x1b[?1049h\x1b[?1002;1006;2004h\x1b[?25l\x1b[?1h\x1b=\x1b[31mgreedy\r\n")
time.sleep(4243)
"#;

const MODES: &[&str] = &[
    "alternate_on",
    "mouse_any_flag",
    "mouse_sgr_flag",
    "cursor_flag",
    "keypad_cursor_flag",
    "keypad_flag",
];

/// Starts the greedy program with these options and waits until the terminal is all its own.
fn greedy(screen: &Screen, options: &str) {
    greedy_for(screen, options, 4243);
}

/// The same, and it sleeps for so long, by which it can be found.
fn greedy_for(screen: &Screen, options: &str, seconds: u32) {
    assert_eq!(screen.state(MODES), "0 0 0 1 0 0");
    let program = GREEDY.replace("4243", &seconds.to_string());
    screen.start(&format!("shell {options} -- python3 -c '{program}'"));
    screen.wait("it does not run", |text| text.trim() == "greedy");
    assert_eq!(screen.state(MODES), "1 1 1 0 1 1");
}

/// Checks that the terminal is as it was: its modes, how it treats keys, and what is pasted.
#[track_caller]
fn assert_given_back(screen: &Screen, settings: &str) {
    assert_eq!(screen.state(MODES), "0 0 0 1 0 0");
    assert_eq!(screen.settings(), settings);
    // The shell outside marks what is pasted too, until it has begun this.
    screen.line("echo begun-$((1 + 1)); cat -A");
    screen.wait("it does not begin", |text| text.contains("begun-2"));
    screen.tmux(&["set-buffer", "pasted"]);
    screen.tmux(&["paste-buffer", "-p"]);
    screen.keys(&["Enter"]);
    screen.wait("marks around what is pasted", |text| text.contains("\npasted\npasted$\n"));
    let coloured = screen.coloured();
    assert!(!coloured.contains("\x1b[31m"), "{coloured:?}");
    screen.keys(&["C-d"]);
}

/// The process that holds all others in the sandbox where such a one runs, as the host counts.
fn first_process(words: &str) -> Pid {
    let processes = || {
        let names = fs::read_dir("/proc").unwrap().flatten();
        names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    let namespace = |process: i32| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let inner = |process: i32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let numbers: Vec<i32> = line
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        (numbers.len() > 1).then(|| numbers[numbers.len() - 1])
    };
    let marked = processes()
        .filter(|process| inner(*process).is_some())
        .find(|process| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
        })
        .unwrap();
    let first = processes()
        .find(|process| inner(*process) == Some(1) && namespace(*process) == namespace(marked));
    Pid::from_raw(first.unwrap()).unwrap()
}

/// The program itself, as the host counts.
fn soma(home: &Home) -> Pid {
    let find = || {
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let ours = format!("SOMA_HOME={}", home.path().display());
            let is_ours = environment.split(|byte| *byte == 0).any(|it| it == ours.as_bytes());
            let is_shell = words.first()?.ends_with(b"/soma") && words.get(1)? == b"shell";
            (is_ours && is_shell).then(|| entry.file_name().to_str()?.parse().ok())?
        })
    };
    eventually("soma does not run", || find().is_some());
    Pid::from_raw(find().unwrap()).unwrap()
}

#[test]
fn after_a_normal_end_the_terminal_is_as_it_was() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "after_a_normal_end", &[]) else { return };
    let before = screen.settings();
    screen.soma("shell");
    screen.line("exit");
    assert_eq!(screen.code(), 0);
    assert_given_back(&screen, &before);
}

#[test]
fn a_program_that_leaves_modes_on_does_not_leave_them_to_the_caller() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "a_program_that_leaves_modes_on", &[]) else { return };
    let before = screen.settings();
    let program = GREEDY.replace("4243", "0.2");
    screen.start(&format!("shell -- python3 -c '{program}'"));
    assert_eq!(screen.code(), 0);
    assert_given_back(&screen, &before);
}

#[test]
fn when_the_sandbox_is_killed_the_terminal_comes_back_with_the_reason() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "when_the_sandbox_is_killed", &[]) else { return };
    let before = screen.settings();
    // Other tests have such programs too.
    let mark = 1_000_000 + std::process::id();
    greedy_for(&screen, "", mark);
    kill_process(first_process(&format!("time.sleep({mark})")), Signal::KILL).unwrap();
    assert_eq!(screen.code(), 125);
    let text = screen.text();
    assert!(text.contains("\nsoma: the sandbox ended before its command: "), "{text}");
    assert_given_back(&screen, &before);
    drop(screen);
    home.assert_nothing_left();
}

#[test]
fn when_its_time_is_over_the_terminal_comes_back_with_the_reason() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "when_its_time_is_over", &[]) else { return };
    let before = screen.settings();
    greedy(&screen, "--timeout 10s");
    assert_eq!(screen.code(), 124);
    let text = screen.text();
    assert!(text.contains("\nsoma: the command was ended: it took longer than 10 s"), "{text}");
    assert_given_back(&screen, &before);
}

#[test]
fn a_kill_gives_the_terminal_back() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "a_kill_gives_the_terminal_back", &[]) else { return };
    let before = screen.settings();
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        greedy(&screen, "");
        kill_process(soma(&home), signal).unwrap();
        assert_eq!(screen.code(), code);
        assert_given_back(&screen, &before);
        screen.line("clear");
        home.assert_no_sandbox();
    }
}

#[test]
fn the_sandbox_goes_with_the_terminal() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "the_sandbox_goes_with_the_terminal", &[]) else {
        return;
    };
    screen.soma("shell");
    drop(screen);
    home.assert_nothing_left();
}

#[test]
fn enter_tilde_dot_leads_out_of_a_shell_that_does_not_answer() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "enter_tilde_dot_leads_out", &[]) else { return };
    let before = screen.settings();
    greedy(&screen, "");
    // What is pasted, and a dot somewhere else, lead nowhere.
    screen.bytes(b"\r~.");
    screen.bytes(b".");
    for key in ["Enter", "~", "."] {
        assert_eq!(screen.state(MODES), "1 1 1 0 1 1");
        screen.keys(&[key]);
        // Keys of a person come one by one.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(screen.code(), 129);
    assert_given_back(&screen, &before);
    home.assert_no_sandbox();
}

#[test]
fn a_program_that_is_not_there_is_one_line() {
    let home = Home::new();
    let Some(screen) = Screen::open(&home, "a_program_that_is_not_there", &[]) else { return };
    screen.start("shell -- fly");
    assert_eq!(screen.code(), 127);
    let text = screen.text();
    assert!(text.contains("soma: there is no program `fly` in the sandbox"), "{text}");
    assert_eq!(text.matches("fly").count(), 2, "{text}");
}
