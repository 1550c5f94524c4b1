//! A client that does as little as it can: HTTP/1.1 on one connection that stays open.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

/// Far more than any answer takes; one that never comes must not hold the benchmark up.
const PATIENCE: Duration = Duration::from_mins(1);

/// More than a page of sandboxes has.
const LARGEST: usize = 16 << 20;

/// A connection to the daemon, with its key.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    key: String,
}

impl Connection {
    pub(super) fn open(address: &str, key: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("could not dial the daemon")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let stream = BufReader::with_capacity(64 << 10, stream);
        Ok(Self { stream, address: address.to_owned(), key: key.to_owned() })
    }

    /// Asks, and reads the whole answer. A refusal is an error with its words.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        self.send(method, path, body)?;
        let (status, length) = self.head()?;
        let mut answer = Vec::new();
        self.body(length, |piece| answer.extend_from_slice(piece))?;
        let words = String::from_utf8_lossy(&answer);
        ensure!((200..300).contains(&status), "{method} {path} was answered {status}: {words}");
        if answer.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(&answer)?) }
    }

    /// Asks, and reads the answer as it comes; how many bytes it had.
    pub(crate) fn drain(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<u64> {
        self.send(method, path, Some(body))?;
        let (status, length) = self.head()?;
        let mut read = 0;
        self.body(length, |piece| read += piece.len() as u64)?;
        ensure!((200..300).contains(&status), "{method} {path} was answered {status}");
        Ok(read)
    }

    fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
        let body = body.map(Value::to_string).unwrap_or_default();
        // In one piece, as every client does it.
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.key,
            body.len()
        );
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    /// Reads a body of this length, or one that comes in pieces.
    fn body(&mut self, length: Option<usize>, mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
        if let Some(length) = length {
            return self.piece(length, &mut take);
        }
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(&line, 16);
            let length = length.with_context(|| format!("`{line}` is no length of a piece"))?;
            self.piece(length, &mut take)?;
            ensure!(self.line()?.is_empty(), "a piece is longer than it said");
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn piece(&mut self, mut left: usize, take: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        while left > 0 {
            let there = self.stream.fill_buf()?;
            ensure!(!there.is_empty(), "the daemon closed the connection");
            let now = there.len().min(left);
            take(&there[..now]);
            self.stream.consume(now);
            left -= now;
        }
        Ok(())
    }

    /// The status, and how long the body is; nothing for one that comes in pieces.
    fn head(&mut self) -> anyhow::Result<(u16, Option<usize>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("`{first}` is no answer"))?;
        let mut length = Some(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                let bytes = value.trim().parse()?;
                ensure!(bytes <= LARGEST, "the answer has {bytes} bytes");
                length = Some(bytes);
            } else if line.starts_with("transfer-encoding:") {
                length = None;
            }
        }
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(64 << 10).read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the daemon closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
