//! Asks the real guest to run code, and reads what it tells.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::print_stdout, reason = "a test that cannot run says so")]
#![allow(clippy::unwrap_used, reason = "where the harness fails, the test has failed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::plain::{Guest, head};

/// Whether an interpreter is on the path of the guest's commands; says so where it is not.
pub(crate) fn has(interpreter: &str) -> bool {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let there = folders.iter().any(|folder| Path::new(folder).join(interpreter).exists());
    if !there {
        println!("skipped: there is no {interpreter} here");
    }
    there
}

/// One request with one answer in JSON.
pub(crate) fn ask(guest: &Guest, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = guest.send(method, path, &[], text.as_bytes());
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
}

/// A new context.
pub(crate) fn context(guest: &Guest, language: &str) -> String {
    let (status, context) = ask(guest, "POST", "/code/contexts", &json!({ "language": language }));
    assert_eq!(status, 201, "{context}");
    context["id"].as_str().unwrap().to_owned()
}

/// Runs code in a context and waits for all of it.
pub(crate) fn run(guest: &Guest, context: &str, code: &str) -> Value {
    run_with(guest, &json!({ "context_id": context, "code": code }))
}

/// The same with a whole request.
pub(crate) fn run_with(guest: &Guest, request: &Value) -> Value {
    let (status, answer) = ask(guest, "POST", "/code/execute", request);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The text of the first value.
pub(crate) fn text(answer: &Value) -> &str {
    answer["items"][0]["text"].as_str().unwrap_or_else(|| panic!("no value: {answer}"))
}

/// Begins an execution that nobody follows; its name.
pub(crate) fn detach(guest: &Guest, request: &Value) -> String {
    let mut request = request.clone();
    request["detach"] = json!(true);
    let (status, begun) = ask(guest, "POST", "/code/executions", &request);
    assert_eq!(status, 201, "{begun}");
    begun["id"].as_str().unwrap().to_owned()
}

/// Lines of an answer, as they come.
pub(crate) struct Lines {
    reader: BufReader<UnixStream>,
    buffer: Vec<u8>,
    over: bool,
}

impl Lines {
    /// Asks, and reads the head of the answer.
    pub(crate) fn open(guest: &Guest, method: &str, path: &str, body: &Value) -> Self {
        let mut stream = guest.connect();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        stream.write_all(&head(method, path, &[], text.len())).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut reader = BufReader::with_capacity(1 << 18, stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Self { reader, buffer: Vec::new(), over: false }
    }

    /// The next line as it is, or none at the end.
    pub(crate) fn raw(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Some(std::mem::replace(&mut self.buffer, rest));
            }
            if self.over {
                return None;
            }
            let chunk = self.chunk();
            self.over = chunk.is_empty();
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next chunk of the body.
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        chunk.truncate(length);
        chunk
    }

    /// Reads on to an event of this type.
    pub(crate) fn until(&mut self, kind: &str) -> Value {
        self.by_ref().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}"))
    }
}

impl Iterator for Lines {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line = self.raw()?;
        Some(serde_json::from_slice(&line).unwrap())
    }
}

/// All events of an execution, from one on.
pub(crate) fn events(guest: &Guest, execution: &str, from: u64) -> Vec<Value> {
    let path = format!("/code/executions/{execution}?from={from}");
    Lines::open(guest, "GET", &path, &Value::Null).collect()
}
