//! What copies of a sandbox could know of each other.

use serde_json::{Value, json};

use super::Arena;
use crate::code::through_daemon::{context, execute, stdout};
use crate::support::cannot_checkpoint;

#[test]
fn e28_one_snapshot_is_resumed_twice_and_both_have_the_same_secrets() {
    if cannot_checkpoint("e28_one_snapshot_is_resumed_twice_and_both_have_the_same_secrets") {
        return;
    }
    let arena = Arena::new();
    let (daemon, source) = (&arena.daemon, arena.attacker.clone());
    let kernel = context(daemon, &source, "python");
    let seeded = "import random, ssl, uuid, tempfile, secrets; random.seed(1); ssl.RAND_bytes(8)";
    execute(daemon, &source, Some(&kernel), seeded);
    let path = format!("/v1/sandbox/{source}/fork");
    let made = daemon.ask("POST", &path, &json!({ "count": 2, "timeout": 600 }).to_string());
    assert_eq!(made.status, 201, "{}", made.json());
    let copies: Vec<String> = made.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    let secrets = |id: &String| -> Vec<String> {
        let draw = "print(random.random(), ssl.RAND_bytes(8).hex(), uuid.uuid4(), \
                    secrets.token_hex(8), next(tempfile._get_candidate_names()), sep='\\n')";
        let drawn = stdout(&execute(daemon, id, Some(&kernel), draw));
        let machine =
            daemon.execute(id, "cat /etc/machine-id; hostname; head -c 8 /dev/urandom | od -tx8");
        let token = daemon.ask("GET", &format!("/sandboxes/{id}"), "").json();
        let token = token["envdAccessToken"].as_str().unwrap().to_owned();
        let seen = drawn.lines().chain(machine.lines()).map(ToOwned::to_owned);
        seen.filter(|line| line.len() > 7).chain([token]).collect()
    };
    let known: Vec<Vec<String>> = copies.iter().map(secrets).collect();
    assert!(known[0].len() >= 9 && known[0].len() == known[1].len(), "{known:?}");
    for secret in &known[0] {
        assert!(!known[1].contains(secret), "both have {secret}: {known:?}");
    }
    // A copy's token opens that copy alone.
    let token = daemon.ask("GET", &format!("/sandboxes/{source}"), "").json();
    let token = token["envdAccessToken"].as_str().unwrap();
    let at = |id: &str| {
        let lines = format!(
            "E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: {token}\r\n"
        );
        daemon.send("GET", "/metrics", &lines, b"").status
    };
    assert_eq!(at(&source), 200);
    assert_eq!((at(&copies[0]), at(&copies[1])), (401, 401), "an earlier token opens a copy");
    for copy in &copies {
        let gone = daemon.ask("DELETE", &format!("/v1/sandbox/{copy}"), &Value::Null.to_string());
        assert_eq!(gone.status, 204);
    }
    arena.close();
}
