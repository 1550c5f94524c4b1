//! A conversation over HTTP, every answer as it was recorded.

use std::fmt::Write as _;

use super::Daemon;
use crate::snapshots::{compare, settled};
use crate::support::needs_root;

/// What is asked: a method, a path below `/v1` where `ID` is the first sandbox, and a body.
const ASKED: [(&str, &str, &str); 24] = [
    ("GET", "sandboxes", ""),
    ("POST", "sandbox", r#"{"name": "web", "labels": {"project": "shop"}, "memory": 300}"#),
    ("POST", "sandbox", r#"{"name": "web"}"#),
    ("POST", "sandbox", r#"{"memory": 1}"#),
    ("POST", "sandbox", r#"{"memory": "much"}"#),
    ("POST", "sandbox", r#"{"template_name": "nowhere"}"#),
    ("GET", "sandbox/ID", ""),
    ("GET", "sandbox/nobody", ""),
    ("GET", "sandboxes?label=project=shop", ""),
    ("GET", "sandboxes?page=0", ""),
    ("POST", "sandbox/ID/process/execute", r#"{"command": "echo out; echo err >&2; exit 3"}"#),
    ("POST", "sandbox/ID/process/execute", r#"{"command": "sleep 60", "timeout": 1}"#),
    ("POST", "sandbox/ID/process/execute", r#"{"command": "true", "cwd": "/nowhere"}"#),
    ("POST", "sandbox/ID/process/execute", "{}"),
    ("POST", "sandbox/ID/filesystem/mkdir", r#"{"path": "/workspace/a/b", "recursive": true}"#),
    ("POST", "sandbox/ID/filesystem/ls", r#"{"path": "/workspace", "recursive": true}"#),
    ("POST", "sandbox/ID/filesystem/read-file", r#"{"path": "/no/such/file"}"#),
    ("POST", "sandbox/ID/filesystem/delete", r#"{"path": "/workspace/a"}"#),
    ("POST", "sandbox/ID/filesystem/delete", r#"{"path": "/workspace/a", "recursive": true}"#),
    ("POST", "sandbox/ID/filesystem/nothing", "{}"),
    ("PUT", "sandbox/ID", ""),
    ("DELETE", "sandbox/ID", ""),
    ("DELETE", "sandbox/ID", ""),
    ("POST", "sandbox/ID/process/execute", r#"{"command": "true"}"#),
];

#[test]
fn a_conversation_is_as_it_was() {
    let name = "a_conversation_is_as_it_was";
    if needs_root(name, "limits on every host, and they are in these answers") {
        return;
    }
    let daemon = Daemon::start();
    let mut transcript = String::new();
    let mut first = None;
    for (method, path, body) in ASKED {
        let asked = path.replace("ID", first.as_deref().unwrap_or("ID"));
        let answer = daemon.ask(method, &format!("/v1/{asked}"), body);
        let _ = writeln!(transcript, "> {method} /v1/{path} {body}");
        let _ = writeln!(transcript, "< {}", answer.status);
        if !answer.body.is_empty() {
            let document = answer.json();
            if let (None, Some(id)) = (&first, document["id"].as_str()) {
                first = Some(id.to_owned());
            }
            let settled = settled(&document);
            transcript += &match &first {
                Some(id) => settled.replace(id.as_str(), "[id]"),
                None => settled,
            };
        }
        transcript.push('\n');
    }
    compare("conversation.txt", &transcript);
}
