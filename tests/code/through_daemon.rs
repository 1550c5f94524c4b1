//! Kernels in real sandboxes, through the daemon.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::daemon::Daemon;

/// Asks for something below `/code` of a sandbox.
#[track_caller]
pub(super) fn ask(
    daemon: &Daemon,
    id: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = daemon.ask(method, &format!("/v1/sandbox/{id}/code{path}"), &body);
    let value = if answer.body.is_empty() { Value::Null } else { answer.json() };
    (answer.status, value)
}

/// Runs code to its end, in a context or a new one.
#[track_caller]
pub(crate) fn execute(daemon: &Daemon, id: &str, context: Option<&str>, code: &str) -> Value {
    let body = json!({ "code": code, "context_id": context, "timeout_ms": 120_000 });
    let (status, value) = ask(daemon, id, "POST", "/execute", &body);
    assert_eq!(status, 200, "{value}");
    value
}

pub(crate) fn context(daemon: &Daemon, id: &str, language: &str) -> String {
    let body = json!({ "language": language });
    let (status, value) = ask(daemon, id, "POST", "/contexts", &body);
    assert_eq!(status, 201, "{value}");
    value["id"].as_str().unwrap().to_owned()
}

pub(crate) fn stdout(execution: &Value) -> String {
    let lines = execution["logs"]["stdout"].as_array().unwrap();
    lines.iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The same in every language: what to say, and what comes of it.
struct Words {
    language: &'static str,
    set: &'static str,
    get: &'static str,
    fail: (&'static str, &'static str),
    file: &'static str,
    /// Takes memory without end.
    grow: &'static str,
}

const WORDS: [Words; 4] = [
    Words {
        language: "python",
        set: "x = 41",
        get: "print(x + 1)",
        fail: ("1 / 0", "ZeroDivisionError"),
        file: "open('/workspace/python', 'w').write('\\u2028')",
        grow: "x = []\nwhile True: x.append(b'x' * 10**7)",
    },
    Words {
        language: "javascript",
        set: "const x = 41",
        get: "console.log(x + 1)",
        fail: ("null.x", "TypeError"),
        file: "require('fs').writeFileSync('/workspace/javascript', '\\u2028')",
        grow: "const all = []; while (true) all.push(Buffer.alloc(1e7, 1))",
    },
    Words {
        language: "r",
        set: "x <- 41",
        get: "cat(x + 1, '\\n', sep = '')",
        fail: ("stop('no')", "Error"),
        file: "writeBin(as.raw(c(0xe2, 0x80, 0xa8)), '/workspace/r')",
        grow: "all <- list(); while (TRUE) all[[length(all) + 1]] <- rep(1.5, 1e6)",
    },
    Words {
        language: "bash",
        set: "x=41",
        get: "echo $((x + 1))",
        fail: ("false", "CommandFailed"),
        file: "printf '\\u2028' > /workspace/bash",
        grow: "x=$(head -c 4000000 /dev/zero | tr '\\0' x); while :; do y+=$x; done",
    },
];

#[test]
fn every_language_remembers_fails_and_writes_files_in_a_sandbox() {
    let daemon = Daemon::start();
    let id = daemon.create(&json!({ "timeout": 600 }).to_string());
    for words in WORDS {
        let context = context(&daemon, &id, words.language);
        let run = |code: &str| execute(&daemon, &id, Some(&context), code);
        assert_eq!(run(words.set)["status"], "ok");
        assert_eq!(stdout(&run(words.get)).trim_end(), "42", "{}", words.language);
        let failed = run(words.fail.0);
        assert_eq!(failed["error"]["name"], words.fail.1, "{failed}");
        assert_eq!(stdout(&run(words.get)).trim_end(), "42", "{}", words.language);
        assert_eq!(run(words.file)["status"], "ok");
        let hex = daemon.execute(&id, &format!("od -An -tx1 /workspace/{}", words.language));
        assert_eq!(hex.trim(), "e2 80 a8", "{}", words.language);
    }
    let (_, listed) = ask(&daemon, &id, "GET", "/contexts", &Value::Null);
    assert!(listed["items"].as_array().unwrap().len() >= WORDS.len());
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn kernels_that_take_all_memory_are_told_so_and_the_sandbox_lives() {
    let daemon = Daemon::start();
    let wish = json!({ "timeout": 600, "memory": 256, "allow_unenforced": true });
    let id = daemon.create(&wish.to_string());
    let limits = daemon.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
    let unenforced = limits["unenforced"].to_string();
    if unenforced.contains("memory") {
        daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
        daemon.close();
        return crate::support::skip(
            "kernels_that_take_all_memory_are_told_so_and_the_sandbox_lives",
            "this host holds an ordinary user's sandboxes to no limit of memory",
        );
    }
    for words in WORDS {
        let context = context(&daemon, &id, words.language);
        let run = |code: &str| execute(&daemon, &id, Some(&context), code);
        assert_eq!(run(words.set)["status"], "ok");
        assert_eq!(run(words.file)["status"], "ok");
        let died = run(words.grow);
        assert_eq!(died["status"], "died", "{}: {died}", words.language);
        assert_eq!(died["error"]["name"], "KernelDied");
        assert!(died["error"]["value"].as_str().unwrap().contains("memory"), "{died}");
        // What it had set is gone, which is said, and it works again; its files are there.
        let after = run(words.set);
        assert_eq!(after["status"], "ok", "{}: {after}", words.language);
        assert!(!after["logs"]["stderr"].as_array().unwrap().is_empty(), "it is not said: {after}");
        assert_eq!(stdout(&run(words.get)).trim_end(), "42", "{}", words.language);
        let hex = daemon.execute(&id, &format!("od -An -tx1 /workspace/{}", words.language));
        assert_eq!(hex.trim(), "e2 80 a8", "{}", words.language);
        let path = format!("/contexts/{context}");
        ask(&daemon, &id, "DELETE", &path, &Value::Null);
    }
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn an_execution_goes_on_without_its_reader_and_without_the_daemon() {
    let mut daemon = Daemon::start();
    let id = daemon.create(&json!({ "timeout": 600 }).to_string());
    let code = "import time\nfor n in range(60):\n    print(n, flush=True)\n    time.sleep(0.05)";
    let body = json!({ "code": code, "detach": true, "timeout_ms": 60_000 });
    let (status, begun) = ask(&daemon, &id, "POST", "/executions", &body);
    assert_eq!(status, 201, "{begun}");
    let execution = begun["id"].as_str().unwrap();
    daemon.kill();
    daemon.restart();
    let path = format!("/v1/sandbox/{id}/code/executions/{execution}?from=0&follow=true");
    let answer = daemon.ask("GET", &path, "");
    assert_eq!(answer.status, 200);
    let lines = String::from_utf8(answer.body).unwrap();
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    let expected: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    assert_eq!(events.last().unwrap()["status"], "ok");
    // From a number on, the rest and nothing else.
    let half = &events[events.len() / 2];
    let path = format!("/v1/sandbox/{id}/code/executions/{execution}?from={}", half["n"]);
    let rest = String::from_utf8(daemon.ask("GET", &path, "").body).unwrap();
    assert_eq!(serde_json::from_str::<Value>(rest.lines().next().unwrap()).unwrap(), *half);
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn leap0s_code_interpreter_is_at_the_sandboxs_own_name() {
    let daemon = Daemon::start();
    let id = daemon.create(&json!({ "timeout": 600 }).to_string());
    let lines = format!("Host: {id}.localhost\r\nleap0-authorization: {}\r\n", daemon.key());
    let send =
        |method: &str, path: &str, body: &str| daemon.send(method, path, &lines, body.as_bytes());
    assert_eq!(send("GET", "/healthz", "").json(), json!({ "status": "ok" }));
    let made = send("POST", "/contexts", r#"{"language": "py"}"#);
    assert_eq!(made.status, 201);
    let context = made.json()["id"].as_str().unwrap().to_owned();
    let body = json!({ "code": "print('a'); 6 * 7", "context_id": context, "language": "python" });
    let done = send("POST", "/execute", &body.to_string()).json();
    assert_eq!(done["items"][0]["text"], "42", "{done}");
    assert_eq!(done["items"][0]["is_primary"], true);
    assert_eq!(stdout(&done).trim_end(), "a");
    let body = json!({ "code": "print('b')", "language": "python" }).to_string();
    let streamed = String::from_utf8(send("POST", "/execute/async", &body).body).unwrap();
    assert!(streamed.contains("data: {") && streamed.contains(r#""data":"b""#), "{streamed}");
    assert_eq!(send("DELETE", &format!("/contexts/{context}"), "").status, 204);
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn contexts_are_made_without_a_token_and_code_is_not_run_without_one() {
    let daemon = Daemon::start();
    let made = daemon.send(
        "POST",
        "/v2/sandboxes",
        &format!("X-API-Key: {}\r\n", daemon.key()),
        br#"{"templateID": "base", "secure": true}"#,
    );
    assert_eq!(made.status, 201, "{}", made.json());
    let made: BTreeMap<String, Value> = serde_json::from_slice(&made.body).unwrap();
    let id = made["sandboxID"].as_str().unwrap();
    let token = made["envdAccessToken"].as_str().unwrap();
    let lines = format!("E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49999\r\n");
    let send = |path: &str, more: &str| {
        daemon.send("POST", path, &format!("{lines}{more}"), br#"{"code": "1"}"#).status
    };
    assert_eq!(send("/contexts", ""), 200);
    assert_eq!(send("/execute", ""), 401);
    assert_eq!(send("/execute", "X-Access-Token: wrong\r\n"), 401);
    assert_eq!(send("/contexts", "X-Access-Token: wrong\r\n"), 401);
    assert_ne!(send("/contexts/../execute", ""), 200);
    assert_eq!(send("/execute", &format!("X-Access-Token: {token}\r\n")), 200);
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

/// Many readers of large values that take nothing: each has what it is being sent, and together
/// they would have more than the guest has.
#[test]
fn readers_that_are_stuck_in_large_values_do_not_fill_the_guest() {
    use std::io::{Read as _, Write as _};

    let daemon = Daemon::start();
    let id = daemon.create(&json!({ "timeout": 600 }).to_string());
    let context = context(&daemon, &id, "python");
    let mut stuck = Vec::new();
    for _ in 0..6 {
        let code = "class Large:\n    def _repr_html_(self):\n        \
                    return 'x' * (7 << 20)\nLarge()";
        let limits = json!({ "result": 0 });
        let body = json!({
            "code": code, "context_id": context, "detach": true, "timeout_ms": 60_000,
            "limits": limits,
        });
        let (status, begun) = ask(&daemon, &id, "POST", "/executions", &body);
        assert_eq!(status, 201, "{begun}");
        let execution = begun["id"].as_str().unwrap();
        for _ in 0..8 {
            let mut reader = daemon.connect();
            let head = format!(
                "GET /v1/sandbox/{id}/code/executions/{execution}?from=0&follow=true HTTP/1.1\r\n\
                 Host: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
                daemon.key()
            );
            reader.write_all(head.as_bytes()).unwrap();
            // The answer begins, so the reader is one; no more of it is read.
            let mut head_of_it = [0; 64];
            assert!(reader.read(&mut head_of_it).unwrap() > 0);
            stuck.push(reader);
        }
        // The next cell comes when this one is over.
        assert_eq!(execute(&daemon, &id, Some(&context), "1")["status"], "ok");
    }
    let most = daemon.execute(&id, "awk '/^VmHWM:/ { print $2 }' /proc/1/status");
    let most: u64 = most.trim().parse().unwrap();
    assert!(most < 200 << 10, "the guest had {most} KiB");
    drop(stuck);
    let after = execute(&daemon, &id, Some(&context), "print(42)");
    assert_eq!(stdout(&after).trim(), "42", "{after}");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}
