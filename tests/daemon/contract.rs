//! What is promised on paper: the committed contract, and that every route asks who is there.

use std::process::Stdio;

use super::Daemon;
use super::sdks::interpreter;
use crate::support::{Home, needs_root};

const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/v1.json");

#[test]
fn the_contract_is_the_committed_one() {
    let daemon = Daemon::start();
    let served = daemon.send("GET", "/openapi.json", "", b"");
    assert_eq!(served.status, 200);
    let served = String::from_utf8(served.body).unwrap() + "\n";
    if std::env::var_os("SOMA_RECORD").is_some() {
        std::fs::write(CONTRACT, &served).unwrap();
    }
    let committed = std::fs::read_to_string(CONTRACT).unwrap_or_default();
    assert!(served == committed, "openapi/v1.json is another: record it with SOMA_RECORD=1");
    let page = daemon.send("GET", "/docs", "", b"");
    let text = String::from_utf8(page.body).unwrap();
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
}

#[test]
fn every_route_wants_to_know_who_is_asking() {
    let daemon = Daemon::start();
    let contract = daemon.send("GET", "/openapi.json", "", b"").json();
    let mut tried = 0;
    for (path, methods) in contract["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let (path, method) =
                (path.replace("{id}", "x").replace("{pid}", "1"), method.to_uppercase());
            for line in ["", "Authorization: Bearer e2b_0000\r\n", "X-API-KEY: wrong\r\n"] {
                let answer = daemon.send(&method, &path, line, b"{}");
                assert_eq!(answer.status, 401, "{method} {path} {line}: {answer:?}");
                assert!(answer.message().contains("API key"), "{}", answer.message());
            }
            tried += 1;
        }
    }
    assert!(tried >= 30, "{tried}");
    for path in ["/sandboxes", "/v2/sandboxes", "/sandboxes/x", "/metrics", "/no/such/path"] {
        assert_eq!(daemon.send("GET", path, "", b"").status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz", "/docs", "/openapi.json"] {
        assert_eq!(daemon.send("GET", path, "", b"").status, 200, "{path}");
    }
    let key = daemon.key();
    for line in [
        format!("Authorization: Bearer {key}\r\n"),
        format!("authorization: {key}\r\n"),
        format!("leap0-authorization: bearer {key}\r\n"),
        format!("X-API-KEY: {key}\r\n"),
    ] {
        assert_eq!(daemon.send("GET", "/v1/sandboxes", &line, b"").status, 200, "{line}");
    }
}

#[test]
fn the_figures_count_what_happened() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    daemon.execute(&id, "true");
    daemon.ask("POST", "/v1/sandbox", "{\"timeout\": 0}");
    let figures = String::from_utf8(daemon.ask("GET", "/metrics", "").body).unwrap();
    for line in [
        "sandboxes{state=\"running\"} 1\n",
        "sandbox_creates_total{outcome=\"created\"} 1\n",
        "sandbox_creates_total{outcome=\"refused\"} 1\n",
        "executions_total 1\n",
    ] {
        assert!(figures.contains(line), "{line} is not in {figures}");
    }
    assert!(figures.contains("route=\"/v1/sandbox/{id}/process/execute\""), "{figures}");
    assert!(figures.ends_with("# EOF\n"), "{figures}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
}

#[test]
fn schemathesis_finds_no_answer_that_breaks_the_contract() {
    let name = "schemathesis_finds_no_answer_that_breaks_the_contract";
    if needs_root(name, "sandboxes that hold their limits without being asked twice") {
        return;
    }
    let Some(program) = interpreter(name, "SOMA_SCHEMATHESIS") else { return };
    let daemon = Daemon::with(Home::new(), &[("SOMA_MAX_SANDBOXES", "12")]);
    let folder = tempfile::tempdir().unwrap();
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/daemon");
    // Each of these writes a sandbox's memory to the disk, some hundred times.
    let slow: &[&str] = match std::env::var_os("SOMA_LONG") {
        Some(_) => &[],
        None => &["/v1/sandbox/{id}/fork", "/v1/sandbox/{id}/snapshot/create"],
    };
    let output = sys_linux::command::command(program)
        .args(["run", &format!("http://{}/openapi.json", daemon.address)])
        .args(["--header", &format!("Authorization: Bearer {}", daemon.key())])
        .args(["--phases", "coverage,fuzzing", "--max-examples", "4", "--seed", "7"])
        .args(["--checks", "not_a_server_error,status_code_conformance"])
        .args(["--checks", "content_type_conformance,response_schema_conformance"])
        // They have no end, and would be waited for.
        .args(["--exclude-path", "/v1/events/stream"])
        // It builds, from registries that may not be there.
        .args(["--exclude-path", "/v1/template/{name}/build"])
        .args(["--exclude-path", "/v1/sandbox/{id}/network/log/stream"])
        // Followed, it answers when there is something new, or after a while.
        .args(["--exclude-path", "/v1/sandbox/{id}/network/log"])
        .args(slow.iter().flat_map(|path| ["--exclude-path", path]))
        .args(["--continue-on-failure", "--request-timeout", "60", "--no-color"])
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", top)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
