//! More time is confirmed only when the supervisor has it, also when it crosses the end.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{delete, process, reason, start};
use crate::daemon::Daemon;
use crate::support::{eventually, needs_root};

#[test]
fn more_time_that_comes_too_late_is_refused_and_not_confirmed() {
    if needs_root("more_time_that_comes_too_late", "way to hold its supervisor up") {
        return;
    }
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"timeout": 2}"#);
    let begun = Instant::now();
    let supervisor = process(&daemon, &id, "supervisor");
    // The order reaches it together with the end of the time, which it sees first.
    kill_process(supervisor, Signal::STOP).unwrap();
    let path = format!("/v1/sandbox/{id}/timeout");
    std::thread::scope(|scope| {
        let renewed = scope.spawn(|| daemon.ask("POST", &path, r#"{"timeout": 600}"#));
        std::thread::sleep(Duration::from_millis(2300).saturating_sub(begun.elapsed()));
        let is_confirmed = renewed.is_finished();
        kill_process(supervisor, Signal::CONT).unwrap();
        let answer = renewed.join().unwrap();
        assert!(!is_confirmed, "it was answered before the supervisor knew: {}", answer.json());
        assert_eq!(answer.status, 409, "{}", answer.json());
    });
    eventually("it goes on", || daemon.state(&id) == "stopped");
    assert_eq!(reason(&daemon, &id), "its time was over");
    start(&daemon, &id);
    delete(&daemon, &id);
    daemon.close();
}

#[test]
fn a_supervisor_that_does_not_answer_is_said_and_holds_nobody_up() {
    if needs_root("a_supervisor_that_does_not_answer", "way to hold it up") {
        return;
    }
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    let supervisor = process(&daemon, &id, "supervisor");
    kill_process(supervisor, Signal::STOP).unwrap();
    let path = format!("/v1/sandbox/{id}/timeout");
    let answer = daemon.ask("POST", &path, r#"{"timeout": 600}"#);
    assert!(answer.status >= 500, "{}", answer.json());
    assert!(answer.message().contains("time"), "{answer:?}");
    kill_process(supervisor, Signal::CONT).unwrap();
    let answer = daemon.ask("POST", &path, r#"{"timeout": 600}"#);
    assert_eq!(answer.status, 200, "{}", answer.json());
    delete(&daemon, &id);
    daemon.close();
}

/// Whoever is told that there is more time has it, at whatever moment it is asked for.
#[test]
fn time_that_was_confirmed_around_the_end_is_there() {
    let daemon = Daemon::start();
    let (mut confirmed, mut refused) = (0, 0);
    for early in [60_u64, 25, 12, 6, 3, 1, 0] {
        let begun = Instant::now();
        let id = daemon.create(r#"{"timeout": 1}"#);
        // It counts from some moment during the request.
        let wait = Duration::from_millis(1000 - early) + begun.elapsed() / 2;
        std::thread::sleep(wait.saturating_sub(begun.elapsed()));
        let path = format!("/v1/sandbox/{id}/timeout");
        let answer = daemon.ask("POST", &path, r#"{"timeout": 600}"#);
        match answer.status {
            200 => {
                confirmed += 1;
                std::thread::sleep(Duration::from_millis(300));
                assert_eq!(daemon.execute(&id, "echo here"), "here\n", "{early} ms before");
            }
            409 => {
                refused += 1;
                eventually("it goes on", || daemon.state(&id) == "stopped");
            }
            other => panic!("{other}: {}", answer.json()),
        }
        delete(&daemon, &id);
    }
    println!("{confirmed} confirmed, {refused} refused");
    daemon.close();
}
