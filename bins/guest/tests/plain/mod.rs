//! Runs the real guest, without a sandbox around it, and speaks plain HTTP with it on its socket.
//!
//! The guest runs as `soma-guest outside`, and the tests need root, as the guest is root in its
//! sandbox.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "where the harness fails, the test has failed")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sys_linux::command::command;

pub(crate) const GUEST: &str = env!("CARGO_BIN_EXE_soma-guest");

/// A guest of its own, with a folder for its socket and files.
pub(crate) struct Guest {
    pub(crate) child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The test is over either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Guest {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = command(GUEST)
            .arg("outside")
            .arg(folder.path().join("socket"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self::ready(child, folder)
    }

    /// Waits until the guest answers, and makes root its default user.
    pub(crate) fn ready(child: Child, folder: tempfile::TempDir) -> Self {
        let guest = Self { child, folder };
        let started = Instant::now();
        while UnixStream::connect(guest.folder.path().join("socket")).is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "the guest does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = json!({ "defaultUser": "root" }).to_string();
        assert_eq!(guest.send("POST", "/init", &[], told.as_bytes()).status, 204);
        guest
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("files").join(name)
    }

    /// The address of `/files` for the file `name`.
    pub(crate) fn address(&self, name: &str) -> String {
        format!("/files?path={}", encode(self.path(name).to_str().unwrap()))
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    pub(crate) fn send(
        &self,
        method: &str,
        address: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = self.connect();
        stream.write_all(&head(method, address, headers, body.len())).unwrap();
        // A refused upload may be answered before all of it was taken.
        let _ = stream.write_all(body);
        Answer::read(&mut stream)
    }

    pub(crate) fn upload(&self, name: &str, content: &[u8]) -> Answer {
        self.send("POST", &self.address(name), &[OCTETS], content)
    }

    /// The most memory that the guest ever had.
    pub(crate) fn peak_memory_kibibytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        most.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn call(&self, method: &str, request: &Value) -> Answer {
        let address = format!("/filesystem.Filesystem/{method}");
        let headers = [("content-type", "application/json"), ("connect-protocol-version", "1")];
        self.send("POST", &address, &headers, request.to_string().as_bytes())
    }
}

pub(crate) const OCTETS: (&str, &str) = ("content-type", "application/octet-stream");

pub(crate) fn head(
    method: &str,
    address: &str,
    headers: &[(&str, &str)],
    length: usize,
) -> Vec<u8> {
    let length = length.to_string();
    let mut lines = vec![("host", "guest"), ("connection", "close")];
    if method == "POST" {
        lines.push(("content-length", &length));
    }
    lines.extend(headers);
    let lines: Vec<_> =
        lines.into_iter().map(|(name, value)| [name, ": ", value].concat()).collect();
    format!("{method} {address} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes()
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn read(stream: &mut UnixStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let mut body = bytes.split_off(end + 4);
        if head.contains("transfer-encoding: chunked") {
            body = join_chunks(&body);
        }
        Self { status: head[9..12].parse().unwrap(), head, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Checks that this is an error of the plain routes and gives its message.
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.json()["code"], status);
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn join_chunks(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = usize::from_str_radix(str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
}

pub(crate) fn form(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, filename, content) in parts {
        let filename = filename.map_or(String::new(), |name| format!("; filename=\"{name}\""));
        let head = format!("--B\r\ncontent-disposition: form-data; name=\"{name}\"{filename}\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"content-type: application/octet-stream\r\n\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--B--\r\n");
    body
}

pub(crate) const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=B");

/// Looks again and again, for ten seconds at most.
pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(5));
    }
}
