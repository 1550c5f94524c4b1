//! Kernels through the real guest: state, errors, time, death, and reading again.
//!
//! These run without a sandbox and need root, as the guest is root in its sandbox.

mod kernels;
mod plain;

use std::time::{Duration, Instant};

use kernels::{Lines, ask, context, detach, events, has, run, run_with, text};
use plain::Guest;
use serde_json::{Value, json};

/// A language with code for each thing that all of them can do.
struct Speech {
    language: &'static str,
    interpreter: &'static str,
    /// Sets a variable, and shows it.
    set: &'static str,
    show: &'static str,
    shown: &'static str,
    /// Writes `out` and `err`.
    write: &'static str,
    fail: &'static str,
    /// Never ends by itself.
    spin: &'static str,
    /// Ends the process with code 3.
    leave: &'static str,
}

const SPEECHES: [Speech; 4] = [
    Speech {
        language: "python",
        interpreter: "python3",
        set: "kept = 41",
        show: "kept + 1",
        shown: "42",
        write: "import sys\nprint('out')\nprint('err', file=sys.stderr)",
        fail: "raise ValueError('bad')",
        spin: "while True: pass",
        leave: "import os\nos._exit(3)",
    },
    Speech {
        language: "javascript",
        interpreter: "node",
        set: "const kept = 41",
        show: "kept + 1",
        shown: "42",
        write: "console.log('out'); console.error('err')",
        fail: "throw new TypeError('bad')",
        spin: "for (;;);",
        leave: "process.exit(3)",
    },
    Speech {
        language: "bash",
        interpreter: "bash",
        set: "kept=41",
        show: "echo $((kept + 1))",
        shown: "42",
        write: "echo out; echo err >&2",
        fail: "false",
        spin: "while :; do :; done",
        leave: "exit 3",
    },
    Speech {
        language: "r",
        interpreter: "R",
        set: "kept <- 41",
        show: "kept + 1",
        shown: "[1] 42",
        write: "cat('out\\n'); message('err')",
        fail: "stop('bad')",
        spin: "while (TRUE) {}",
        leave: "quit(save = 'no', status = 3)",
    },
];

fn speeches() -> impl Iterator<Item = &'static Speech> {
    SPEECHES.iter().filter(|speech| has(speech.interpreter))
}

/// What a cell showed, as a value or as output.
fn shown(answer: &Value) -> String {
    match answer["items"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => answer["logs"]["stdout"][0].as_str().unwrap_or_default().to_owned(),
    }
}

#[test]
fn each_language_keeps_its_state_and_its_streams_apart() {
    let guest = Guest::start();
    for speech in speeches() {
        let id = context(&guest, speech.language);
        let set = run(&guest, &id, speech.set);
        assert_eq!((&set["status"], &set["execution_count"]), (&json!("ok"), &json!(1)), "{set}");
        let answer = run(&guest, &id, speech.show);
        assert_eq!(shown(&answer), speech.shown, "{answer}");
        let answer = run(&guest, &id, speech.write);
        assert_eq!(answer["logs"], json!({ "stdout": ["out"], "stderr": ["err"] }), "{answer}");
        let answer = run(&guest, &id, speech.fail);
        assert_eq!(answer["status"], "error", "{answer}");
        assert!(!answer["error"]["name"].as_str().unwrap().is_empty(), "{answer}");
        let (_, described) = ask(&guest, "GET", &format!("/code/contexts/{id}"), &Value::Null);
        assert_eq!(described["execution_count"], 4, "{described}");
        assert_eq!(described["state"], "idle", "{described}");
    }
}

#[test]
fn a_timeout_interrupts_and_keeps_the_state() {
    let guest = Guest::start();
    for speech in speeches() {
        let id = context(&guest, speech.language);
        run(&guest, &id, speech.set);
        let request = json!({ "context_id": id, "code": speech.spin, "timeout_ms": 300 });
        let answer = run_with(&guest, &request);
        assert_eq!(answer["status"], "timeout", "{}: {answer}", speech.language);
        assert_eq!(answer["error"]["name"], "TimeoutError", "{answer}");
        assert_eq!(shown(&run(&guest, &id, speech.show)), speech.shown, "{}", speech.language);
    }
}

#[test]
fn a_cell_that_does_not_stop_is_killed_and_told_so() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    run(&guest, &id, "kept = 1");
    let code = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n\
                while True: pass";
    let begun = Instant::now();
    let request = json!({ "context_id": id, "code": code, "timeout_ms": 200 });
    let answer = run_with(&guest, &request);
    assert!(begun.elapsed() > Duration::from_secs(3), "no grace");
    assert_eq!(answer["status"], "killed", "{answer}");
    assert!(answer["error"]["value"].as_str().unwrap().contains("was killed"), "{answer}");
    let answer = run(&guest, &id, "kept");
    assert_eq!(answer["error"]["name"], "NameError", "{answer}");
}

#[test]
fn a_kernel_that_ended_is_told_with_its_reason_and_replaced() {
    let guest = Guest::start();
    for speech in speeches() {
        let id = context(&guest, speech.language);
        run(&guest, &id, speech.set);
        let answer = run(&guest, &id, speech.leave);
        assert_eq!(answer["status"], "died", "{}: {answer}", speech.language);
        assert_eq!(answer["error"]["name"], "KernelDied");
        assert!(answer["reason"].as_str().unwrap().contains("exit code 3"), "{answer}");
        let request = json!({ "context_id": id, "code": speech.write });
        let events: Vec<_> = Lines::open(&guest, "POST", "/code/executions", &request).collect();
        let restarted = events.iter().find(|event| event["type"] == "restarted").unwrap();
        assert!(restarted["reason"].as_str().unwrap().contains("exit code 3"), "{restarted}");
        let told = events.iter().find(|event| event["type"] == "stderr").unwrap();
        assert!(told["text"].as_str().unwrap().contains("restarted"), "{told}");
        let count = events.iter().find(|event| event["type"] == "started").unwrap();
        assert_eq!(count["execution_count"], 1);
    }
}

#[test]
fn a_signal_is_named() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let answer = run(&guest, &id, "import os\nprint('last', flush=True)\nos.kill(os.getpid(), 11)");
    assert_eq!(answer["logs"]["stdout"], json!(["last"]), "{answer}");
    assert!(answer["reason"].as_str().unwrap().contains("signal 11"), "{answer}");
}

#[test]
fn garbage_from_a_kernel_kills_it_and_nothing_else() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let (id, other) = (context(&guest, "python"), context(&guest, "python"));
    run(&guest, &other, "kept = 7");
    for garbage in ["b'no frame at all\\n'", "b'x' * 5000", "b'stdout 999999999999\\n'"] {
        let code = format!("import os, time\nos.write(4, {garbage})\ntime.sleep(30)");
        let answer = run(&guest, &id, &code);
        assert_eq!(answer["status"], "died", "{answer}");
        assert!(answer["reason"].as_str().unwrap().contains("was killed"), "{answer}");
    }
    assert_eq!(text(&run(&guest, &other, "kept")), "7");
    // One that closes its channel and lives on is not waited for.
    let answer = run(&guest, &id, "import os, time\nos.close(4)\ntime.sleep(30)");
    assert_eq!(answer["status"], "died", "{answer}");
}

#[test]
fn what_children_write_keeps_its_place() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code =
        "import os\nfor n in range(20):\n    print('own', n)\n    os.system(f'echo child {n}')";
    let answer = run(&guest, &id, code);
    let expected: Vec<_> =
        (0..20).flat_map(|n| [format!("own {n}"), format!("child {n}")]).collect();
    assert_eq!(answer["logs"]["stdout"], json!(expected), "{answer}");
}

#[test]
fn an_execution_can_be_read_again_from_an_event() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code =
        "import time\nfor n in range(5):\n    print(n, flush=True)\n    time.sleep(0.1)\n5 * 5";
    let request = json!({ "context_id": id, "code": code });
    let mut first = Lines::open(&guest, "POST", "/code/executions", &request);
    let accepted = first.next().unwrap();
    assert_eq!((&accepted["type"], &accepted["n"]), (&json!("accepted"), &json!(0)));
    assert_eq!(accepted["context_id"], id);
    let execution = accepted["execution_id"].as_str().unwrap().to_owned();
    first.until("stdout");
    // A client that goes away changes nothing.
    drop(first);
    let all = events(&guest, &execution, 0);
    assert_eq!(all.last().unwrap()["status"], "ok");
    let numbers: Vec<_> = all.iter().map(|event| event["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(events(&guest, &execution, 3), all[3..]);
    let written: String = all
        .iter()
        .filter(|event| event["type"] == "stdout")
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(written, "0\n1\n2\n3\n4\n");
    let (_, list) = ask(&guest, "GET", "/code/executions", &Value::Null);
    assert_eq!(list["items"][0]["id"], execution, "{list}");
    assert_eq!(list["items"][0]["events"], all.len(), "{list}");
}

#[test]
fn cancelling_stops_what_runs_and_what_waits() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    run(&guest, &id, "kept = 3");
    let sleeping =
        detach(&guest, &json!({ "context_id": id, "code": "import time\ntime.sleep(60)" }));
    let waiting = detach(&guest, &json!({ "context_id": id, "code": "kept = 4" }));
    Lines::open(&guest, "GET", &format!("/code/executions/{sleeping}"), &Value::Null)
        .until("started");
    for execution in [&waiting, &sleeping] {
        let (status, _) =
            ask(&guest, "DELETE", &format!("/code/executions/{execution}"), &Value::Null);
        assert_eq!(status, 204);
    }
    assert_eq!(events(&guest, &sleeping, 0).last().unwrap()["status"], "interrupted");
    assert_eq!(events(&guest, &waiting, 0).last().unwrap()["status"], "cancelled");
    assert_eq!(text(&run(&guest, &id, "kept")), "3");
}

#[test]
fn interrupt_restart_and_delete_do_what_they_say() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    run(&guest, &id, "kept = 3");
    let sleeping =
        detach(&guest, &json!({ "context_id": id, "code": "import time\ntime.sleep(60)" }));
    let path = format!("/code/executions/{sleeping}");
    Lines::open(&guest, "GET", &path, &Value::Null).until("started");
    let (status, _) = ask(&guest, "POST", &format!("/code/contexts/{id}/interrupt"), &json!({}));
    assert_eq!(status, 200);
    assert_eq!(events(&guest, &sleeping, 0).last().unwrap()["status"], "interrupted");
    assert_eq!(text(&run(&guest, &id, "kept")), "3");

    let pid = text(&run(
        &guest,
        &id,
        "import os, subprocess\nchild = subprocess.Popen(['sleep', '600'])\nchild.pid",
    ))
    .to_owned();
    let (status, restarted) =
        ask(&guest, "POST", &format!("/code/contexts/{id}/restart"), &json!({}));
    assert_eq!((status, &restarted["execution_count"]), (200, &json!(0)));
    plain::wait_until(|| !is_alive(&pid));
    assert_eq!(run(&guest, &id, "kept")["error"]["name"], "NameError");

    let pid = text(&run(&guest, &id, "import os\nos.getpid()")).to_owned();
    let address = format!("/code/contexts/{id}");
    assert_eq!(ask(&guest, "DELETE", &address, &Value::Null).0, 204);
    plain::wait_until(|| !is_alive(&pid));
    let (status, error) = ask(&guest, "GET", &address, &Value::Null);
    assert_eq!((status, &error["code"]), (404, &json!(404)), "{error}");
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

#[test]
fn contexts_have_their_own_folder_variables_and_bounds() {
    let guest = Guest::start();
    let refuse = |body: &Value| {
        let (status, error) = ask(&guest, "POST", "/code/contexts", body);
        assert_eq!(status, 400, "{error}");
        error["message"].as_str().unwrap().to_owned()
    };
    assert!(
        refuse(&json!({ "language": "cobol" })).contains("python, javascript, typescript, r, bash")
    );
    assert!(refuse(&json!({ "cwd": "/not/there" })).contains("'/not/there' does not exist"));
    assert!(refuse(&json!({ "env_vars": { "A=B": "" } })).contains("A=B"));
    if !has("python3") {
        return;
    }
    let body = json!({ "cwd": "/usr", "env_vars": { "MINE": "one" } });
    let (_, made) = ask(&guest, "POST", "/code/contexts", &body);
    let id = made["id"].as_str().unwrap();
    assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let look = "import os\nos.getcwd(), os.environ['MINE'], os.environ.get('CELL')";
    let request = json!({ "context_id": id, "code": look, "env_vars": { "CELL": "two" } });
    assert_eq!(text(&run_with(&guest, &request)), "('/usr', 'one', 'two')");
    assert_eq!(text(&run(&guest, id, look)), "('/usr', 'one', None)");
    for _ in 1..64 {
        context(&guest, "python");
    }
    let (status, error) = ask(&guest, "POST", "/code/contexts", &json!({}));
    assert_eq!(status, 429, "{error}");
}

#[test]
fn twenty_contexts_at_once_keep_apart() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let ids: Vec<_> = (0..20).map(|_| context(&guest, "python")).collect();
    let executions: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| {
            detach(&guest, &json!({ "context_id": id, "code": format!("mine = {n}\nprint(mine)") }))
        })
        .collect();
    for (n, execution) in executions.iter().enumerate() {
        let all = events(&guest, execution, 0);
        assert_eq!(all.last().unwrap()["status"], "ok", "{all:?}");
        assert!(all.iter().any(|event| event["text"] == format!("{n}\n")), "{all:?}");
    }
}

#[test]
fn the_queue_has_an_end() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let sleeping =
        detach(&guest, &json!({ "context_id": id, "code": "import time\ntime.sleep(60)" }));
    Lines::open(&guest, "GET", &format!("/code/executions/{sleeping}"), &Value::Null)
        .until("started");
    for _ in 0..64 {
        detach(&guest, &json!({ "context_id": id, "code": "1" }));
    }
    let request = json!({ "context_id": id, "code": "1", "detach": true });
    let (status, error) = ask(&guest, "POST", "/code/executions", &request);
    assert_eq!(status, 429, "{error}");
}

#[test]
fn a_question_is_answered_or_refused() {
    if !has("python3") {
        return;
    }
    let guest = Guest::start();
    let id = context(&guest, "python");
    let code = "name = input('who? ')\nname.upper()";
    assert_eq!(run(&guest, &id, code)["status"], "error");
    let request = json!({ "context_id": id, "code": code, "allow_stdin": true });
    let mut lines = Lines::open(&guest, "POST", "/code/executions", &request);
    let execution = lines.next().unwrap()["execution_id"].as_str().unwrap().to_owned();
    assert_eq!(lines.until("input")["prompt"], "who? ");
    let path = format!("/code/executions/{execution}/input");
    assert_eq!(ask(&guest, "POST", &path, &json!({ "text": "soma" })).0, 204);
    assert_eq!(lines.until("result")["bundle"]["text/plain"], "'SOMA'");
}

#[test]
fn names_of_packages_are_checked() {
    let guest = Guest::start();
    for (language, name) in [
        ("python", "--index-url=http://x"),
        ("python", "x; rm -rf /"),
        ("javascript", "../evil"),
        ("r", "a'); system('id"),
    ] {
        let body = json!({ "language": language, "packages": [name] });
        let (status, error) = ask(&guest, "POST", "/code/packages", &body);
        assert_eq!(status, 400, "{name}: {error}");
    }
    let body = json!({ "language": "bash", "packages": ["x"] });
    assert_eq!(ask(&guest, "POST", "/code/packages", &body).0, 400);
}

#[test]
fn routes_that_are_not_there_are_told_as_everywhere() {
    let guest = Guest::start();
    assert_eq!(ask(&guest, "GET", "/code/healthz", &Value::Null), (200, json!({ "status": "ok" })));
    for (method, path, expected) in [
        ("GET", "/code/nothing", 404),
        ("GET", "/code/contexts/none", 404),
        ("GET", "/code/executions/none", 404),
        ("POST", "/code/healthz", 405),
        ("DELETE", "/code/contexts", 405),
        ("GET", "/code/execute", 405),
    ] {
        let (status, error) = ask(&guest, method, path, &Value::Null);
        assert_eq!((status, &error["code"]), (expected, &json!(expected)), "{method} {path}");
    }
    let answer = guest.send("POST", "/code/execute", &[], b"{nonsense");
    assert!(answer.error(400).contains("makes no sense"));
}
