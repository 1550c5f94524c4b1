//! When somebody has enough: Ctrl-C at any moment, kills, hang-ups.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{code, stdout};
use crate::support::Home;

/// How long anybody who pressed Ctrl-C should ever wait.
const PATIENCE: Duration = Duration::from_secs(6);

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for the end, and checks that it did not take long.
#[track_caller]
fn ended(child: Child) -> Output {
    let begun = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}: {output:?}", begun.elapsed());
    output
}

/// Starts a command that says `ready` and waits until it did.
fn ready(home: &Home, script: &str) -> Child {
    let mut child = home.start(&["--", "sh", "-c", script]);
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child.stdout = Some(reader.into_inner());
    child
}

#[test]
fn ctrl_c_at_any_moment_leaves_nothing() {
    let home = Home::new();
    for milliseconds in [0, 1, 2, 3, 5, 8, 13, 20, 30, 50, 80, 150, 300] {
        let child = home.start(&["--", "sleep", "600"]);
        std::thread::sleep(Duration::from_millis(milliseconds));
        send(&child, Signal::INT);
        let output = ended(child);
        // In its very first moments the program has made nothing, and the signal just ends it.
        let stopped = output.status.code() == Some(130) || output.status.signal() == Some(2);
        assert!(stopped, "after {milliseconds} ms: {output:?}");
        home.assert_no_sandbox();
    }
    home.assert_nothing_left();
}

#[test]
fn ctrl_c_while_the_first_engine_starts_leaves_nothing() {
    for milliseconds in [5, 50, 150] {
        let home = Home::new();
        let child = home.start(&["--", "sleep", "600"]);
        std::thread::sleep(Duration::from_millis(milliseconds));
        send(&child, Signal::INT);
        ended(child);
        home.assert_nothing_left();
    }
}

#[test]
fn ctrl_c_is_the_commands_to_handle() {
    let home = Home::new();
    let child =
        ready(&home, "trap 'echo bye; exit 7' INT; echo ready; while :; do sleep 0.05; done");
    send(&child, Signal::INT);
    let output = ended(child);
    assert_eq!((code(&output), stdout(&output)), (7, "bye\n"));
    home.assert_nothing_left();
}

#[test]
fn a_command_that_ignores_ctrl_c_is_ended_after_a_while() {
    let home = Home::new();
    let child = ready(&home, "trap '' INT; echo ready; while :; do sleep 0.05; done");
    send(&child, Signal::INT);
    assert_eq!(code(&ended(child)), 130);
    home.assert_nothing_left();
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    let home = Home::new();
    let child = ready(&home, "trap '' INT; echo ready; while :; do sleep 0.05; done");
    let begun = Instant::now();
    send(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    send(&child, Signal::INT);
    assert_eq!(code(&ended(child)), 130);
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
    home.assert_nothing_left();
}

#[test]
fn a_kill_or_a_hang_up_ends_it_at_once() {
    let home = Home::new();
    for (signal, expected) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let child = ready(&home, "trap '' INT TERM HUP; echo ready; while :; do sleep 0.05; done");
        send(&child, signal);
        assert_eq!(code(&ended(child)), expected);
        home.assert_no_sandbox();
    }
    home.assert_nothing_left();
}

#[test]
fn the_sandbox_goes_also_when_soma_is_killed() {
    let home = Home::new();
    let child = ready(&home, "echo ready; sleep 600");
    send(&child, Signal::KILL);
    assert_eq!(ended(child).status.signal(), Some(9));
    home.assert_nothing_left();
}

#[test]
fn ctrl_c_works_while_nobody_reads_the_output() {
    let home = Home::new();
    let child = ready(&home, "echo ready; exec yes");
    std::thread::sleep(Duration::from_millis(500));
    send(&child, Signal::INT);
    let mut child = child;
    let unread = child.stdout.take();
    let output = ended(child);
    assert_eq!(code(&output), 130, "{output:?}");
    drop(unread);
    home.assert_nothing_left();
}

#[test]
fn an_engine_that_does_not_answer_keeps_nobody_waiting() {
    let home = Home::new();
    let child = ready(&home, "echo ready; sleep 600");
    let signal_engine = |signal| {
        for engine in home.engines() {
            kill_process(Pid::from_raw(i32::try_from(engine).unwrap()).unwrap(), signal).unwrap();
        }
    };
    signal_engine(Signal::STOP);
    // The first asks for the sandbox to be destroyed, the second leaves that to the engine.
    send(&child, Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    send(&child, Signal::TERM);
    let output = child.wait_with_output().unwrap();
    signal_engine(Signal::CONT);
    assert_eq!(code(&output), 143);
    home.assert_nothing_left();
}
