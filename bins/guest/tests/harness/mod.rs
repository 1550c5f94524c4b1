//! Runs the real guest, without a sandbox, and speaks to it as a client would: Connect with
//! JSON, over HTTP/1.1, on its socket.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "where the harness fails, the test has failed")]

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A guest and its spawner, ended with everything below them when dropped.
pub(crate) struct Guest {
    child: Child,
    folder: tempfile::TempDir,
}

impl Guest {
    pub(crate) fn start() -> Self {
        Self::start_as(&[])
    }

    /// With further arguments.
    pub(crate) fn start_as(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = sys_linux::command::command(env!("CARGO_BIN_EXE_soma-guest"))
            .arg("outside")
            .arg(folder.path().join("socket"))
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let guest = Self { child, folder };
        wait_until("the guest listens", || UnixStream::connect(guest.socket()).is_ok());
        guest
    }

    /// The guest's own process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A folder of this test, open to every user.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client of the guest, the way hosts have one.
    pub(crate) fn client(&self) -> guest_proto::GuestClient {
        guest_proto::GuestClient::new(Socket(self.socket()))
    }

    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    /// Waits for the guest to end, and tells its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// One call with one answer: the status and the message.
    pub(crate) fn call(&self, method: &str, message: &Value) -> (u16, Value) {
        let body = message.to_string();
        let mut answer = self.post(method, "application/json", &[], body.as_bytes());
        let mut text = String::new();
        answer.body.read_to_string(&mut text).unwrap();
        (answer.status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// A call with a stream of events.
    pub(crate) fn stream(&self, method: &str, headers: &[(&str, &str)], message: &Value) -> Events {
        let body = envelope(message);
        Events { answer: self.post(method, "application/connect+json", headers, &body), next: None }
    }

    /// Runs a shell command as root, without standard input, to its end.
    pub(crate) fn shell(&self, script: &str) -> Finished {
        self.run(&["sh", "-c", script])
    }

    /// Runs a command as root, without standard input, to its end.
    pub(crate) fn run(&self, command: &[&str]) -> Finished {
        self.begin(command, &[]).finish()
    }

    /// Starts a command as root, without standard input.
    pub(crate) fn begin(&self, command: &[&str], headers: &[(&str, &str)]) -> Events {
        let message = json!({
            "process": { "cmd": command[0], "args": command[1..], "cwd": "/" },
            "stdin": false,
        });
        self.start_with(headers, &message)
    }

    /// Starts what the message says, as root.
    pub(crate) fn start_with(&self, headers: &[(&str, &str)], message: &Value) -> Events {
        let root = format!("Basic {}", STANDARD.encode("root:"));
        let mut headers = headers.to_vec();
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            headers.push(("authorization", &root));
        }
        self.stream("Start", &headers, message)
    }

    fn post(&self, method: &str, kind: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let mut head = format!(
            "POST /process.Process/{method} HTTP/1.1\r\nhost: guest\r\ncontent-type: {kind}\r\n\
             connect-protocol-version: 1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        Answer::read(stream)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}

struct Socket(PathBuf);

#[async_trait::async_trait]
impl guest_proto::Dial for Socket {
    async fn dial(
        &self,
    ) -> Result<Box<dyn guest_proto::ByteStream>, guest_proto::client::BoxError> {
        Ok(Box::new(tokio::net::UnixStream::connect(&self.0).await?))
    }
}

/// A message in the frame that Connect gives it in streams.
pub(crate) fn envelope(message: &Value) -> Vec<u8> {
    let message = message.to_string();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message.as_bytes()].concat()
}

/// The head of an answer, and its body to be read.
struct Answer {
    status: u16,
    body: Box<dyn Read + Send>,
}

impl Answer {
    fn read(stream: UnixStream) -> Self {
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut chunked = false;
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
        }
        let body: Box<dyn Read + Send> =
            if chunked { Box::new(Chunked { reader, left: 0 }) } else { Box::new(reader) };
        Self { status, body }
    }
}

struct Chunked {
    reader: BufReader<UnixStream>,
    left: usize,
}

impl Read for Chunked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.left == 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            if line == "\r\n" {
                continue;
            }
            self.left = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = self.left.min(buffer.len());
        let length = self.reader.read(&mut buffer[..most])?;
        self.left -= length;
        Ok(length)
    }
}

/// The events of a process, as they come.
pub(crate) struct Events {
    answer: Answer,
    /// Where in the process's output the next piece begins, as far as was told.
    pub(crate) next: Option<u64>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Start(u64),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Terminal(Vec<u8>),
    /// A screen that is drawn anew.
    Screen(Vec<u8>),
    Dropped(u64, u64),
    KeepAlive,
    End(Value),
    /// The end of the stream, with an error or null.
    Over(Value),
}

impl Events {
    /// The next event; panics when the stream broke off.
    pub(crate) fn next(&mut self) -> Event {
        let mut head = [0; 5];
        self.answer.body.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut message = vec![0; length as usize];
        self.answer.body.read_exact(&mut message).unwrap();
        let message: Value = serde_json::from_slice(&message).unwrap();
        if head[0] == 2 {
            return Event::Over(message["error"].clone());
        }
        let event = &message["event"];
        let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
        let data = &event["data"];
        let bytes = |channel: &str| STANDARD.decode(data[channel].as_str()?).ok();
        if let Some(pid) = event["start"]["pid"].as_u64() {
            self.next = number(&event["start"]["offset"]);
            assert!(self.next.is_some(), "a start without an offset");
            Event::Start(pid)
        } else if event["dropped"].is_object() {
            let edge = |name: &str| number(&event["dropped"][name]).unwrap_or(0);
            let (from, to) = (edge("from"), edge("to"));
            assert_eq!(self.next, Some(from));
            self.next = Some(to);
            Event::Dropped(from, to)
        } else if data.is_object() {
            let (event, length) = if let Some(bytes) = bytes("stdout") {
                let length = bytes.len();
                (Event::Stdout(bytes), length)
            } else if let Some(bytes) = bytes("stderr") {
                let length = bytes.len();
                (Event::Stderr(bytes), length)
            } else {
                let bytes = bytes("pty").unwrap();
                if data["offset"].is_null() {
                    return Event::Screen(bytes);
                }
                let length = bytes.len();
                (Event::Terminal(bytes), length)
            };
            // Whoever follows misses nothing and gets nothing twice, in every test.
            assert_eq!(number(&data["offset"]), self.next);
            self.next = self.next.map(|next| next + length as u64);
            event
        } else if event["keepalive"].is_object() {
            Event::KeepAlive
        } else {
            Event::End(event["end"].clone())
        }
    }

    /// The process id, from the first event.
    pub(crate) fn pid(&mut self) -> u64 {
        match self.next() {
            Event::Start(pid) => pid,
            other => panic!("the first event is {other:?}"),
        }
    }

    /// Reads on until standard output or the terminal has held this text, and tells all of it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(text) {
            match self.next() {
                Event::Stdout(bytes) | Event::Terminal(bytes) => seen.extend(bytes),
                other => panic!("{other:?} came before {text:?}"),
            }
        }
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Reads everything to the end.
    pub(crate) fn finish(mut self) -> Finished {
        let mut finished = Finished::default();
        loop {
            match self.next() {
                Event::Start(pid) => finished.pid = pid,
                Event::Stdout(bytes) => finished.stdout.extend(bytes),
                Event::Stderr(bytes) => finished.stderr.extend(bytes),
                Event::Terminal(bytes) => finished.terminal.extend(bytes),
                Event::Screen(bytes) => finished.screen.extend(bytes),
                Event::Dropped(from, to) => finished.dropped = Some((from, to)),
                Event::KeepAlive => finished.keepalives += 1,
                Event::End(end) => finished.end = end,
                Event::Over(error) => {
                    finished.error = error;
                    return finished;
                }
            }
        }
    }
}

/// A process that is over.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) pid: u64,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) terminal: Vec<u8>,
    pub(crate) screen: Vec<u8>,
    pub(crate) dropped: Option<(u64, u64)>,
    pub(crate) keepalives: usize,
    pub(crate) end: Value,
    pub(crate) error: Value,
}

impl Finished {
    pub(crate) fn code(&self) -> i64 {
        assert!(self.end.is_object(), "there was no end: {self:?}");
        self.end["exitCode"].as_i64().unwrap_or(0)
    }

    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn stderr(&self) -> &str {
        std::str::from_utf8(&self.stderr).unwrap()
    }

    pub(crate) fn terminal(&self) -> &str {
        std::str::from_utf8(&self.terminal).unwrap()
    }
}

/// What `seq 1 LAST` prints.
pub(crate) fn numbers(last: u32) -> String {
    use std::fmt::Write as _;
    (1..=last).fold(String::new(), |mut text, number| {
        writeln!(text, "{number}").unwrap();
        text
    })
}

/// Whether a process is there and not a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// The memory that a process has in use.
pub(crate) fn resident_kilobytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Looks again and again, for ten seconds at most.
pub(crate) fn wait_until(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
