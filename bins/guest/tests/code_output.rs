//! What code writes, through the real guest: limits, files, memory, characters, dialects.
//!
//! These run without a sandbox and need root, as the guest is root in its sandbox.

mod kernels;
mod plain;

use std::io::Write as _;
use std::time::Duration;

use kernels::{Lines, ask, context, detach, events, has, run, run_with};
use plain::Guest;
use serde_json::{Value, json};

#[test]
fn output_over_its_limit_is_cut_and_all_of_it_is_in_a_file() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code = "print('ä' * 60_000)\nimport sys\nsys.stderr.write('e' * 10)";
    let request = json!({ "context_id": id, "code": code, "limits": { "stderr": 4 } });
    let answer = run_with(&guest, &request);
    let lines = answer["logs"]["stdout"].as_array().unwrap();
    assert_eq!(lines[0].as_str().unwrap().chars().count(), 50_000);
    let notice = lines[1].as_str().unwrap();
    assert!(notice.contains("60001 characters, 50000 kept"), "{notice}");
    let path = notice.split("is in ").nth(1).unwrap().trim_end_matches(']');
    let all = std::fs::read_to_string(path).unwrap();
    assert_eq!(all, format!("{}\n", "ä".repeat(60_000)));
    assert_eq!(answer["logs"]["stderr"][0], "eeee", "{answer}");
    let answer =
        run_with(&guest, &json!({ "context_id": id, "code": code, "limits": { "stdout": 0 } }));
    assert_eq!(answer["logs"]["stdout"][0].as_str().unwrap().chars().count(), 60_000);
}

#[test]
fn values_and_tracebacks_are_cut() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let answer = run(&guest, &id, "'x' * 100_000");
    let text = kernels::text(&answer);
    assert!(
        text.len() < 30_200 && text.contains("100002 characters, 30000 kept"),
        "{}",
        text.len()
    );
    let answer = run(&guest, &id, "raise ValueError('y' * 50_000)");
    assert!(answer["error"]["traceback"].as_str().unwrap().len() < 8_200, "{answer}");
}

#[test]
fn much_output_passes_whole_and_takes_no_memory() {
    const EACH: usize = 1 << 20;
    const TIMES: usize = 200;
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    run(&guest, &id, "import sys");
    let code = format!("for _ in range({TIMES}): sys.stdout.write('x' * {EACH})");
    let none = json!({ "stdout": 0, "stderr": 0, "result": 0, "traceback": 0 });
    let request = json!({ "context_id": id, "code": code, "limits": none, "timeout_ms": 0 });
    let mut lines = Lines::open(&guest, "POST", "/code/executions", &request);
    let mut written = 0;
    for event in &mut lines {
        assert_ne!(event["type"], "dropped", "{event}");
        if event["type"] == "stdout" {
            written += event["text"].as_str().unwrap().len();
        }
    }
    assert_eq!(written, EACH * TIMES);
    let peak = guest.peak_memory_kibibytes();
    assert!(peak < 64 << 10, "{peak} KiB");
    // Nobody reads, and it is all the same.
    let execution = detach(&guest, &request);
    let told = events(&guest, &execution, 0);
    assert_eq!(told.last().unwrap()["status"], "ok");
    let peak = guest.peak_memory_kibibytes();
    assert!(peak < 64 << 10, "{peak} KiB");
}

#[test]
fn a_reader_that_does_not_read_holds_nobody_up() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code = "import sys\nfor _ in range(50): sys.stdout.write('x' * (1 << 20))";
    let request = json!({ "context_id": id, "code": code, "limits": { "stdout": 0 } });
    let mut slow = Lines::open(&guest, "POST", "/code/executions", &request);
    let execution = slow.next().unwrap()["execution_id"].as_str().unwrap().to_owned();
    // Another reads all of it while this one stands still.
    let told = events(&guest, &execution, 0);
    assert_eq!(told.last().unwrap()["status"], "ok");
    let dropped = slow.until("dropped");
    assert!(dropped["count"].as_u64().unwrap() > 0);
    assert_eq!(slow.last().unwrap()["type"], "end");
}

#[test]
fn characters_that_come_in_two_pieces_stay_whole() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code = "import os, time\nfor byte in '€😀'.encode():\n    os.write(1, bytes([byte]))\n    \
                time.sleep(0.02)\nos.write(1, b'\\xff.')";
    let answer = run(&guest, &id, code);
    assert_eq!(answer["logs"]["stdout"], json!(["€😀\u{fffd}."]), "{answer}");
}

#[test]
fn every_line_is_ascii() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code = "print('a\\u2028b\\u0085c\\x0bd 😀')\n'ü'";
    for path in ["/code/executions", "/code/e2b/execute"] {
        let request = json!({ "context_id": id, "code": code });
        let mut lines = Lines::open(&guest, "POST", path, &request);
        let mut text = None;
        while let Some(line) = lines.raw() {
            let (end, rest) = line.split_last().unwrap();
            assert_eq!(*end, b'\n');
            assert!(rest.iter().all(|byte| (0x20..0x7f).contains(byte)), "{line:?}");
            let event: Value = serde_json::from_slice(rest).unwrap();
            if event["type"] == "stdout" {
                text = Some(event["text"].clone());
            }
        }
        assert_eq!(text.unwrap(), "a\u{2028}b\u{85}c\u{b}d 😀\n");
    }
}

#[test]
fn e2b_clients_get_their_own_lines() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let answer = guest.send("GET", "/code/e2b/health", &[], b"");
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"OK".as_slice()));
    let (_, before) = ask(&guest, "GET", "/code/e2b/contexts", &Value::Null);
    let languages: Vec<_> = before.as_array().unwrap().iter().map(|one| &one["language"]).collect();
    assert_eq!(languages, ["python", "javascript"], "{before}");

    let code =
        "import sys\nprint('out')\nsys.stdout.flush()\nprint('err', file=sys.stderr)\n'text'";
    let mut lines = Lines::open(&guest, "POST", "/code/e2b/execute", &json!({ "code": code }));
    let mut told = Vec::new();
    while let Some(line) = lines.raw() {
        let line = String::from_utf8(line).unwrap();
        // The time is the only thing that differs between two runs.
        let stable = match line.split_once(",\"timestamp\":\"") {
            Some((before, after)) => {
                assert!(after.ends_with("Z\"}\n"), "{line}");
                format!("{before}}}\n")
            }
            None => line,
        };
        told.push(stable);
    }
    let expected = [
        "{\"type\":\"number_of_executions\",\"execution_count\":1}\n",
        "{\"type\":\"stdout\",\"text\":\"out\\n\"}\n",
        "{\"type\":\"stderr\",\"text\":\"err\\n\"}\n",
        "{\"type\":\"result\",\"text\":\"text\",\"is_main_result\":true}\n",
        "{\"type\":\"end_of_execution\"}\n",
    ];
    assert_eq!(told, expected);
    // The same context as before, and the one that was there from the start.
    let (_, after) = ask(&guest, "GET", "/code/e2b/contexts", &Value::Null);
    let ids = |list: &Value| -> Vec<String> {
        let ids = list.as_array().unwrap().iter().map(|one| one["id"].to_string());
        let mut ids: Vec<_> = ids.collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&before), ids(&after));

    let both = json!({ "code": "1", "context_id": "x", "language": "python" });
    assert_eq!(
        guest.send("POST", "/code/e2b/execute", &[], both.to_string().as_bytes()).status,
        400
    );
    let unknown = json!({ "code": "1", "context_id": "x" });
    let answer = guest.send("POST", "/code/e2b/execute", &[], unknown.to_string().as_bytes());
    assert_eq!(answer.status, 404);
    assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
    let (status, made) = ask(&guest, "POST", "/code/e2b/contexts", &json!({ "language": "js" }));
    assert_eq!((status, &made["language"]), (200, &json!("javascript")));
    let (_, list) = ask(&guest, "GET", "/code/e2b/contexts", &Value::Null);
    assert_eq!(list.as_array().unwrap().last().unwrap()["id"], made["id"]);
}

#[test]
fn an_e2b_client_that_goes_away_interrupts_its_code() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let request = json!({ "code": "kept = 1\nimport time\ntime.sleep(60)" });
    let mut lines = Lines::open(&guest, "POST", "/code/e2b/execute", &request);
    lines.until("number_of_executions");
    drop(lines);
    let over = || {
        let (_, list) = ask(&guest, "GET", "/code/executions", &Value::Null);
        list["items"][0]["status"] == "interrupted"
    };
    plain::wait_until(over);
    let mut lines = Lines::open(&guest, "POST", "/code/e2b/execute", &json!({ "code": "kept" }));
    assert_eq!(lines.until("result")["text"], "1");
}

#[test]
fn silence_is_broken_by_a_sign_of_life() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let request = json!({ "code": "import time\ntime.sleep(6)" });
    let mut lines = Lines::open(&guest, "POST", "/code/e2b/execute", &request);
    lines.until("keepalive");
    lines.until("end_of_execution");
}

#[test]
fn a_fresh_process_is_told_as_events_for_browsers() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let code = "import sys\nprint('one')\nprint('zwei ü', end='')\nsys.stdout.flush()\nsys.exit(4)";
    let body = json!({ "code": code, "language": "python" }).to_string();
    let answer = guest.send("POST", "/code/execute/async", &[], body.as_bytes());
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let expected = "data: {\"type\":0,\"data\":\"one\"}\n\n\
                    data: {\"type\":0,\"data\":\"zwei \\u00fc\"}\n\n\
                    data: {\"type\":2,\"data\":\"\",\"code\":4}\n\n";
    assert_eq!(String::from_utf8(answer.body).unwrap(), expected);
    let body = json!({ "code": "import time\ntime.sleep(60)", "timeout_ms": 200 }).to_string();
    let answer = guest.send("POST", "/code/execute/async", &[], body.as_bytes());
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.starts_with("data: {\"type\":3,") && text.contains("200 ms"), "{text}");
}

#[test]
fn a_request_that_is_too_large_is_refused() {
    let guest = Guest::start();
    let mut stream = guest.connect();
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let body = vec![b' '; (16 << 20) + 1];
    stream.write_all(&plain::head("POST", "/code/execute", &[], body.len())).unwrap();
    // It may be answered before all of it was taken.
    let _ = stream.write_all(&body);
    assert_eq!(plain::Answer::read(&mut stream).status, 413);
}
