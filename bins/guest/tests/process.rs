//! Processes through the real guest: what a client sees of them, and what is left behind.
//!
//! These run without a sandbox and need root, as the guest is root in its sandbox.

mod harness;

use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{Event, Guest, envelope, is_alive, resident_kilobytes, wait_until};
use serde_json::{Value, json};

fn as_user(name: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:")))
}

#[test]
fn a_command_tells_its_start_its_output_and_its_end() {
    let guest = Guest::start();
    let mut events = guest.begin(&["sh", "-c", "echo out; echo err >&2; exit 3"], &[]);
    assert!(events.pid() > 1);
    let finished = events.finish();
    assert_eq!((finished.stdout(), finished.stderr()), ("out\n", "err\n"));
    let expected = json!({
        "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3",
    });
    assert_eq!(finished.end, expected);
    assert_eq!(finished.error, Value::Null);
}

#[test]
fn a_thousand_commands_at_once_each_give_their_own_code() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();

    let guest = Guest::start();
    // Not in any order, and the same in every run.
    let codes: Vec<u32> = (1..=1000u32).map(|n| n.wrapping_mul(2_654_435_761) >> 24).collect();
    let streams: Vec<_> = codes
        .iter()
        .map(|code| guest.begin(&["sh", "-c", &format!("echo {code}; exit {code}")], &[]))
        .collect();
    for (code, stream) in codes.iter().zip(streams) {
        let finished = stream.finish();
        assert_eq!(finished.code(), i64::from(*code));
        assert_eq!(finished.stdout(), format!("{code}\n"));
    }
}

#[test]
fn standard_input_is_passed_on_and_ends_when_it_is_closed() {
    let guest = Guest::start();
    let message = json!({ "process": { "cmd": "cat", "cwd": "/" } });
    let mut events = guest.start_with(&[], &message);
    let pid = events.pid();
    for text in ["one ", "two"] {
        let input = json!({ "stdin": STANDARD.encode(text) });
        let request = json!({ "process": { "pid": pid }, "input": input });
        assert_eq!(guest.call("SendInput", &request), (200, json!({})));
    }
    let process = json!({ "process": { "pid": pid } });
    assert_eq!(guest.call("CloseStdin", &process), (200, json!({})));
    let finished = events.finish();
    assert_eq!((finished.stdout(), finished.code()), ("one two", 0));
}

#[test]
fn input_can_come_as_a_stream() {
    let guest = Guest::start();
    let message = json!({ "process": { "cmd": "cat", "cwd": "/" }, "tag": "fed" });
    let mut events = guest.start_with(&[], &message);
    events.pid();
    let parts = [
        json!({ "start": { "process": { "tag": "fed" } } }),
        json!({ "data": { "input": { "stdin": STANDARD.encode("first ") } } }),
        json!({ "keepalive": {} }),
        json!({ "data": { "input": { "stdin": STANDARD.encode("second") } } }),
    ];
    let body: Vec<u8> = parts.iter().flat_map(envelope).collect();
    let mut stream = guest.connect();
    let head = format!(
        "POST /process.Process/StreamInput HTTP/1.1\r\nhost: guest\r\n\
         content-type: application/connect+json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    events.wait_for("first second");
    guest.call("CloseStdin", &json!({ "process": { "tag": "fed" } }));
    assert_eq!(events.finish().code(), 0);
}

#[test]
fn a_slow_reader_of_standard_input_holds_up_nobody_else() {
    let guest = Guest::start();
    let script = "head -c 1 > /dev/null; echo begun; sleep 20";
    let message = json!({ "process": { "cmd": "sh", "args": ["-c", script], "cwd": "/" } });
    let mut events = guest.start_with(&[], &message);
    let pid = events.pid();
    let input = json!({ "stdin": STANDARD.encode(vec![0; 1 << 20]) });
    let request = json!({ "process": { "pid": pid }, "input": input });
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| guest.call("SendInput", &request));
        events.wait_for("begun");
        assert_eq!(guest.shell("echo free").stdout(), "free\n");
        assert!(!blocked.is_finished());
        let kill = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
        assert_eq!(guest.call("SendSignal", &kill).0, 200);
        assert_eq!(blocked.join().unwrap().0, 500);
    });
}

#[test]
fn closed_and_missing_standard_input_are_errors() {
    let guest = Guest::start();
    let pid = guest.begin(&["sleep", "20"], &[]).pid();
    let input = json!({ "stdin": STANDARD.encode("x") });
    let (status, error) =
        guest.call("SendInput", &json!({ "process": { "pid": pid }, "input": input }));
    assert_eq!((status, error["code"].as_str()), (500, Some("internal")));
    let input = json!({ "pty": STANDARD.encode("x") });
    let (status, _) =
        guest.call("SendInput", &json!({ "process": { "pid": pid }, "input": input }));
    assert_eq!(status, 500);
}

#[test]
fn a_background_child_lives_on_after_the_command() {
    let guest = Guest::start();
    let finished = guest.shell("sleep 30 >/dev/null 2>&1 & echo $!");
    assert_eq!(finished.code(), 0);
    assert!(is_alive(finished.stdout()));
    // And its keeper still reaps it.
    let child = finished.stdout().trim();
    guest.shell(&format!("kill {child}"));
    wait_until("the child is reaped", || !std::path::Path::new(&format!("/proc/{child}")).exists());
}

#[test]
fn the_end_waits_for_whoever_still_holds_the_output() {
    let guest = Guest::start();
    let begin = Instant::now();
    let finished = guest.shell("(sleep 0.3; echo late) & echo early");
    assert_eq!(finished.stdout(), "early\nlate\n");
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_timeout_kills_the_whole_tree() {
    let guest = Guest::start();
    let script = "trap '' TERM INT HUP
        setsid sh -c 'trap \"\" TERM; echo $$; sleep 60 & wait' &
        (setsid sh -c 'echo $$; exec sleep 60 >/dev/null' & )
        sh -c 'trap \"\" TERM; echo $$; sleep 60; sleep 60' &
        echo $$; sleep 60; sleep 60";
    let begin = Instant::now();
    let finished = guest.begin(&["sh", "-c", script], &[("connect-timeout-ms", "400")]).finish();
    let took = begin.elapsed();
    assert_eq!(finished.error["code"], "deadline_exceeded");
    assert_eq!(finished.end, Value::Null);
    assert_eq!(finished.stdout().lines().count(), 4);
    for pid in finished.stdout().lines() {
        assert!(!is_alive(pid), "{pid} is still there");
    }
    assert!(took >= Duration::from_millis(400) && took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn a_timeout_ends_a_fork_bomb() {
    let guest = Guest::start();
    let user = as_user("nobody");
    let bomb = "ulimit -u 300; bomb() { while :; do bomb & done; }; bomb";
    let message =
        json!({ "process": { "cmd": "bash", "args": ["-c", bomb], "cwd": "/" }, "stdin": false });
    let headers = [("connect-timeout-ms", "500"), ("authorization", user.as_str())];
    let begin = Instant::now();
    let mut events = guest.start_with(&headers, &message);
    let session = events.pid().to_string();
    let finished = events.finish();
    assert_eq!(finished.error["code"], "deadline_exceeded");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let left = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        std::fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| {
            let fields = stat.rsplit(')').next().unwrap_or_default();
            fields.split_ascii_whitespace().nth(3) == Some(&session)
        })
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn a_timeout_also_ends_what_a_finished_command_left_on_its_output() {
    let guest = Guest::start();
    let finished =
        guest.begin(&["sh", "-c", "sleep 60 & echo $!"], &[("connect-timeout-ms", "300")]).finish();
    assert_eq!(finished.error["code"], "deadline_exceeded");
    assert!(!is_alive(finished.stdout()));
}

#[test]
fn a_command_has_its_three_descriptors_and_no_others() {
    let guest = Guest::start();
    // The folder itself is the fourth, while it is read.
    let finished = guest.run(&["ls", "/proc/self/fd"]);
    assert_eq!(finished.stdout(), "0\n1\n2\n3\n");
    let finished = guest.shell("for fd in /proc/$$/fd/*; do echo ${fd##*/}; done");
    let mut numbers: Vec<_> = finished.stdout().lines().collect();
    // Some shells keep a copy of a terminal at 10 or 255; here there is none.
    numbers.sort_unstable();
    numbers.retain(|number| std::path::Path::new(number).file_name().is_some());
    assert_eq!(numbers[..3], ["0", "1", "2"]);
    assert!(numbers.len() <= 4, "{numbers:?}");
}

#[test]
fn a_command_starts_with_clean_signals_and_umask_in_a_session_of_its_own() {
    let guest = Guest::start();
    // Not through a shell: some clean up by themselves.
    let finished = guest.run(&["grep", "-E", "Sig(Blk|Ign)|Umask", "/proc/self/status"]);
    let expected = "Umask:\t0022\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    assert_eq!(finished.stdout(), expected);
    let finished = guest.run(&["cat", "/proc/self/stat"]);
    let fields: Vec<_> = finished.stdout().split(' ').collect();
    assert_eq!(fields[0], finished.pid.to_string());
    assert_eq!((fields[4], fields[5], fields[6]), (fields[0], fields[0], "0"));
    assert_eq!(guest.run(&["cat", "/proc/self/oom_score_adj"]).stdout(), "500\n");
}

#[test]
fn a_command_runs_as_the_user_that_is_named() {
    let guest = Guest::start();
    let user = as_user("nobody");
    let message = json!({
        "process": { "cmd": "sh", "args": ["-c", "id -un; id -G; pwd; env | sort"], "cwd": "/tmp",
                     "envs": { "EXTRA": "given" } },
    });
    let finished = guest.start_with(&[("authorization", &user)], &message).finish();
    let mut lines = finished.stdout().lines();
    assert_eq!(lines.next(), Some("nobody"));
    assert_eq!(lines.next(), Some("65534"));
    assert_eq!(lines.next(), Some("/tmp"));
    let names: Vec<_> = lines.map(|line| line.split('=').next().unwrap()).collect();
    assert_eq!(names, ["EXTRA", "HOME", "LOGNAME", "PATH", "PWD", "USER"]);
}

#[test]
fn an_unknown_user_is_refused() {
    let guest = Guest::start();
    let user = as_user("nobodyatall");
    let message = json!({ "process": { "cmd": "true" } });
    let finished = guest.start_with(&[("authorization", &user)], &message).finish();
    assert_eq!(finished.error["code"], "unauthenticated");
    assert_eq!(finished.error["message"], "invalid username: 'nobodyatall'");
}

#[test]
fn a_folder_that_is_not_there_is_refused() {
    let guest = Guest::start();
    let message = json!({ "process": { "cmd": "true", "cwd": "/not/there" } });
    let finished = guest.start_with(&[], &message).finish();
    assert_eq!(finished.error["code"], "invalid_argument");
    assert_eq!(finished.error["message"], "cwd '/not/there' does not exist");
}

#[test]
fn a_program_that_cannot_be_run_says_why() {
    let guest = Guest::start();
    let finished = guest.run(&["not-there-at-all"]);
    assert_eq!(finished.code(), 127);
    assert_eq!(
        finished.stderr(),
        "soma: cannot run `not-there-at-all`: No such file or directory\n"
    );
    assert_eq!(finished.end["execErrno"], 2);

    let finished = guest.run(&["/etc/passwd"]);
    assert_eq!(finished.code(), 126);
    assert_eq!(finished.stderr(), "soma: cannot run `/etc/passwd`: Permission denied\n");
    assert_eq!(finished.end["execErrno"], 13);

    let finished = guest.run(&[""]);
    assert_eq!(finished.code(), 127);
}

#[test]
fn a_folder_that_the_user_may_not_enter_is_said_on_standard_error() {
    let guest = Guest::start();
    let user = as_user("nobody");
    std::fs::DirBuilder::new().mode(0o700).create(guest.file("private")).unwrap();
    let message = json!({ "process": { "cmd": "true", "cwd": guest.file("private") } });
    let finished = guest.start_with(&[("authorization", &user)], &message).finish();
    assert_eq!((finished.code(), finished.end["execErrno"].as_i64()), (126, Some(13)));
    assert!(finished.stderr().starts_with("soma: cannot enter `"), "{}", finished.stderr());
}

#[test]
fn two_mebibytes_of_arguments_arrive() {
    let guest = Guest::start();
    let argument = "x".repeat(100_000);
    let mut command = vec!["sh", "-c", "printf %s \"$*\" | wc -c", "sh"];
    command.extend([argument.as_str(); 19]);
    assert_eq!(guest.run(&command).stdout().trim(), "1900018");
    command.extend([argument.as_str(); 10]);
    let finished = guest.run(&command);
    assert_eq!((finished.code(), finished.end["execErrno"].as_i64()), (126, Some(7)));
}

#[test]
fn a_late_client_still_hears_of_the_end() {
    let guest = Guest::start();
    let pid = guest.shell("exit 7").pid;
    let finished = guest.stream("Connect", &[], &json!({ "process": { "pid": pid } })).finish();
    assert_eq!((finished.pid, finished.code()), (pid, 7));

    let missing = json!({ "process": { "pid": 4_000_000 } });
    let finished = guest.stream("Connect", &[], &missing).finish();
    assert_eq!(finished.error["code"], "not_found");
    assert_eq!(finished.error["message"], "process with pid 4000000 not found");
}

#[test]
fn two_clients_hear_the_same() {
    let guest = Guest::start();
    let message = json!({ "process": { "cmd": "cat", "cwd": "/" }, "tag": "shared" });
    let mut first = guest.start_with(&[], &message);
    let pid = first.pid();
    let select = json!({ "process": { "tag": "shared" } });
    let mut second = guest.stream("Connect", &[], &select);
    assert_eq!(second.pid(), pid);
    let input = json!({ "stdin": STANDARD.encode("to all") });
    guest.call("SendInput", &json!({ "process": { "pid": pid }, "input": input }));
    guest.call("CloseStdin", &select);
    for client in [first, second] {
        let finished = client.finish();
        assert_eq!((finished.stdout(), finished.code()), ("to all", 0));
    }
}

#[test]
fn the_deadline_of_a_follower_ends_the_stream_and_not_the_process() {
    let guest = Guest::start();
    let mut first = guest.begin(&["sh", "-c", "sleep 0.6; echo done"], &[]);
    let pid = first.pid();
    let select = json!({ "process": { "pid": pid } });
    let follower = guest.stream("Connect", &[("connect-timeout-ms", "200")], &select).finish();
    assert_eq!(follower.error["code"], "deadline_exceeded");
    assert_eq!(first.finish().stdout(), "done\n");
}

#[test]
fn running_processes_are_listed_as_they_were_asked_for() {
    let guest = Guest::start();
    let config = json!({ "cmd": "sleep", "args": ["30"], "envs": { "A": "b" }, "cwd": "/tmp" });
    let message = json!({ "process": config, "tag": "one", "stdin": false });
    let mut events = guest.start_with(&[], &message);
    let pid = events.pid();
    guest.run(&["true"]);
    let (_, list) = guest.call("List", &json!({}));
    assert_eq!(list, json!({ "processes": [{ "config": config, "pid": pid, "tag": "one" }] }));
    guest.call("SendSignal", &json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" }));
    events.finish();
    assert_eq!(guest.call("List", &json!({})).1, json!({}));
}

#[test]
fn output_that_is_no_text_arrives_unchanged() {
    let guest = Guest::start();
    let finished = guest.shell(r"printf '\377\376\0\303'; printf '\200' >&2");
    assert_eq!(finished.stdout, b"\xff\xfe\0\xc3");
    assert_eq!(finished.stderr, b"\x80");
}

#[test]
fn output_with_nobody_listening_does_not_block() {
    let guest = Guest::start();
    let done = guest.file("done");
    let script =
        format!("head -c 50000000 /dev/zero; echo the last words; touch {}", done.display());
    let mut events = guest.begin(&["sh", "-c", &script], &[]);
    let pid = events.pid();
    drop(events);
    wait_until("all output is written", || done.exists());
    let late = guest.stream("Connect", &[], &json!({ "process": { "pid": pid } })).finish();
    assert_eq!(late.code(), 0);
    assert!(late.stdout.len() <= 1 << 20, "{} bytes were held", late.stdout.len());
    assert!(late.stdout.ends_with(b"the last words\n"));
}

#[test]
fn a_slow_client_holds_up_the_process_and_not_the_memory() {
    let guest = Guest::start();
    let mut events = guest.begin(&["head", "-c", "100000000", "/dev/zero"], &[]);
    let pid = events.pid();
    let before = resident_kilobytes(guest.pid());
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(&pid.to_string()), "the process was not held up");
    let (mut total, mut most) = (0, before);
    loop {
        match events.next() {
            Event::Stdout(bytes) => {
                assert!(bytes.len() <= 128 << 10);
                total += bytes.len();
                if total % (64 << 20) < bytes.len() {
                    most = most.max(resident_kilobytes(guest.pid()));
                }
            }
            Event::Over(error) => break assert_eq!(error, Value::Null),
            _ => {}
        }
    }
    assert_eq!(total, 100_000_000);
    assert!(most < before + 16_000, "grew from {before} to {most} kB");
}

#[test]
fn sigkill_takes_the_children_too() {
    let guest = Guest::start();
    let mut events = guest.begin(&["sh", "-c", "setsid sleep 60 & echo $!; wait"], &[]);
    let pid = events.pid();
    let Event::Stdout(child) = events.next() else { panic!("no output") };
    let kill = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(guest.call("SendSignal", &kill), (200, json!({})));
    let finished = events.finish();
    let expected = json!({
        "exitCode": -1, "status": "signal: killed", "error": "signal: killed", "signal": 9,
    });
    assert_eq!(finished.end, expected);
    let child = String::from_utf8(child).unwrap();
    wait_until("the child is gone", || !is_alive(&child));
}

#[test]
fn after_sigterm_nobody_waits_for_the_output() {
    let guest = Guest::start();
    let script = "setsid sh -c 'echo $$; exec sleep 60' & wait";
    let mut events = guest.begin(&["sh", "-c", script], &[]);
    let pid = events.pid();
    let Event::Stdout(child) = events.next() else { panic!("no output") };
    let begin = Instant::now();
    let terminate = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGTERM" });
    assert_eq!(guest.call("SendSignal", &terminate).0, 200);
    assert_eq!(events.finish().end["status"], "signal: terminated");
    assert!(begin.elapsed() < Duration::from_secs(5));
    let (status, _) = guest.call("SendSignal", &terminate);
    assert_eq!(status, 404);
    let child = String::from_utf8(child).unwrap();
    assert!(is_alive(&child), "a signal to the command ended what had left its group");
    guest.shell(&format!("kill {child}"));
}

#[test]
fn sigint_reaches_the_process_group() {
    let guest = Guest::start();
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let mut events = guest.begin(&["sh", "-c", script], &[]);
    let pid = events.pid();
    events.wait_for("ready");
    let interrupt = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGINT" });
    assert_eq!(guest.call("SendSignal", &interrupt).0, 200);
    let finished = events.finish();
    assert_eq!((finished.stdout(), finished.code()), ("interrupted\n", 5));
    let (status, error) =
        guest.call("SendSignal", &json!({ "process": { "pid": pid }, "signal": 0 }));
    assert_eq!((status, error["code"].as_str()), (404, Some("not_found")));
}

#[test]
fn a_signal_right_after_the_start_is_not_lost() {
    let guest = Guest::start();
    // The command is signalled while it is still on its way to being one.
    for _ in 0..30 {
        let mut events = guest.begin(&["sleep", "60"], &[]);
        let terminate = json!({ "process": { "pid": events.pid() }, "signal": "SIGNAL_SIGTERM" });
        assert_eq!(guest.call("SendSignal", &terminate).0, 200);
        assert_eq!(events.finish().end["status"], "signal: terminated");
    }
}

#[test]
fn silence_is_filled_with_signs_of_life() {
    let guest = Guest::start();
    let finished = guest.begin(&["sleep", "2.5"], &[("keepalive-ping-interval", "1")]).finish();
    assert_eq!((finished.keepalives, finished.code()), (2, 0));
}

#[test]
fn a_call_that_names_no_process_is_refused() {
    let guest = Guest::start();
    for method in ["Update", "SendSignal", "SendInput", "CloseStdin"] {
        assert_eq!(guest.call(method, &json!({})).0, 400, "{method}");
    }
}

#[test]
fn garbage_on_one_connection_harms_no_other() {
    let guest = Guest::start();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    let garbage: [&[u8]; 6] = [
        b"\0\xff\x16\x03\x01garbage\r\n\r\n",
        long.as_bytes(),
        b"POST /process.Process/Start HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /process.Process/Start HTTP/1.1\r\nhost: x\r\ncontent-type: application/connect+json\r\n\
          content-length: 9\r\n\r\n\0\xff\xff\xff\xff{}{}",
        b"POST /process.Process/List HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
          content-length: 5\r\n\r\n[[[[[",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for bytes in garbage {
        let mut stream = guest.connect();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.read(&mut [0; 1024]);
    }
    assert_eq!(guest.shell("echo well").stdout(), "well\n");
}

#[test]
fn a_guest_without_its_spawner_leaves_with_a_code_of_its_own() {
    let mut guest = Guest::start();
    let pid = guest.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let spawner = children.trim().parse().unwrap();
    let spawner = rustix::process::Pid::from_raw(spawner).unwrap();
    rustix::process::kill_process(spawner, rustix::process::Signal::KILL).unwrap();
    assert_eq!(guest.wait(), Some(70));
}

#[test]
fn no_descriptor_and_no_process_is_left_when_commands_are_over() {
    let guest = Guest::start();
    guest.run(&["true"]);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().count();
    let before = descriptors();
    for _ in 0..50 {
        assert_eq!(guest.run(&["true"]).code(), 0);
    }
    wait_until("all descriptors are closed", || descriptors() <= before);
}

#[test]
fn a_guest_that_is_terminated_takes_its_commands_along() {
    let mut guest = Guest::start();
    let mut events = guest.begin(&["sh", "-c", "setsid sleep 60 & echo $!; wait"], &[]);
    events.pid();
    let Event::Stdout(child) = events.next() else { panic!("no output") };
    let pid = i32::try_from(guest.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(guest.wait(), Some(0));
    let child = String::from_utf8(child).unwrap();
    wait_until("the child is gone", || !is_alive(&child));
}
