//! A terminal outlives the daemon and the engine: its screen is drawn again, and what it showed
//! meanwhile is there from an offset.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::delete;
use crate::daemon::Daemon;
use crate::support::eventually;

const SERVICE: &str = "/process.Process";

/// What is said of a terminal, message by message.
struct Following {
    stream: std::net::TcpStream,
    bytes: Vec<u8>,
}

impl Following {
    /// Asks the guest for a stream, through the daemon.
    fn ask(daemon: &Daemon, id: &str, method: &str, wish: &Value) -> Self {
        let body = envelope(wish);
        let head = format!(
            "POST {SERVICE}/{method} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {}\r\n\
             E2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49983\r\nConnect-Protocol-Version: 1\r\n\
             Content-Type: application/connect+json\r\nContent-Length: {}\r\n\r\n",
            daemon.key(),
            body.len()
        );
        let mut stream = daemon.connect();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    /// Reads until somebody has seen enough of the events, and returns them.
    #[track_caller]
    fn until(&mut self, is_enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let events = events(&self.bytes);
            if is_enough(&events) {
                return events;
            }
            let text = String::from_utf8_lossy(&self.bytes);
            assert!(begun.elapsed() < Duration::from_secs(20), "it never comes: {text}");
            let mut piece = [0; 4096];
            if let Ok(length) = self.stream.read(&mut piece) {
                self.bytes.extend_from_slice(&piece[..length]);
            }
        }
    }
}

fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), text.as_bytes()].concat()
}

/// The whole messages in what was answered so far.
fn events(answer: &[u8]) -> Vec<Value> {
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{text}");
    let body = unchunked(&answer[head + 4..]);
    let (mut rest, mut messages) = (body.as_slice(), Vec::new());
    while let Some((length, data)) = rest.get(1..5).zip(rest.get(5..)) {
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some(message) = data.get(..length) else { break };
        messages.push(serde_json::from_slice::<Value>(message).unwrap()["event"].clone());
        rest = &data[length..];
    }
    messages
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(&String::from_utf8_lossy(&body[..end]), 16).unwrap();
        let Some(data) = body.get(end + 2..end + 2 + length) else { break };
        whole.extend_from_slice(data);
        let Some(next) = body.get(end + 4 + length..) else { break };
        body = next;
    }
    whole
}

/// What the terminal showed, and the offset of its first byte.
fn shown(events: &[Value]) -> (Option<u64>, String) {
    let mut bytes = Vec::new();
    let mut first = None;
    for data in events.iter().map(|event| &event["data"]).filter(|data| data["pty"].is_string()) {
        let offset = data["offset"].as_str().and_then(|text| text.parse().ok());
        first = first.or(offset);
        bytes.extend(STANDARD.decode(data["pty"].as_str().unwrap()).unwrap());
    }
    (first, String::from_utf8_lossy(&bytes).into_owned())
}

fn pid_of(events: &[Value]) -> Option<u64> {
    events.iter().find_map(|event| event["start"]["pid"].as_u64())
}

fn write(daemon: &Daemon, id: &str, pid: u64, text: &str) {
    let lines = format!(
        "X-API-Key: {}\r\nE2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49983\r\n\
         Content-Type: application/json\r\nConnect-Protocol-Version: 1\r\n",
        daemon.key()
    );
    let input = json!({ "process": { "pid": pid }, "input": { "pty": STANDARD.encode(text) } });
    let path = format!("{SERVICE}/SendInput");
    let answer = daemon.send("POST", &path, &lines, input.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
}

#[test]
fn a_terminal_is_found_again_with_its_screen_and_its_output_from_an_offset() {
    let mut daemon = Daemon::start();
    let id = daemon.create("{}");
    let shell = json!({
        "process": { "cmd": "/bin/sh", "envs": { "PS1": "ready> " } },
        "pty": { "size": { "cols": 80, "rows": 24 } }
    });
    let mut first = Following::ask(&daemon, &id, "Start", &shell);
    let begun = first.until(|events| shown(events).1.contains("ready> "));
    let pid = pid_of(&begun).unwrap();
    write(&daemon, &id, pid, "stty -echo; MARK=kept-$$\n");
    write(&daemon, &id, pid, "echo before-$MARK; sleep 1; seq 1 300; echo after-$MARK\n");
    let before = first.until(|events| shown(events).1.contains("before-kept-"));
    let (_, told) = shown(&before);
    drop(first);
    daemon.kill();
    daemon.home.kill_engine();
    // It goes on while nobody looks.
    std::thread::sleep(Duration::from_millis(1500));
    daemon.restart();

    // From the offset at which the first connection broke off, no byte twice and none missing.
    let from = |offset: u64| json!({ "process": { "pid": pid }, "from": offset.to_string() });
    let mut all = Following::ask(&daemon, &id, "Connect", &from(0));
    let all = shown(&all.until(|events| shown(events).1.contains("after-kept-"))).1;
    assert!(all.starts_with(&told), "{told:?} was told, and now it is {all:?}");
    let numbers: Vec<String> = (1..=300).map(|number| format!("{number}\r\n")).collect();
    assert!(all.contains(&numbers.concat()), "{all:?}");
    let offset = told.len() as u64;
    let mut rest = Following::ask(&daemon, &id, "Connect", &from(offset));
    let rest = rest.until(|events| shown(events).1.contains("after-kept-"));
    let (begins, rest) = shown(&rest);
    assert_eq!(begins, Some(offset));
    assert!(format!("{told}{rest}").starts_with(&all) || all.starts_with(&format!("{told}{rest}")));

    // Without an offset the screen is drawn: its last lines, and not what scrolled away.
    let whole = json!({ "process": { "pid": pid } });
    let mut screen = Following::ask(&daemon, &id, "Connect", &whole);
    let drawn = shown(&screen.until(|events| shown(events).1.contains("after-kept-"))).1;
    assert!(drawn.contains("300") && !drawn.contains("\n42\r"), "{drawn:?}");
    // It is the same shell, which was not started twice, and it takes what is typed.
    write(&daemon, &id, pid, "echo typed-$MARK\n");
    let mark = all.rsplit("after-").next().unwrap().split_whitespace().next().unwrap();
    let wanted = format!("typed-{mark}");
    screen.until(|events| shown(events).1.contains(&wanted));
    write(&daemon, &id, pid, "exit\n");
    eventually("the shell stays", || {
        let listed = daemon.ask("GET", &format!("/v1/sandbox/{id}/processes"), "").json();
        let items = listed["items"].as_array().unwrap();
        items.iter().all(|item| item["pid"] != pid || item["state"] != "running")
    });
    delete(&daemon, &id);
    daemon.close();
}
