//! Connections that break in the middle of an execution, with a daemon that follows a script.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use client::{Client, Place};
use guest_proto::code::{Event, EventKind, Execute, Status};

/// What is sent as an answer, whole or not.
struct Answer {
    lines: Vec<String>,
    /// The end of the last line and of the answer are missing.
    breaks: bool,
}

fn event(n: u64, rest: &str) -> String {
    format!("{{\"n\":{n},\"time\":\"\",{rest}}}")
}

fn accepted() -> String {
    event(0, r#""type":"accepted","execution_id":"e 1","context_id":"c","language":"python""#)
}

/// Runs code at a daemon with these answers. Returns what came of it, and the requests.
fn follow(answers: Vec<Answer>) -> (Result<Vec<Event>, String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let daemon = std::thread::spawn(move || {
        let answer = |answer: Answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let request = lines.next().unwrap();
            let mut length = 0;
            for line in lines.by_ref().take_while(|line| !line.is_empty()) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            // What is not read would end the connection with an error.
            assert!(length == 0 || request.starts_with("POST"), "{request}");
            let mut body = String::new();
            for line in &answer.lines {
                body += line;
                body.push('\n');
            }
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let (body, end) = if answer.breaks {
                (body.trim_end()[..body.len() - 4].to_owned(), "")
            } else {
                (body, "0\r\n\r\n")
            };
            write!(stream, "{head}{:x}\r\n{body}\r\n{end}", body.len()).unwrap();
            request
        };
        answers.into_iter().map(answer).collect::<Vec<String>>()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = runtime.block_on(async {
        let client = Client::new(Place::Socket(path), None);
        let mut executing = client.execute("box", &Execute::default()).await.unwrap();
        let mut seen = Vec::new();
        loop {
            match executing.next().await {
                Ok(Some(event)) => seen.push(event),
                Ok(None) => return Ok(seen),
                Err(error) => return Err(error.to_string()),
            }
        }
    });
    (seen, daemon.join().unwrap())
}

#[test]
fn an_execution_is_read_on_from_where_the_connection_broke() {
    let text = |n| event(n, &format!(r#""type":"stdout","text":"{n}""#));
    let (seen, requests) = follow(vec![
        Answer { lines: vec![accepted(), text(1), text(2)], breaks: true },
        Answer { lines: vec![event(2, r#""type":"keepalive""#), text(2), text(3)], breaks: false },
        Answer { lines: vec![event(4, r#""type":"end","status":"ok""#)], breaks: false },
    ]);
    let numbers: Vec<u64> = seen.as_ref().unwrap().iter().map(|event| event.n).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let end = &seen.unwrap()[4].kind;
    assert_eq!(*end, EventKind::End { status: Status::Ok, reason: None });
    let address = "GET /v1/sandbox/box/code/executions/e%201?from=";
    assert!(requests[1].starts_with(&format!("{address}2&follow=true ")), "{requests:?}");
    assert!(requests[2].starts_with(&format!("{address}4&follow=true ")), "{requests:?}");
}

#[test]
fn a_daemon_that_always_breaks_is_given_up() {
    let mut answers = vec![Answer { lines: vec![accepted(), accepted()], breaks: true }];
    answers.extend((0..3).map(|_| Answer { lines: vec!["{half}".to_owned()], breaks: true }));
    let (seen, requests) = follow(answers);
    assert!(seen.is_err(), "{seen:?}");
    assert_eq!(requests.len(), 4);
}
