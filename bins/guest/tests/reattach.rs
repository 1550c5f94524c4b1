//! Output by offset through the real guest: what a client that lost its connection gets.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::time::Duration;

use harness::{Event, Events, Guest, is_alive, numbers, resident_kilobytes, wait_until};
use serde_json::{Value, json};

fn connect_from(guest: &Guest, pid: u64, offset: u64) -> Events {
    // Numbers of this size are text in JSON.
    let request = json!({ "process": { "pid": pid }, "from": offset.to_string() });
    guest.stream("Connect", &[], &request)
}

/// Starts a shell script that goes on when the file that it names with `$GO` is there.
fn begin(guest: &Guest, script: &str) -> Events {
    let go = guest.file("go");
    let wait = format!("go() {{ while [ ! -e {0} ]; do sleep 0.02; done; rm {0}; }}", go.display());
    guest.begin(&["sh", "-c", &format!("{wait}; {script}")], &[])
}

fn go(guest: &Guest) {
    std::fs::write(guest.file("go"), "").unwrap();
}

#[test]
fn output_goes_on_where_a_connection_broke_off() {
    let guest = Guest::start();
    let mut events = begin(&guest, "echo one; echo two >&2; go; echo three; go; echo four");
    let pid = events.pid();
    assert_eq!(events.next, Some(0));
    events.wait_for("one\n");
    // The reader vanishes before it has seen all.
    drop(events);
    go(&guest);
    wait_until("all is written", || !guest.file("go").exists());
    let mut again = connect_from(&guest, pid, 4);
    assert_eq!((again.pid(), again.next), (pid, Some(4)));
    assert_eq!(again.next(), Event::Stderr(b"two\n".to_vec()));
    again.wait_for("three\n");
    go(&guest);
    let finished = again.finish();
    assert_eq!((finished.stdout(), finished.code()), ("four\n", 0));

    // Also when it is over, and in the midst of a piece.
    let ended = connect_from(&guest, pid, 10).finish();
    assert_eq!((ended.stdout(), ended.code()), ("ree\nfour\n", 0));
    assert_eq!(connect_from(&guest, pid, 0).finish().stdout(), "one\nthree\nfour\n");
    assert_eq!(connect_from(&guest, pid, 19).finish().stdout(), "");
}

#[test]
fn an_offset_ahead_of_the_output_is_an_error_that_says_so() {
    let guest = Guest::start();
    let pid = guest.shell("printf 12345").pid;
    let finished = connect_from(&guest, pid, 6).finish();
    assert_eq!(finished.error["code"], "invalid_argument");
    assert_eq!(
        finished.error["message"],
        "the process has written 5 bytes so far, and none at offset 6"
    );
    let finished = connect_from(&guest, pid, u64::MAX).finish();
    assert_eq!(finished.error["code"], "invalid_argument");
}

#[test]
fn what_is_no_longer_there_is_told() {
    let guest = Guest::start();
    let finished = guest.shell("head -c 5000000 /dev/zero; echo end");
    assert_eq!(finished.stdout.len(), 5_000_004);
    let late = connect_from(&guest, finished.pid, 1000).finish();
    let (from, to) = late.dropped.unwrap();
    assert_eq!((from, to + late.stdout.len() as u64), (1000, 5_000_004));
    assert!(late.stdout.len() > 900_000 && late.stdout.len() <= 1 << 20, "{}", late.stdout.len());
    assert!(late.stdout.ends_with(b"\0end\n"));
    // From what is there on, nothing is missing.
    let late = connect_from(&guest, finished.pid, to + 1).finish();
    assert_eq!((late.dropped, to + 1 + late.stdout.len() as u64), (None, 5_000_004));
}

#[test]
fn two_readers_from_different_offsets_both_get_everything() {
    let guest = Guest::start();
    let mut first = begin(&guest, "echo begun; go; seq 1 200000");
    let pid = first.pid();
    first.wait_for("begun\n");
    let second = connect_from(&guest, pid, 0);
    let third = connect_from(&guest, pid, 3);
    go(&guest);
    let numbers = numbers(200_000);
    std::thread::scope(|scope| {
        let readers =
            [(first, ""), (second, "begun\n"), (third, "un\n")].map(|(events, before)| {
                let expected = format!("{before}{numbers}");
                scope.spawn(move || assert!(events.finish().stdout == expected.into_bytes()))
            });
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_slow_reader_from_an_offset_holds_up_the_process_and_loses_nothing() {
    let guest = Guest::start();
    let mut first = begin(&guest, "echo begun; go; head -c 30000000 /dev/zero; echo end");
    let pid = first.pid();
    first.wait_for("begun\n");
    drop(first);
    let slow = connect_from(&guest, pid, 0);
    let before = resident_kilobytes(guest.pid());
    go(&guest);
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_alive(&pid.to_string()), "the process was not held up");
    let finished = slow.finish();
    assert_eq!((finished.stdout.len(), finished.dropped), (6 + 30_000_000 + 4, None));
    let after = resident_kilobytes(guest.pid());
    assert!(after < before + 16_000, "grew from {before} to {after} kB");
}

#[test]
fn a_terminal_can_be_read_from_an_offset_too() {
    let guest = Guest::start();
    let message = json!({
        "process": { "cmd": "sh", "args": ["-c", "printf 'one\\033[2Jtwo'"], "cwd": "/" },
        "pty": { "size": { "cols": 80, "rows": 24 } },
    });
    let pid = guest.start_with(&[], &message).finish().pid;
    let finished = connect_from(&guest, pid, 3).finish();
    assert_eq!((finished.terminal(), finished.screen.len()), ("\x1b[2Jtwo", 0));
}

#[test]
fn many_processes_that_ended_keep_no_more_than_is_allowed() {
    let guest = Guest::start();
    guest.run(&["true"]);
    let before = resident_kilobytes(guest.pid());
    // Nobody reads them.
    let pids: Vec<_> =
        (0..60).map(|_| guest.begin(&["head", "-c", "1500000", "/dev/zero"], &[]).pid()).collect();
    wait_until("all are over", || guest.call("List", &json!({})).1 == json!({}));
    let after = resident_kilobytes(guest.pid());
    assert!(after < before + 48_000, "grew from {before} to {after} kB");
    let mut kept = 0;
    for pid in pids {
        let finished = connect_from(&guest, pid, 0).finish();
        assert_eq!(finished.error, Value::Null);
        let (from, to) = finished.dropped.unwrap();
        assert_eq!((from, to + finished.stdout.len() as u64), (0, 1_500_000));
        kept += finished.stdout.len();
    }
    assert!(kept > 1 << 20 && kept <= 16 << 20, "{kept} bytes are kept");
}
