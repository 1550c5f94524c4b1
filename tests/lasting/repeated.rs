//! Requests whose answer was lost, and daemons that are told to end.

use super::{delete, stop};
use crate::daemon::Daemon;
use crate::support::{eventually, is_root};

fn create(daemon: &Daemon, key: &str, wish: &str) -> (u16, String) {
    let mut wish: serde_json::Value = serde_json::from_str(wish).unwrap();
    if !is_root() {
        wish["allow_unenforced"] = true.into();
    }
    let lines = format!("Authorization: Bearer {}\r\nIdempotency-Key: {key}\r\n", daemon.key());
    let answer = daemon.send("POST", "/v1/sandbox", &lines, wish.to_string().as_bytes());
    let words = answer.json();
    (answer.status, words["id"].as_str().or(words["message"].as_str()).unwrap().to_owned())
}

#[test]
fn a_create_with_a_key_that_is_sent_again_makes_one_sandbox() {
    let mut daemon = Daemon::start();
    let first = create(&daemon, "one", r#"{"labels": {"a": "b"}, "memory": 512}"#);
    // Spelt in another way it is the same.
    assert_eq!(create(&daemon, "one", r#"{"memory":512,"labels":{"a":"b"}}"#), first);
    let (status, words) = create(&daemon, "one", r#"{"memory": 256}"#);
    assert_eq!(status, 409, "{words}");
    assert!(words.contains("another key"), "{words}");
    daemon.kill();
    daemon.home.kill_engine();
    daemon.restart();
    assert_eq!(create(&daemon, "one", r#"{"labels": {"a": "b"}, "memory": 512}"#), first);
    let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["total_items"], 1, "{listed}");
    delete(&daemon, &first.1);
    daemon.close();
}

#[test]
fn a_daemon_that_dies_while_it_makes_a_sandbox_makes_it_once() {
    let mut daemon = Daemon::start();
    for round in 0..6 {
        let key = format!("round-{round}");
        let (address, words) = (daemon.address.clone(), daemon.key());
        let sent = std::thread::spawn({
            let key = key.clone();
            move || {
                use std::io::Write as _;
                let body = r#"{"allow_unenforced": true}"#;
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                let _ = write!(
                    stream,
                    "POST /v1/sandbox HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {words}\r\n\
                     Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream
            }
        });
        let stream = sent.join().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round * 3));
        daemon.kill();
        drop(stream);
        daemon.restart();
        let made = create(&daemon, &key, r#"{"allow_unenforced": true}"#);
        assert_eq!(made.0, 201, "{}", made.1);
        assert_eq!(daemon.execute(&made.1, "echo usable"), "usable\n");
        let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
        assert_eq!(listed["total_items"], 1, "{listed}");
        delete(&daemon, &made.1);
    }
    daemon.close();
}

#[test]
fn when_the_daemon_ends_sandboxes_do_what_they_were_made_to_do() {
    let mut daemon = Daemon::start();
    for choice in ["keep", "stop", "destroy"] {
        daemon.create(&format!(r#"{{"name": "box-{choice}", "on_exit": "{choice}"}}"#));
    }
    let paused = daemon.create(r#"{"name": "box-pause", "on_exit": "pause"}"#);
    assert!(daemon.end().success());
    daemon.restart();
    let states = ["box-keep", "box-stop", "box-destroy"].map(|name| daemon.state(name));
    assert_eq!(states, ["running", "stopped", "gone"]);
    if is_root() {
        assert_eq!(daemon.state("box-pause"), "paused");
        let folder = daemon.home.path().join("sandboxes").join(paused);
        let has_criu = std::env::var_os("SOMA_CRIU").is_some();
        assert_eq!(folder.join("asleep").exists(), has_criu, "it is on the disk, or not");
    } else {
        // Where nothing freezes it, it stays as it is.
        let state = daemon.state("box-pause");
        assert!(["paused", "running"].contains(&state.as_str()), "{state}");
    }
    assert_eq!(daemon.execute("box-pause", "echo here"), "here\n");
    let deleted = daemon.ask("DELETE", "/v1/sandbox/box-pause", "");
    assert_eq!(deleted.status, 204, "{}", String::from_utf8_lossy(&deleted.body));
    delete(&daemon, "box-keep");
    delete(&daemon, "box-stop");
    daemon.close();
}

#[test]
fn soma_down_ends_daemon_and_engine_and_sandboxes_go_on_unless_they_are_to_go() {
    let mut daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "stays"}"#);
    let guest = super::process_id(&daemon, &id);
    let down = daemon.home.soma(["down"]).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    // Whoever waits for the daemon goes a moment after it.
    eventually("the daemon or the engine is there", || {
        daemon.home.daemons().is_empty() && daemon.home.engines().is_empty()
    });
    assert!(rustix::process::test_kill_process(guest).is_ok(), "the sandbox went along");
    daemon.restart();
    assert_eq!(daemon.execute("stays", "echo here"), "here\n");
    stop(&daemon, "stays");
    let down = daemon.home.soma(["down", "--destroy"]).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    eventually("its folder is left", || !daemon.home.path().join("sandboxes").join(&id).exists());
    daemon.restart();
    let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["total_items"], 0, "{listed}");
    daemon.close();
}
