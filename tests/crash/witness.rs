//! A sandbox that has nothing to do with it: its process runs on, and none of its output is lost.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use crate::daemon::Daemon;

/// What it runs: numbers, one by one, for ever.
const COUNTS: &str = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done";

pub(super) struct Witness {
    pub(super) id: String,
    pid: u64,
    /// How far its output was read.
    offset: u64,
    /// What was read of a line whose end was not.
    rest: String,
    next: u64,
}

impl Witness {
    pub(super) fn call(daemon: &Daemon) -> Self {
        let id = daemon.create(r#"{"name": "witness", "timeout": 86400}"#);
        let path = format!("/v1/sandbox/{id}/process");
        let answer = daemon.ask("POST", &path, &json!({ "command": COUNTS }).to_string());
        assert_eq!(answer.status, 201, "{}", answer.json());
        let pid = answer.json()["pid"].as_u64().unwrap();
        Self { id, pid, offset: 0, rest: String::new(), next: 0 }
    }

    /// Checks that the process still counts, and that no number is missing or there twice.
    #[track_caller]
    pub(super) fn testifies(&mut self, daemon: &Daemon) {
        let before = self.next;
        let mut rest = std::mem::take(&mut self.rest);
        let (mut next, mut offset) = (self.next, self.offset);
        follow(daemon, &self.id, self.pid, self.offset, |event| {
            match event["type"].as_str() {
                Some("stdout") => rest.push_str(event["data"].as_str().unwrap()),
                Some("started") => {}
                _ => panic!("the witness says {event}"),
            }
            if let Some(told) = event["next_offset"].as_u64() {
                offset = told;
            }
            while let Some((line, later)) = rest.split_once('\n') {
                assert_eq!(line, next.to_string(), "the witness counts on");
                next += 1;
                rest = later.into();
            }
            next > before
        });
        (self.rest, self.next, self.offset) = (rest, next, offset);
    }
}

/// Follows a process from an offset until somebody has seen enough of its events, or all ended.
#[track_caller]
pub(crate) fn follow(
    daemon: &Daemon,
    id: &str,
    pid: u64,
    offset: u64,
    mut is_enough: impl FnMut(&Value) -> bool,
) {
    let mut stream = daemon.connect();
    let key = daemon.key();
    let head = format!(
        "GET /v1/sandbox/{id}/process/{pid}/output?offset={offset} HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let status = lines.next().unwrap();
    assert!(status.contains(" 200 "), "process {pid} of {id}: {status}");
    for line in lines {
        if let Some(event) = line.strip_prefix("data: ")
            && is_enough(&serde_json::from_str(event).unwrap())
        {
            return;
        }
    }
    panic!("the output of process {pid} of {id} ended too early");
}
