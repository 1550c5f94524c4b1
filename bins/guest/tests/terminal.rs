//! Terminals through the real guest: what a program in one sees of it, and what a client does.
//!
//! These run without a sandbox and need root, as the guest is root in its sandbox.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{Event, Events, Guest, envelope, is_alive, numbers, resident_kilobytes, wait_until};
use serde_json::{Value, json};

/// Starts a command as root in a terminal of 80 by 24.
fn begin(guest: &Guest, command: &[&str], headers: &[(&str, &str)]) -> Events {
    guest.start_with(headers, &message(command, 80, 24))
}

fn shell(guest: &Guest, script: &str) -> Events {
    begin(guest, &["sh", "-c", script], &[])
}

fn message(command: &[&str], cols: u32, rows: u32) -> Value {
    json!({
        "process": { "cmd": command[0], "args": command[1..], "cwd": "/" },
        "pty": { "size": { "cols": cols, "rows": rows } },
    })
}

fn type_in(guest: &Guest, pid: u64, text: &str) -> (u16, Value) {
    let input = json!({ "pty": STANDARD.encode(text) });
    guest.call("SendInput", &json!({ "process": { "pid": pid }, "input": input }))
}

fn resize(guest: &Guest, pid: u64, cols: u32, rows: u32) -> (u16, Value) {
    let size = json!({ "size": { "cols": cols, "rows": rows } });
    guest.call("Update", &json!({ "process": { "pid": pid }, "pty": size }))
}

fn connect(guest: &Guest, pid: u64) -> Events {
    guest.stream("Connect", &[], &json!({ "process": { "pid": pid } }))
}

#[test]
fn a_command_in_a_terminal_has_one_of_its_own() {
    let guest = Guest::start();
    let script = "tty; stty size; echo $TERM; ps -o tty=,tpgid= -p $$; echo $$; echo err >&2; \
                  stat -c '%u %g %a' $(tty); exit 3";
    let finished = shell(&guest, script).finish();
    let lines: Vec<_> = finished.terminal().lines().collect();
    assert!(lines[0].starts_with("/dev/pts/"), "{lines:?}");
    assert_eq!(lines[1..3], ["24 80", "xterm-256color"]);
    let (controlling, front) = lines[3].trim().split_once(' ').unwrap();
    assert_eq!((controlling, front.trim()), (lines[0].trim_start_matches("/dev/"), lines[4]));
    assert_eq!(lines[5..], ["err", "0 5 620"]);
    assert_eq!(finished.code(), 3);
    assert!(finished.stdout.is_empty() && finished.stderr.is_empty());
}

#[test]
fn a_terminal_belongs_to_the_user() {
    let guest = Guest::start();
    let user = format!("Basic {}", STANDARD.encode("nobody:"));
    let script = "stat -c '%U %a' $(tty); echo opened > /dev/tty";
    let finished = begin(&guest, &["sh", "-c", script], &[("authorization", &user)]).finish();
    assert_eq!(finished.terminal(), "nobody 620\r\nopened\r\n");
}

#[test]
fn the_size_follows_and_programs_are_told() {
    let guest = Guest::start();
    let script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut events = shell(&guest, script);
    let pid = events.pid();
    events.wait_for("ready");
    assert_eq!(resize(&guest, pid, 132, 43), (200, json!({})));
    events.wait_for("43 132");
    assert_eq!(resize(&guest, pid, 0, u32::MAX), (200, json!({})));
    events.wait_for("500 80");
    // A size that is not given stays as it is.
    assert_eq!(guest.call("Update", &json!({ "process": { "pid": pid } })).0, 200);
}

#[test]
fn sizes_without_sense_are_brought_into_bounds() {
    let guest = Guest::start();
    for (cols, rows, expected) in
        [(0, 0, "24 80"), (1, 1, "1 1"), (u32::MAX, u32::MAX, "500 1000"), (70_000, 2, "2 1000")]
    {
        let command = ["sh", "-c", "stty size; printf 'some\\033[999;999Htext 中\\n'"];
        let finished = guest.start_with(&[], &message(&command, cols, rows)).finish();
        assert!(finished.terminal().starts_with(expected), "{:?}", finished.terminal());
        assert_eq!(connect(&guest, finished.pid).finish().code(), 0);
    }
    let without = json!({ "process": { "cmd": "stty", "args": ["size"], "cwd": "/" }, "pty": {} });
    assert_eq!(guest.start_with(&[], &without).finish().terminal(), "24 80\r\n");
}

#[test]
fn what_is_typed_is_echoed_and_read() {
    let guest = Guest::start();
    let mut events = shell(&guest, "read line; echo \"<$line>\"; stty -echo; echo secret; read x");
    let pid = events.pid();
    assert_eq!(type_in(&guest, pid, "hello\r"), (200, json!({})));
    let seen = events.wait_for("secret\r\n");
    assert_eq!(seen, "hello\r\n<hello>\r\nsecret\r\n");
    type_in(&guest, pid, "password\r");
    let finished = events.finish();
    assert_eq!((finished.terminal(), finished.code()), ("", 0));
}

#[test]
fn ctrl_c_interrupts_and_ctrl_d_ends() {
    let guest = Guest::start();
    let mut events = shell(&guest, "echo ready; exec sleep 60");
    let pid = events.pid();
    events.wait_for("ready");
    type_in(&guest, pid, "\x03");
    assert_eq!(events.finish().end["status"], "signal: interrupt");

    let mut events = begin(&guest, &["cat"], &[]);
    let pid = events.pid();
    // With a character of two bytes that is taken back as one.
    type_in(&guest, pid, "textü\x7f\r\x04");
    let finished = events.finish();
    assert!(finished.terminal().ends_with("\r\ntext\r\n"), "{:?}", finished.terminal());
    assert_eq!(finished.code(), 0);
}

#[test]
fn a_shell_has_job_control() {
    let guest = Guest::start();
    let mut events = begin(&guest, &["bash", "--norc", "-i"], &[]);
    let pid = events.pid();
    let mut seen = events.wait_for("# ");
    type_in(&guest, pid, "sleep 60\r");
    seen += &events.wait_for("sleep 60\r\n");
    // Until it is in front and executed, it is the shell, or its copy, that would get the key.
    wait_until("sleep is in front", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let front = std::fs::read_to_string(format!("/proc/{}/comm", fields[5]));
        front.is_ok_and(|name| name.trim_end() == "sleep")
    });
    type_in(&guest, pid, "\x1a");
    seen += &events.wait_for("Stopped");
    // The first `exit` may only warn of the job.
    type_in(&guest, pid, "kill -9 %1; echo status $((40+2)); exit 7; exit 7\r");
    seen += &events.wait_for("status 42");
    assert!(!seen.contains("no job control"), "{seen}");
    assert_eq!(events.finish().code(), 7);
}

#[test]
fn the_end_of_a_shell_is_the_end_although_children_hold_the_terminal() {
    let guest = Guest::start();
    let begin_time = Instant::now();
    let script = "trap '' HUP; sleep 60 & echo $!; echo last words; exit 4";
    let finished = shell(&guest, script).finish();
    assert_eq!(finished.code(), 4);
    assert!(finished.terminal().ends_with("last words\r\n"), "{}", finished.terminal());
    assert!(begin_time.elapsed() < Duration::from_secs(2), "{:?}", begin_time.elapsed());
    let child = finished.terminal().lines().next().unwrap();
    assert!(is_alive(child), "a child that does not care was ended");
    guest.shell(&format!("kill {child}"));
}

#[test]
fn children_that_go_on_writing_are_told_that_the_terminal_hung_up() {
    let guest = Guest::start();
    let script = "trap '' HUP; (while echo tick 2>/dev/null; do sleep 0.05; done) & echo $!";
    let finished = shell(&guest, script).finish();
    let child = finished.terminal().lines().find(|line| !line.contains("tick")).unwrap();
    wait_until("the child is gone", || !is_alive(child));
}

#[test]
fn all_output_arrives_in_small_pieces_and_in_order() {
    let guest = Guest::start();
    let mut events = shell(&guest, "stty raw; seq 1 300000");
    let mut text = Vec::new();
    loop {
        match events.next() {
            Event::Terminal(bytes) => {
                assert!(bytes.len() <= 16 << 10);
                text.extend(bytes);
            }
            Event::Over(error) => break assert_eq!(error, Value::Null),
            _ => {}
        }
    }
    let expected = numbers(300_000);
    assert!(text == expected.as_bytes(), "{} bytes of {}", text.len(), expected.len());
}

#[test]
fn a_program_that_closes_its_terminal_for_a_while_is_still_heard() {
    let guest = Guest::start();
    let script = "exec 3>&- 2>&- </dev/null >/dev/null; sleep 0.3; exec >/dev/tty; echo back";
    assert_eq!(shell(&guest, script).finish().terminal(), "back\r\n");
}

#[test]
fn a_program_that_never_reads_holds_up_only_who_types() {
    const ALL: usize = 10 << 20;
    let guest = Guest::start();
    for mode in ["raw -echo", "cooked -echo"] {
        let mut events = shell(&guest, &format!("stty {mode}; echo ready; sleep 60"));
        let pid = events.pid();
        events.wait_for("ready");
        let before = resident_kilobytes(guest.pid());
        let typed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let typing = scope.spawn(|| {
                let mut typing = Typing::begin(&guest);
                typing.send(&envelope(&json!({ "start": { "process": { "pid": pid } } })));
                let piece = Typing::text(&"x".repeat(64 << 10));
                while typed.load(Ordering::Relaxed) < ALL && typing.try_send(&piece).is_ok() {
                    typed.fetch_add(64 << 10, Ordering::Relaxed);
                }
            });
            let mut last = usize::MAX;
            wait_until("nothing more is taken", || {
                std::thread::sleep(Duration::from_millis(800));
                std::mem::replace(&mut last, typed.load(Ordering::Relaxed)) == last
            });
            // A line that is too long is cut by the kernel, and so all of it is taken.
            assert_eq!(last == ALL, mode == "cooked -echo", "{last} bytes of {mode}");
            assert_eq!(guest.shell("echo free").stdout(), "free\n");
            let grown = resident_kilobytes(guest.pid()).saturating_sub(before);
            assert!(grown < 8_000, "{grown} kB");
            let kill = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
            assert_eq!(guest.call("SendSignal", &kill).0, 200);
            typing.join().unwrap();
        });
        assert_eq!(events.finish().end["status"], "signal: killed");
    }
}

#[test]
fn much_that_is_typed_arrives_whole_when_it_is_read() {
    let guest = Guest::start();
    let mut events = shell(&guest, "stty raw -echo; echo ready; head -c 3000000 | md5sum");
    let pid = events.pid();
    events.wait_for("ready");
    let text = numbers(500_000);
    let text = &text[..3_000_000];
    assert_eq!(type_in(&guest, pid, text), (200, json!({})));
    let seen = events.finish();
    std::fs::write(guest.file("text"), text).unwrap();
    let expected = guest.shell(&format!("md5sum < {}", guest.file("text").display()));
    assert_eq!(seen.terminal().trim(), expected.stdout().trim());
}

#[test]
fn input_of_the_wrong_kind_is_refused() {
    let guest = Guest::start();
    let pid = shell(&guest, "sleep 20").pid();
    let process = json!({ "pid": pid });
    let input = json!({ "process": process, "input": { "stdin": STANDARD.encode("x") } });
    let (status, error) = guest.call("SendInput", &input);
    assert_eq!((status, error["code"].as_str()), (500, Some("internal")));
    let (status, error) = guest.call("CloseStdin", &json!({ "process": process }));
    assert_eq!((status, error["code"].as_str()), (500, Some("unknown")));

    let piped = guest.begin(&["sleep", "20"], &[]).pid();
    let (status, error) = type_in(&guest, piped, "x");
    assert_eq!((status, error["code"].as_str()), (500, Some("internal")));
    let (status, error) = resize(&guest, piped, 80, 24);
    assert_eq!((status, error["code"].as_str()), (500, Some("internal")));
    assert!(error["message"].as_str().unwrap().contains("terminal is not there"), "{error}");
}

#[test]
fn the_screen_is_drawn_for_whoever_connects() {
    let guest = Guest::start();
    // What an editor does: the alternate screen, colours, modes, a cursor somewhere.
    // Nothing is echoed from the start: what is typed below may arrive as soon as this is drawn.
    let script = "stty -echo
        printf 'prompt> \\033[?1049h\\033[2J\\033[?1h\\033[?2004h\\033[?1000h\\033[?1006h'
        printf '\\033[3;5H\\033[1;44mEDITED\\033[m\\033[24;1H\\033[7mstatus\\033[m\\033[3;11H'
        read x; printf '\\033[?1049l'; echo left; read x";
    let mut events = shell(&guest, script);
    let pid = events.pid();
    events.wait_for("\x1b[3;11H");
    drop(events);
    let mut again = connect(&guest, pid);
    assert_eq!(again.pid(), pid);
    let offset = again.next;
    let Event::Screen(screen) = again.next() else { panic!("no screen") };
    assert_eq!(again.next, offset, "a screen is no output");
    let screen = String::from_utf8(screen).unwrap();
    let expected = [
        "prompt> ",
        "\x1b[?1049h",
        "\x1b[0;1;44mEDITED",
        "\x1b[0;7mstatus",
        "\x1b[?1h",
        "\x1b[?2004h",
        "\x1b[?1000h",
        "\x1b[?1006h",
        "\x1b[3;11H",
    ];
    let mut rest = screen.as_str();
    for part in expected {
        let at = rest.find(part);
        rest = &rest[at.unwrap_or_else(|| panic!("no {part:?} in {rest:?}"))..];
    }
    type_in(&guest, pid, "\r");
    assert_eq!(again.wait_for("left\r\n"), "\x1b[?1049lleft\r\n");
    type_in(&guest, pid, "\r");
    assert_eq!(again.finish().code(), 0);
}

#[test]
fn a_deadline_ends_a_terminal_and_all_in_it() {
    let guest = Guest::start();
    let script = "trap '' HUP; (setsid sleep 60 & echo $!); sleep 60";
    let events = begin(&guest, &["sh", "-c", script], &[("connect-timeout-ms", "400")]);
    let finished = events.finish();
    assert_eq!(finished.error["code"], "deadline_exceeded");
    assert!(!is_alive(finished.terminal()));
}

#[test]
fn a_silent_terminal_gives_signs_of_life() {
    let guest = Guest::start();
    let headers = [("keepalive-ping-interval", "1")];
    let finished = begin(&guest, &["sleep", "1.5"], &headers).finish();
    assert_eq!((finished.keepalives, finished.code()), (1, 0));
}

/// Sends parts of a request body one by one, as chunks, and reads the answer.
struct Typing(std::os::unix::net::UnixStream);

impl Typing {
    fn begin(guest: &Guest) -> Self {
        let mut stream = guest.connect();
        let head = "POST /process.Process/StreamInput HTTP/1.1\r\nhost: guest\r\n\
                    content-type: application/connect+json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap();
    }

    fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.0.write_all(&chunk)
    }

    fn text(text: &str) -> Vec<u8> {
        envelope(&json!({ "data": { "input": { "pty": STANDARD.encode(text) } } }))
    }

    /// Reads until the answer has held this text.
    fn wait_for(&mut self, text: &str) {
        self.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 1024];
        while !String::from_utf8_lossy(&seen).contains(text) {
            let length = self.0.read(&mut buffer).unwrap();
            assert!(length > 0, "no {text:?} in {}", String::from_utf8_lossy(&seen));
            seen.extend(&buffer[..length]);
        }
    }
}

#[test]
fn typing_can_be_one_long_request_in_any_pieces() {
    let guest = Guest::start();
    let mut start = message(&["cat"], 80, 24);
    start["tag"] = json!("typed");
    let mut events = guest.start_with(&[], &start);
    events.pid();
    let mut typing = Typing::begin(&guest);
    typing.send(&envelope(&json!({ "start": { "process": { "tag": "typed" } } })));
    // Each key is there before the next is sent.
    for key in ["a", "b", "c"] {
        typing.send(&Typing::text(key));
        events.wait_for(key);
        typing.send(&envelope(&json!({ "keepalive": {} })));
    }
    for byte in Typing::text("split\r") {
        typing.send(&[byte]);
    }
    events.wait_for("abcsplit\r\n");
    typing.send(&[&Typing::text("\x04")[..], &Typing::text("")[..]].concat());
    assert_eq!(events.finish().code(), 0);
    // The process is gone in the midst of it: the next key says so.
    typing.send(&Typing::text("x"));
    typing.wait_for("internal");
}

#[test]
fn typing_before_a_process_is_named_is_refused() {
    let guest = Guest::start();
    let mut typing = Typing::begin(&guest);
    typing.send(&Typing::text("x"));
    typing.wait_for("invalid_argument");
    let mut typing = Typing::begin(&guest);
    typing.send(&envelope(&json!({ "start": { "process": { "tag": "nobody" } } })));
    typing.wait_for("not_found");
}

#[test]
fn no_descriptor_and_no_terminal_is_left_behind() {
    let guest = Guest::start();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap().count();
    shell(&guest, "true").finish();
    let before = descriptors();
    for _ in 0..30 {
        let name = shell(&guest, "tty").finish().terminal().trim().to_owned();
        wait_until("the terminal is gone", || !std::path::Path::new(&name).exists());
    }
    wait_until("all descriptors are closed", || descriptors() <= before);
}

#[test]
fn hostile_output_ends_nothing() {
    let guest = Guest::start();
    let before = resident_kilobytes(guest.pid());
    let mut events = shell(&guest, "stty raw; head -c 1000000 /dev/urandom; echo; echo over");
    let pid = events.pid();
    let watcher = connect(&guest, pid);
    drop(watcher);
    while !matches!(events.next(), Event::Over(_)) {}
    let finished = connect(&guest, pid).finish();
    assert!(!finished.screen.is_empty());
    let after = resident_kilobytes(guest.pid());
    assert!(after < before + 16_000, "grew from {before} to {after} kB");
}

#[test]
fn a_program_that_only_erases_a_large_screen_holds_up_nobody_else() {
    let guest = Guest::start();
    let command = [
        "sh",
        "-c",
        "stty raw; while :; do printf '\\033[2J\\033c\\033[65535b%.0s' $(seq 500); done",
    ];
    let mut events = guest.start_with(&[], &message(&command, 256, 128));
    let pid = events.pid();
    drop(events);
    let begin = Instant::now();
    assert_eq!(guest.shell("echo free").stdout(), "free\n");
    // Far above what a busy machine takes.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let kill = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(guest.call("SendSignal", &kill).0, 200);
}
