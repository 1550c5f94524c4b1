//! The daemon from outside: HTTP, keys, restarts, hostile clients, the SDKs of others.

mod contract;
mod events;
mod life;
mod postgres;
mod requests;
pub(crate) mod sdks;
mod snapshots;
mod strangers;
mod transcript;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Home, is_root};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// A daemon of its own home, which ends with it.
pub(crate) struct Daemon {
    // Ended before the home is.
    child: Child,
    pub(crate) address: String,
    pub(crate) home: Home,
    /// What every daemon of this home is told by its environment.
    variables: Vec<(String, String)>,
    /// The program that it is; the one under test when unset.
    program: Option<PathBuf>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body, which must be JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {self:?} {text}"))
    }

    /// The words of an error.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::of(Home::new())
    }

    /// Starts a daemon of this home and waits until it says where it listens.
    pub(crate) fn of(home: Home) -> Self {
        Self::with(home, &[])
    }

    /// The same with these variables.
    pub(crate) fn with(home: Home, variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        let (child, address) = serve(&home, &variables, None);
        Self { child, address, home, variables, program: None }
    }

    /// The same of a program that is not the one under test.
    pub(crate) fn of_program(home: Home, program: &Path) -> Self {
        let (child, address) = serve(&home, &[], Some(program));
        let program = Some(program.to_owned());
        Self { child, address, home, variables: Vec::new(), program }
    }

    /// The next daemon of this home is this program.
    pub(crate) fn set_program(&mut self, program: &Path) {
        self.program = Some(program.to_owned());
    }

    pub(crate) fn key(&self) -> String {
        let file = self.home.path().join("daemon/api-key");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Asks with the key.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let key = format!("Authorization: Bearer {}\r\n", self.key());
        self.send(method, path, &key, body.as_bytes())
    }

    /// Asks with these header lines, and nothing else that matters.
    pub(crate) fn send(&self, method: &str, path: &str, lines: &str, body: &[u8]) -> Answer {
        let host =
            if lines.to_ascii_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = self.connect();
        // A daemon that refuses early may close before it has read all.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        parse(&bytes)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        // What is asked in the long forms may take long, and on a busy machine everything.
        let turns = if std::env::var_os("SOMA_LONG").is_some() { 15 } else { 2 };
        stream.set_read_timeout(Some(PATIENCE * turns)).unwrap();
        stream
    }

    /// Makes a sandbox and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, wish: &str) -> String {
        let mut wish: Value = serde_json::from_str(wish).unwrap();
        if !is_root() {
            wish["allow_unenforced"] = true.into();
        }
        let answer = self.ask("POST", "/v1/sandbox", &wish.to_string());
        assert_eq!(answer.status, 201, "{}", answer.json());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Runs a command and returns what it wrote to standard output.
    #[track_caller]
    pub(crate) fn execute(&self, id: &str, command: &str) -> String {
        let body = serde_json::json!({ "command": command }).to_string();
        let answer = self.ask("POST", &format!("/v1/sandbox/{id}/process/execute"), &body);
        assert_eq!(answer.status, 200, "{}", answer.json());
        answer.json()["stdout"].as_str().unwrap().to_owned()
    }

    /// The state of a sandbox.
    pub(crate) fn state(&self, id: &str) -> String {
        let seen = self.ask("GET", &format!("/v1/sandbox/{id}"), "").json();
        seen["state"].as_str().unwrap_or("gone").to_owned()
    }

    /// Kills the daemon as a crash would, without its starter having a say.
    pub(crate) fn kill(&mut self) {
        for process in self.home.daemons() {
            let pid = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        self.child.wait().unwrap();
    }

    /// Starts the next daemon of the same home.
    pub(crate) fn restart(&mut self) {
        (self.child, self.address) = serve(&self.home, &self.variables, self.program.as_deref());
    }

    /// Asks the daemon to end, and returns how it did.
    pub(crate) fn end(&mut self) -> std::process::ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Daemon {
    /// Ends the daemon, of whose home nothing is left then.
    #[track_caller]
    pub(crate) fn close(mut self) {
        assert!(self.end().success());
        let home = std::mem::replace(&mut self.home, Home::new());
        drop(self);
        home.assert_nothing_left();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if std::thread::panicking() {
            self.kill();
        } else {
            self.end();
        }
    }
}

fn serve(home: &Home, variables: &[(String, String)], program: Option<&Path>) -> (Child, String) {
    let words = ["serve", "--listen", "127.0.0.1:0"];
    let mut soma = match program {
        Some(program) => home.program(program, words),
        None => home.soma(words),
    };
    // By this it is found again.
    soma.arg(format!("--home={}", home.path().display()));
    soma.stderr(Stdio::inherit()).envs(variables.iter().cloned());
    let mut child = soma.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let address = first.strip_prefix("Soma listens at http://").unwrap().to_owned();
    // Its key is in what follows; somebody must read it, or the daemon waits.
    std::thread::spawn(move || lines.for_each(drop));
    (child, address)
}

pub(crate) fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let mut body = bytes.get(end + 4..).unwrap_or_default().to_vec();
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    Answer { status, head, body }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let start = end + 2;
        whole.extend_from_slice(&bytes[start..(start + size).min(bytes.len())]);
        if size == 0 || start + size + 2 > bytes.len() {
            break;
        }
        bytes = &bytes[start + size + 2..];
    }
    whole
}
