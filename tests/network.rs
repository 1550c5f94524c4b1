//! What sandboxes reach, and what they do not: through the daemon, with programs inside and servers
//! outside.

mod changes;
mod command_line;
mod refusals;
pub(crate) mod registries;
mod secrets;
mod ssh;
mod world;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use world::{HERE, World, first_to_speak, git, web};

/// Fetches an address with Python and prints the status and the text, or the error.
const FETCH: &str = r"
import sys, time, urllib.request, urllib.error
begun = time.time()
try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except Exception as error:
    print('failed:', error)
print('took %.3f' % (time.time() - begun))
";

/// What a sandbox is told at a place of the web, or why it is told nothing.
#[track_caller]
fn fetch(daemon: &Daemon, id: &str, place: &str) -> String {
    python(daemon, id, FETCH, place)
}

/// Runs a program in Python with one argument.
#[track_caller]
fn python(daemon: &Daemon, id: &str, program: &str, argument: &str) -> String {
    let program = program.replace('\'', "'\\''");
    daemon.execute(id, &format!("python3 -c '{program}' '{argument}' 2>&1"))
}

/// Makes a sandbox that may reach this.
#[track_caller]
fn sandbox(daemon: &Daemon, policy: &Value) -> String {
    daemon.create(&json!({ "network_policy": policy, "timeout": 600 }).to_string())
}

/// What a sandbox tried to reach, as the API tells it.
#[track_caller]
fn log(daemon: &Daemon, id: &str) -> Vec<Value> {
    let answer = daemon.ask("GET", &format!("/v1/sandbox/{id}/network/log"), "");
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()["items"].as_array().unwrap().clone()
}

/// How long a program inside said that it took, in seconds.
fn seconds(said: &str) -> f64 {
    let took = said.lines().find_map(|line| line.strip_prefix("took "));
    took.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

#[test]
fn a_sandbox_reaches_by_name_what_it_may_and_the_log_says_so() {
    let world = World::new();
    let port = web().port();
    world.name("world.example.com", &[HERE]);
    let daemon = world.daemon("");
    let open = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    let listed = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["*.example.com"] }));
    for id in [&open, &listed] {
        let said = fetch(&daemon, id, &format!("http://world.example.com:{port}/path"));
        assert!(said.starts_with("200 GET /path HTTP/1.1"), "{said}");
        assert!(said.to_lowercase().contains(&format!("host: world.example.com:{port}")), "{said}");
        let log = log(&daemon, id);
        let passed = log.iter().find(|entry| entry["port"] == port).unwrap_or_else(|| {
            panic!("{log:?}");
        });
        assert_eq!(passed["name"], "world.example.com", "{passed}");
        assert_eq!(passed["allowed"], true, "{passed}");
        assert!(passed["received"].as_u64().unwrap() > 100, "{passed}");
        assert!(passed["sent"].as_u64().unwrap() > 50, "{passed}");
    }
    let asked = log(&daemon, &listed);
    assert!(asked[0]["rule"].as_str().unwrap().contains("*.example.com"), "{asked:?}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{open}"), "");
    daemon.ask("DELETE", &format!("/v1/sandbox/{listed}"), "");
    daemon.close();
}

#[test]
fn a_server_that_speaks_first_is_heard_without_waiting() {
    let world = World::new();
    let port = first_to_speak().port();
    world.name("mail.example.com", &[HERE]);
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["mail.example.com"] }));
    let talk = format!(
        "import socket, sys\ns = socket.create_connection((sys.argv[1], {port}), 20)\n\
         print(s.recv(100))\ns.sendall(b'hello')\nprint(s.recv(100))\n"
    );
    let said = python(&daemon, &id, &talk, "mail.example.com");
    assert_eq!(said, "b'220 here\\n'\nb'hello'\n");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn git_clones_from_where_it_may() {
    let world = World::new();
    let (_repository, address) = git();
    let port = address.port();
    world.name("code.example.com", &[HERE]);
    let daemon = world.daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": ["code.example.com"] }));
    let clone = |name: &str| {
        let place = format!("git://{name}.example.com:{port}/work");
        daemon.execute(&id, &format!("git clone --quiet {place} {name} 2>&1 && cat {name}/page"))
    };
    assert_eq!(clone("code"), "here\n");
    let refused = clone("other");
    assert!(refused.contains("unable to look up other.example.com"), "{refused}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn two_sandboxes_of_one_owner_reach_each_other_only_where_it_was_granted() {
    let daemon = World::new().daemon("");
    let server = sandbox(&daemon, &json!({ "mode": "deny-all" }));
    daemon.execute(
        &server,
        "cd /tmp && echo here > page && (python3 -m http.server 8080 >/dev/null 2>&1 &) ; sleep 1",
    );
    let stranger = sandbox(&daemon, &json!({ "mode": "allow-all" }));
    let friend = sandbox(&daemon, &json!({ "mode": "custom", "allow_sandboxes": [server] }));
    let place = format!("http://{server}.sandbox.internal:8080/page");
    let said = fetch(&daemon, &friend, &place);
    assert!(said.starts_with("200 here"), "{said}");
    let said = fetch(&daemon, &stranger, &place);
    assert!(said.starts_with("failed:"), "{said}");
    for id in [&server, &stranger, &friend] {
        daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    }
    daemon.close();
}

#[test]
fn the_metadata_service_tells_a_sandbox_about_itself_and_wants_a_token() {
    let daemon = World::new().daemon("");
    let id = sandbox(&daemon, &json!({ "mode": "deny-all" }));
    let ask = r"
import json, urllib.request, urllib.error
base = 'http://169.254.169.254'
def call(method, path, headers):
    request = urllib.request.Request(base + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ''
print(call('GET', '/latest/meta-data/leap0', {})[0])
print(call('PUT', '/latest/api/token', {'X-metadata-token-ttl-seconds': '0'})[0])
status, token = call('PUT', '/latest/api/token', {'X-metadata-token-ttl-seconds': '60'})
print(status)
told = call('GET', '/latest/meta-data/leap0', {'X-metadata-token': token, 'Accept': 'application/json'})
print(told[0], json.loads(told[1])['sandbox']['id'])
print(call('GET', '/latest/meta-data/nothing', {'X-metadata-token': token})[0])
";
    assert_eq!(python(&daemon, &id, ask, ""), format!("401\n400\n200\n200 {id}\n404\n"));
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
