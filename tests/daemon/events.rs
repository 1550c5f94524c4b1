//! What happened: looked up, followed, and still there when sandbox, daemon and database are not.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::Value;

use super::Daemon;

/// A stream of events that is read line by line.
struct Stream {
    lines: Lines<BufReader<TcpStream>>,
}

impl Stream {
    /// Follows, with this query and these header lines.
    fn open(daemon: &Daemon, query: &str, lines: &str) -> Self {
        let mut stream = daemon.connect();
        let key = daemon.key();
        let head = format!(
            "GET /v1/events/stream{query} HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {key}\r\n{lines}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(first.contains(" 200 "), "{first}");
        Self { lines }
    }

    /// The next event with its number; chunk sizes and comments are passed over.
    fn next(&mut self) -> (u64, Value) {
        let mut number = None;
        loop {
            let line = self.lines.next().expect("the stream is over").unwrap();
            if let Some(id) = line.strip_prefix("id: ") {
                number = Some(id.parse().unwrap());
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (
                    number.expect("an event without a number"),
                    serde_json::from_str(data).unwrap(),
                );
            }
        }
    }
}

/// What happened to a sandbox, in a word each.
fn words(daemon: &Daemon, id: &str) -> Vec<String> {
    let answer = daemon.ask("GET", &format!("/v1/events?sandbox={id}&order=asc"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["items"].as_array().unwrap().iter().map(word).collect()
}

fn word(event: &Value) -> String {
    let what = event["what"].as_str().unwrap();
    match (what, event["state"].as_str()) {
        ("state_changed", Some(state)) => state.to_owned(),
        _ => what.to_owned(),
    }
}

/// The file that events are written to.
fn segment(daemon: &Daemon) -> PathBuf {
    let folder = std::fs::read_dir(daemon.home.path().join("daemon/events")).unwrap();
    folder.map(|entry| entry.unwrap().path()).max().unwrap()
}

const LIFE: [&str; 4] = ["creation_asked", "running", "deleting", "deleted"];

#[test]
fn events_outlive_the_sandbox_a_killed_daemon_and_the_database() {
    let mut daemon = Daemon::start();
    let (gone, kept) = (daemon.create(r#"{"name": "gone"}"#), daemon.create("{}"));
    assert_eq!(daemon.ask("DELETE", "/v1/sandbox/gone", "").status, 204);
    // What was answered is written down, whatever becomes of the daemon.
    daemon.kill();
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(daemon.home.path().join(format!("daemon/soma.db{suffix}")));
    }
    daemon.restart();
    assert_eq!(words(&daemon, &gone), LIFE);
    assert_eq!(words(&daemon, &kept), ["creation_asked", "running", "found"]);
    let of_one = daemon.ask("GET", &format!("/v1/sandbox/{gone}/events"), "").json();
    assert_eq!(of_one["items"].as_array().unwrap().iter().map(word).collect::<Vec<_>>(), LIFE);
    let first = &of_one["items"][0];
    assert_eq!(first["sequence"], 1);
    assert_eq!((first["result"].as_str(), first["name"].as_str()), (Some("ok"), Some("gone")));
    assert!(first["actor"].as_str().unwrap().starts_with("key "), "{first}");
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{kept}"), "").status, 204);
}

#[test]
fn an_event_has_the_id_of_the_request_that_caused_it() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    let answer = daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    let told = answer.head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    let events = daemon.ask("GET", &format!("/v1/events?sandbox={id}&limit=1"), "").json();
    assert_eq!(events["items"][0]["request"].as_str(), Some(told), "{events}");
    assert_eq!(events["items"][0]["state"], "deleted");
}

#[test]
fn pages_follow_each_other_in_both_directions() {
    let daemon = Daemon::start();
    for _ in 0..3 {
        let id = daemon.create("{}");
        daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    }
    for (order, expected) in
        [("asc", (1..=12).collect::<Vec<u64>>()), ("desc", (1..=12).rev().collect())]
    {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/events?order={order}&limit=5{cursor}");
            let page = daemon.ask("GET", &path, "").json();
            let items = page["items"].as_array().unwrap();
            seen.extend(items.iter().map(|item| item["sequence"].as_u64().unwrap()));
            assert_eq!(page["newest"], 12);
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{order}");
    }
    let since = daemon.ask("GET", "/v1/events?since=10&order=asc", "").json();
    assert_eq!(since["items"][0]["sequence"], 11);
    for query in ["limit=0", "limit=1001", "order=up", "cursor=x", "from=soon", "since=-1"] {
        assert_eq!(daemon.ask("GET", &format!("/v1/events?{query}"), "").status, 400, "{query}");
    }
    assert_eq!(daemon.ask("GET", "/v1/events?sandbox=nobody", "").status, 404);
}

#[test]
fn a_stream_goes_from_the_past_to_the_present_and_on_after_a_break() {
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    let mut stream = Stream::open(&daemon, "?since=0", "");
    for expected in 1..=2 {
        let (number, event) = stream.next();
        assert_eq!((number, event["sequence"].as_u64()), (expected, Some(expected)));
    }
    let other = daemon.create("{}");
    let (number, event) = stream.next();
    assert_eq!((number, event["sandbox"].as_str()), (3, Some(other.as_str())));
    // The daemon ends at once though somebody follows.
    let begun = std::time::Instant::now();
    assert!(daemon.end().success());
    assert!(begun.elapsed() < std::time::Duration::from_secs(8), "{:?}", begun.elapsed());
    daemon.restart();
    daemon.ask("DELETE", &format!("/v1/sandbox/{other}"), "");
    let mut again = Stream::open(&daemon, "?since=0", "Last-Event-ID: 3\r\n");
    let mut seen = Vec::new();
    for expected in 4..=8 {
        let (number, event) = again.next();
        assert_eq!(number, expected);
        seen.push(word(&event));
    }
    assert_eq!(seen[0], "running");
    assert_eq!(seen[1..3], ["found", "found"]);
    assert_eq!(seen[3..], ["deleting", "deleted"]);
    // Of one sandbox, and from now on.
    let mut one = Stream::open(&daemon, &format!("?sandbox={id}"), "");
    let third = daemon.create("{}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.ask("DELETE", &format!("/v1/sandbox/{third}"), "");
    let (_, event) = one.next();
    assert_eq!(
        (event["sandbox"].as_str(), event["state"].as_str()),
        (Some(id.as_str()), Some("deleting"))
    );
    // Numbers that are not there yet are not waited for in silence.
    let (number, gap) = Stream::open(&daemon, "?since=100000", "").next();
    assert_eq!(gap["to"], 100_000, "{gap}");
    assert!(number < 100);
}

#[test]
fn a_torn_and_a_damaged_file_of_events_stop_no_start() {
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    assert!(daemon.end().success());
    let path = segment(&daemon);
    let whole = std::fs::read_to_string(&path).unwrap();
    assert_eq!(whole.lines().count(), 4);
    let torn = &whole[..whole.len() - 20];
    std::fs::write(&path, torn).unwrap();
    daemon.restart();
    assert_eq!(words(&daemon, &id), LIFE[..3]);
    assert!(daemon.end().success());
    std::fs::write(&path, torn.replacen("sequence", "\u{0}garbage", 1)).unwrap();
    daemon.restart();
    assert_eq!(words(&daemon, &id), LIFE[1..3]);
    let next = daemon.create("{}");
    assert_eq!(words(&daemon, &next), LIFE[..2]);
    daemon.ask("DELETE", &format!("/v1/sandbox/{next}"), "");
    assert!(daemon.end().success());
    std::fs::write(&path, vec![0xa5; 100_000]).unwrap();
    daemon.restart();
    assert_eq!(words(&daemon, &next), [""; 0]);
    let after = daemon.create("{}");
    assert_eq!(words(&daemon, &after), LIFE[..2]);
    daemon.ask("DELETE", &format!("/v1/sandbox/{after}"), "");
}
