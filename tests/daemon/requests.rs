//! Requests, good and bad, and one clear answer to each.

use super::Daemon;
use crate::support::is_root;

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn bad_requests_are_answered_with_what_is_wrong_and_lose_nothing() {
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"name": "box"}"#);
    daemon.execute(&id, "echo keep > /workspace/kept");
    let own = |rest: &str| format!("/v1/sandbox/{id}{rest}");
    let deep = "[".repeat(100_000);
    let cases: Vec<(&str, String, String, u16, &str)> = vec![
        ("POST", "/v1/sandbox".into(), "not json".into(), 400, "JSON object"),
        ("POST", "/v1/sandbox".into(), "[]".into(), 400, "JSON object"),
        ("POST", "/v1/sandbox".into(), "{} {}".into(), 400, "follows the JSON"),
        ("POST", "/v1/sandbox".into(), r#"{"vcpu": "two"}"#.into(), 400, "`vcpu`"),
        ("POST", "/v1/sandbox".into(), r#"{"memory": -1}"#.into(), 400, "`memory`"),
        ("POST", "/v1/sandbox".into(), r#"{"timeout": 0}"#.into(), 400, "`timeout`"),
        ("POST", "/v1/sandbox".into(), r#"{"name": "Big Name"}"#.into(), 400, "`name`"),
        ("POST", "/v1/sandbox".into(), r#"{"name": "box"}"#.into(), 409, "already"),
        ("POST", "/v1/sandbox".into(), r#"{"template_name": "x"}"#.into(), 404, "no template"),
        ("POST", "/v1/sandbox".into(), r#"{"env_vars": {"A=B": "c"}}"#.into(), 400, "variable"),
        ("POST", "/v1/sandbox".into(), r#"{"env_vars": {"A": 1}}"#.into(), 400, "`env_vars.A`"),
        ("POST", "/v1/sandbox".into(), format!("{{\"a\": {deep}"), 400, "the body"),
        ("POST", "/v1/sandbox".into(), r#"{"memory": 999999}"#.into(), 400, "max_size"),
        ("GET", "/v1/sandbox/nobody".into(), String::new(), 404, "no sandbox `nobody`"),
        ("DELETE", "/v1/sandbox/nobody".into(), String::new(), 404, "no sandbox"),
        ("GET", "/v1/sandboxes?page=0".into(), String::new(), 400, "`page`"),
        ("GET", "/v1/sandboxes?state=flying".into(), String::new(), 400, "`state`"),
        ("GET", "/v1/sandboxes?label=x".into(), String::new(), 400, "`label`"),
        ("GET", "/v1/nothing".into(), String::new(), 404, "`/docs`"),
        ("PUT", "/v1/sandbox".into(), String::new(), 405, "has no `PUT`"),
        ("POST", own("/process/execute"), "{}".into(), 400, "command"),
        ("POST", own("/process/execute"), r#"{"command": ""}"#.into(), 400, "nothing to run"),
        (
            "POST",
            own("/process/execute"),
            r#"{"command": "true", "cwd": "/no"}"#.into(),
            400,
            "/no",
        ),
        (
            "POST",
            own("/process/execute"),
            r#"{"command": "true", "user": "nobody9"}"#.into(),
            400,
            "nobody9",
        ),
        ("GET", own("/process/99999/output"), String::new(), 404, "99999"),
        ("GET", own("/process/x/output"), String::new(), 400, "`pid`"),
        ("POST", own("/process/99999/signal"), r#"{"signal": "SIGTERM"}"#.into(), 404, "99999"),
        ("POST", own("/process/1/signal"), r#"{"signal": "SIGSTOP"}"#.into(), 400, "`signal`"),
        ("POST", own("/filesystem/read-file"), r#"{"path": "/no/such"}"#.into(), 404, "/no/such"),
        (
            "POST",
            own("/filesystem/read-file"),
            r#"{"path": "/workspace"}"#.into(),
            400,
            "is a directory",
        ),
        ("POST", own("/filesystem/read-file"), r#"{"path": ""}"#.into(), 400, "`path`"),
        ("POST", own("/filesystem/read-file"), r#"{"path": "a\u0000b"}"#.into(), 400, "NUL"),
        ("POST", own("/filesystem/read-file"), r#"{"path": null}"#.into(), 400, "`path`"),
        (
            "POST",
            own("/filesystem/read-file"),
            r#"{"path": "/workspace/kept", "head": 1, "tail": 1}"#.into(),
            400,
            "exclude",
        ),
        (
            "POST",
            own("/filesystem/mkdir"),
            r#"{"path": "/x", "permissions": "999"}"#.into(),
            400,
            "octal",
        ),
        (
            "POST",
            own("/filesystem/grep"),
            r#"{"path": "/workspace", "pattern": "("}"#.into(),
            400,
            "regular expression",
        ),
        (
            "POST",
            own("/filesystem/ls"),
            r#"{"path": "/workspace", "exclude": ["["]}"#.into(),
            400,
            "`exclude`",
        ),
        ("POST", own("/filesystem/write-file"), "x".into(), 400, "path"),
        ("POST", own("/filesystem/write-files"), "x".into(), 400, "multipart"),
        (
            "POST",
            own("/filesystem/edit-file"),
            r#"{"path": "/workspace/kept", "edits": [{"find": "zzz", "replace": ""}]}"#.into(),
            400,
            "`edits[0].find`",
        ),
    ];
    for (method, path, body, status, words) in cases {
        let answer = daemon.ask(method, &path, &body);
        let shown: String = body.chars().take(80).collect();
        let said = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, status, "{method} {path} {shown}: {said}");
        assert!(answer.message().contains(words), "{method} {path} {shown}: {}", answer.message());
        assert!(answer.head.contains("x-request-id: "), "{}", answer.head);
    }
    assert_eq!(daemon.execute(&id, "cat /workspace/kept"), "keep\n");
    daemon.ask("DELETE", "/v1/sandbox/box", "");
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let daemon = Daemon::start();
    let large = format!("{{\"name\": \"{}\"}}", "a".repeat(11 << 20));
    let answer = daemon.ask("POST", "/v1/sandbox", &large);
    assert!(answer.status == 413 || answer.status == 0, "{answer:?}");
    // Just within the bound it is read, and refused for what it says.
    let within = format!("{{\"name\": \"{}\"}}", "a".repeat(9 << 20));
    assert_eq!(daemon.ask("POST", "/v1/sandbox", &within).status, 400);
    assert_eq!(daemon.send("GET", "/healthz", "", b"").status, 200);
}

#[test]
fn lists_are_paged_and_filtered() {
    let daemon = Daemon::start();
    let ids: Vec<String> = (0..5)
        .map(|n| {
            let colour = if n % 2 == 0 { "red" } else { "blue" };
            daemon.create(&format!(r#"{{"name": "box-{n}", "labels": {{"colour": "{colour}"}}}}"#))
        })
        .collect();
    let names = |query: &str| -> (Vec<String>, u64) {
        let listed = daemon.ask("GET", &format!("/v1/sandboxes?{query}"), "").json();
        let items = listed["items"].as_array().unwrap();
        let names = items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect();
        (names, listed["total_items"].as_u64().unwrap())
    };
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names("order-by=asc&page-size=2"), (owned(&["box-0", "box-1"]), 5));
    assert_eq!(names("order-by=asc&page-size=2&page=3"), (owned(&["box-4"]), 5));
    assert_eq!(names("order_by=asc&page_size=2&page=4"), (owned(&[]), 5));
    assert_eq!(names("sort=created_at&order-by=desc&page-size=1"), (owned(&["box-4"]), 5));
    assert_eq!(names("label=colour%3Dblue&order-by=asc"), (owned(&["box-1", "box-3"]), 2));
    assert_eq!(names("state=stopped"), (owned(&[]), 0));
    assert_eq!(names("state=running,stopped").1, 5);
    for id in ids {
        // By a beginning that no other has.
        assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{}", &id[..16]), "").status, 204);
    }
    assert_eq!(names("").1, 0);
}

#[test]
fn an_ambiguous_beginning_is_answered_with_those_that_are_meant() {
    let daemon = Daemon::start();
    daemon.create(r#"{"name": "web-one"}"#);
    daemon.create(r#"{"name": "web-two"}"#);
    let answer = daemon.ask("GET", "/v1/sandbox/web", "");
    assert_eq!(answer.status, 400);
    assert!(
        answer.message().contains("web-one") && answer.message().contains("web-two"),
        "{}",
        answer.message()
    );
    assert_eq!(daemon.ask("GET", "/v1/sandbox/web-o", "").json()["name"], "web-one");
    for name in ["web-one", "web-two"] {
        daemon.ask("DELETE", &format!("/v1/sandbox/{name}"), "");
    }
}

#[test]
fn processes_run_in_the_background_and_are_followed_from_an_offset() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    let own = |rest: &str| format!("/v1/sandbox/{id}{rest}");
    let command = r#"{"command": "echo first; read line; echo got $line; exit 4", "stdin": true, "tag": "job"}"#;
    let started = daemon.ask("POST", &own("/process"), command);
    assert_eq!(started.status, 201);
    let pid = started.json()["pid"].as_u64().unwrap();
    let listed = daemon.ask("GET", &own("/processes"), "").json();
    assert_eq!(listed["items"][0]["tag"], "job", "{listed}");
    let written = daemon.ask("POST", &own(&format!("/process/{pid}/stdin?close=true")), "hello\n");
    assert_eq!(written.status, 204);
    let told = |offset: u64| {
        let answer = daemon.ask("GET", &own(&format!("/process/{pid}/output?offset={offset}")), "");
        assert!(answer.head.contains("text/event-stream"), "{}", answer.head);
        String::from_utf8(answer.body).unwrap()
    };
    let all = told(0);
    assert!(all.contains(r"first\n") && all.contains(r"got hello\n"), "{all}");
    assert!(all.trim_end().ends_with(r#""type":"exit"}"#) && all.contains(r#""code":4"#), "{all}");
    let rest = told(6);
    assert!(!rest.contains("first") && rest.contains("got hello"), "{rest}");

    let streamed = daemon.ask(
        "POST",
        &own("/process/stream"),
        r#"{"command": "printf '\\377'; echo err >&2; kill -9 $$"}"#,
    );
    let text = String::from_utf8(streamed.body).unwrap();
    assert!(text.contains(r#""base64":"/w==""#) && text.contains(r#""data":"err\n""#), "{text}");
    assert!(text.contains(r#""code":137"#) && text.contains(r#""signal":9"#), "{text}");

    let sleeper =
        daemon.ask("POST", &own("/process"), r#"{"command": "sleep 1000"}"#).json()["pid"].clone();
    let killed =
        daemon.ask("POST", &own(&format!("/process/{sleeper}/signal")), r#"{"signal": "SIGKILL"}"#);
    assert_eq!(killed.status, 204);
    let over = daemon.ask("GET", &own(&format!("/process/{sleeper}/output")), "");
    assert!(String::from_utf8(over.body).unwrap().contains(r#""signal":9"#));
    daemon.ask("DELETE", &own(""), "");
}

#[test]
fn a_full_disk_is_said_and_what_was_there_stays() {
    if !is_root() {
        return crate::support::skip("a_full_disk_is_said", "an ordinary user's disk has no limit");
    }
    let daemon = Daemon::start();
    let id = daemon.create(r#"{"disk": 64}"#);
    daemon.execute(&id, "echo keep > /workspace/kept");
    let path = format!("/v1/sandbox/{id}/filesystem/write-file?path=/workspace/kept");
    let key = format!("X-API-KEY: {}\r\n", daemon.key());
    let answer = daemon.send("POST", &path, &key, &vec![b'x'; 100 << 20]);
    assert_eq!(answer.status, 507, "{answer:?}");
    assert_eq!(daemon.execute(&id, "cat /workspace/kept"), "keep\n");
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
}

#[test]
fn much_output_is_cut_in_the_middle_and_the_daemon_does_not_grow() {
    let daemon = Daemon::start();
    let id = daemon.create("{}");
    let body = r#"{"command": "echo begin; head -c 300000000 /dev/zero | tr '\\0' x; echo; echo end", "timeout": 120}"#;
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/process/execute"), body).json();
    let text = answer["stdout"].as_str().unwrap();
    assert!(text.starts_with("begin\nxxx") && text.ends_with("xxx\nend\n"));
    assert!(answer["dropped_bytes"].as_u64().unwrap() > 250_000_000);
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
}

#[test]
fn the_frameworks_own_errors_have_the_shape_of_all_others() {
    let daemon = Daemon::start();
    let large = format!("{{\"templateID\": \"{}\"}}", "a".repeat(3 << 20));
    let answer = daemon.ask("POST", "/v2/sandboxes", &large);
    assert_eq!((answer.status, &answer.json()["code"]), (413, &413.into()), "{answer:?}");
    let answer = daemon.ask("GET", "/v1/sandbox/%ff", "");
    assert_eq!(answer.status, 400);
    assert!(answer.message().contains("UTF-8"), "{}", answer.message());
    for (path, body) in
        [("/v2/sandboxes", "[]"), ("/v2/sandboxes", "{}"), ("/sandboxes", "nonsense")]
    {
        let answer = daemon.ask("POST", path, body);
        assert_eq!((answer.status, &answer.json()["code"]), (400, &400.into()), "{path} {body}");
    }
}
