//! Pages of others, foreign names, and clients that mean no good.

use std::io::Write as _;
use std::time::Duration;

use super::Daemon;
use crate::support::eventually;

#[test]
fn pages_of_others_and_foreign_names_are_refused() {
    let daemon = Daemon::start();
    let key = format!("X-API-KEY: {}\r\n", daemon.key());
    for (lines, status) in [
        ("Host: evil.example\r\n", 421),
        ("Host: localhost.evil.example\r\n", 421),
        ("Host: \r\n", 421),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Host: 127.0.0.1\r\n", 200),
        ("Host: [::1]:7070\r\n", 200),
        ("Host: localhost:7070\r\nOrigin: http://localhost:7070\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
    ] {
        let answer = daemon.send("GET", "/v1/sandboxes", &format!("{lines}{key}"), b"");
        assert_eq!(answer.status, status, "{lines}: {answer:?}");
        if status != 200 {
            assert!(answer.message().contains("configuration"), "{}", answer.message());
        }
    }
}

#[test]
fn a_client_that_says_nothing_holds_nobody_up() {
    let daemon = Daemon::start();
    let mut silent: Vec<_> = (0..200).map(|_| daemon.connect()).collect();
    for stream in &mut silent {
        stream.write_all(b"POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    }
    assert_eq!(daemon.send("GET", "/healthz", "", b"").status, 200);
}

#[test]
fn what_is_no_http_is_answered_or_closed_and_harms_nobody() {
    let daemon = Daemon::start();
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(2 << 20));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(5000));
    for bytes in [b"\0\xff\xfe\r\n\r\n".as_slice(), b"GET", long.as_bytes(), many.as_bytes()] {
        let mut stream = daemon.connect();
        let _ = stream.write_all(bytes);
        drop(stream);
    }
    assert_eq!(daemon.send("GET", "/healthz", "", b"").status, 200);
}

#[test]
fn who_goes_away_during_a_create_leaves_no_sandbox() {
    let daemon = Daemon::start();
    let body = if crate::support::is_root() { "{}" } else { "{\"allow_unenforced\":true}" };
    for _ in 0..5 {
        let mut stream = daemon.connect();
        let head = format!(
            "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {}\r\nContent-Length: {}\r\n\r\n{body}",
            daemon.key(),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(stream);
    }
    eventually("a sandbox is left that nobody knows", || {
        daemon.ask("GET", "/v1/sandboxes", "").json()["total_items"] == 0
    });
}

#[test]
fn a_held_sandbox_goes_with_its_connection() {
    use std::io::Read as _;

    let daemon = Daemon::start();
    let body = r#"{"lifetime": "connection", "allow_unenforced": true}"#;
    let head = format!(
        "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {}\r\nContent-Length: {}\r\n\r\n{body}",
        daemon.key(),
        body.len()
    );
    let mut stream = daemon.connect();
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"state\":\"running\"") {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..length]);
    }
    assert_eq!(daemon.ask("GET", "/v1/sandboxes", "").json()["total_items"], 1);
    drop(stream);
    eventually("it outlives its connection", || {
        daemon.ask("GET", "/v1/sandboxes", "").json()["total_items"] == 0
    });
}
