//! The daemon with its memory in a PostgreSQL server.

#[path = "../../crates/store/tests/stores/server.rs"]
mod server;

use server::{PASSWORD, Server};

use super::Daemon;
use crate::support::{Home, skip};

/// A server of the test's own, unless there is none to be had, which is said.
fn start(test: &str) -> Option<Server> {
    Server::start().map_err(|reason| skip(test, &reason)).ok()
}

#[test]
fn sandboxes_and_keys_are_in_the_server_and_outlive_the_daemon_and_a_crash_of_it() {
    let Some(mut server) = start("sandboxes_and_keys_are_in_the_server") else { return };
    let variables = [("SOMA_DATABASE", server.address("postgres"))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut daemon = Daemon::with(Home::new(), &variables);
    let (kept, gone) = (daemon.create(r#"{"name": "kept"}"#), daemon.create("{}"));
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{gone}"), "").status, 204);
    assert!(!daemon.home.path().join("daemon/soma.db").exists(), "there is a file as well");
    assert_eq!(server.run("postgres", "SELECT name FROM leases"), "kept\n");
    let key = daemon.key();
    assert!(!server.run("postgres", "SELECT * FROM api_keys").contains(&key));

    assert!(daemon.end().success());
    daemon.restart();
    let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["items"][0]["id"], kept.as_str(), "{listed}");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(daemon.execute(&kept, "echo still here"), "still here\n");
    let events = daemon.ask("GET", &format!("/v1/sandbox/{gone}/events"), "").json();
    assert_eq!(events["items"].as_array().unwrap().last().unwrap()["state"], "deleted");

    // The same daemon goes on when the server is back.
    server.stop();
    let away = daemon.ask("GET", "/v1/sandboxes", "");
    // Keys are in the server too, so nobody is let in on trust.
    assert!(away.message().contains("no key can be checked now"), "{}", away.message());
    // Nor is anybody told that a key is wrong which may be right.
    assert_eq!(away.status, 503, "{}", away.message());
    assert!(away.message().contains("ask again"), "{}", away.message());
    let key = format!("X-API-Key: {key}\r\n");
    let away = daemon.send("GET", "/v2/sandboxes", &key, b"");
    assert_eq!(away.status, 503, "{}", String::from_utf8_lossy(&away.body));
    let inside = format!("{key}E2b-Sandbox-Id: {kept}\r\n");
    let away = daemon.send("GET", "/files?path=/etc/hostname", &inside, b"");
    assert_eq!(away.status, 503, "{}", String::from_utf8_lossy(&away.body));
    assert!(!String::from_utf8_lossy(&away.body).contains(PASSWORD));
    server.resume();
    let listed = daemon.ask("GET", "/v1/sandboxes", "").json();
    assert_eq!(listed["items"][0]["id"], kept.as_str(), "{listed}");
    assert_eq!(daemon.ask("DELETE", "/v1/sandbox/kept", "").status, 204);
}

#[test]
fn a_database_of_another_home_is_refused_and_no_word_has_the_password() {
    let Some(server) = start("a_database_of_another_home_is_refused") else { return };
    let address = server.address("postgres");
    let daemon = Daemon::with(Home::new(), &[("SOMA_DATABASE", &address)]);
    for process in daemon.home.daemons() {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(PASSWORD));
    }
    let other = Home::new();
    let mut second = other.soma(["serve", "--listen", "off"]);
    let second = second.env("SOMA_DATABASE", &address).output().unwrap();
    let words = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(125), "{words}");
    assert!(words.contains("belongs to the daemon of another home"), "{words}");
    assert!(!words.contains(PASSWORD), "{words}");

    let shown = other.soma(["config"]).env("SOMA_DATABASE", &address).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("SOMA_DATABASE") && !shown.contains(PASSWORD), "{shown}");
    let typed = other.soma(["serve", "--database", &address]).output().unwrap();
    let words = String::from_utf8(typed.stderr).unwrap();
    assert_eq!(typed.status.code(), Some(2), "{words}");
    assert!(words.contains("seen by every user") && !words.contains(PASSWORD), "{words}");
}
