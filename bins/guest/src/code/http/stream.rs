//! The events of an execution as the lines of an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use guest_proto::code::{Event, EventKind};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::timeout;

use super::super::execution::Execution;
use super::super::log::{Read, Reader, Value, encoded};
use super::super::room::{Full, GOING, Held, holding};
use super::super::text::{self, json_line, put_string};
use crate::server::{Body, BoxError};

/// As much as is gathered for one write.
const GATHERED: usize = 64 << 10;

/// How long a value waits for room before it is left out.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What becomes of what was read.
pub(super) trait Dialect: Send + 'static {
    /// How long nothing is said before a sign of life.
    const SILENCE: Duration;

    /// Appends the line of an event, if it has one.
    fn event(&mut self, event: &Event<Value>, lines: &mut Vec<u8>);

    /// Appends what is said of events that are missing.
    fn missed(&mut self, count: u64, last: u64, lines: &mut Vec<u8>);

    /// Appends a sign of life, when `next` is the event that comes next.
    fn keepalive(&mut self, next: u64, lines: &mut Vec<u8>);
}

/// Lines of what an execution tells, in one dialect.
pub(super) struct Lines<D> {
    pub(super) reader: Reader,
    pub(super) dialect: D,
    /// Whether to wait for what comes, or to stop at what is there.
    pub(super) follow: bool,
    /// Cancelled when the client goes away before the end.
    pub(super) leash: Option<Leash>,
}

/// Cancels an execution that nobody reads any more.
pub(super) struct Leash(pub(super) Option<Arc<Execution>>);

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(execution) = self.0.take() {
            execution.cancel("its client has gone");
        }
    }
}

impl<D: Dialect> Lines<D> {
    /// The next lines, as soon as there are any; none after the last.
    async fn next(&mut self) -> Option<Bytes> {
        let (mut lines, mut held) = (Vec::new(), Vec::new());
        while lines.is_empty() {
            let read = match self.reader.try_next() {
                Some(read) => read,
                None if !self.follow => return None,
                // The usual case has no timer: a busy cell never waits here.
                None => match timeout(D::SILENCE, self.reader.next()).await {
                    Ok(Some(read)) => read,
                    Ok(None) => {
                        if let Some(leash) = &mut self.leash {
                            leash.0 = None;
                        }
                        return None;
                    }
                    Err(_) => {
                        self.dialect.keepalive(self.reader.place(), &mut lines);
                        break;
                    }
                },
            };
            self.line(read, &mut lines, &mut held).await;
        }
        while lines.len() < GATHERED
            && let Some(read) = self.reader.try_next()
        {
            self.line(read, &mut lines, &mut held).await;
        }
        Some(holding(lines, held))
    }

    async fn line(&mut self, read: Read, lines: &mut Vec<u8>, held: &mut Vec<Held>) {
        match read {
            Read::Event(event) => match GOING.wait_for(encoded(&event.kind), PATIENCE).await {
                Ok(room) => {
                    held.extend(room);
                    self.dialect.event(&event, lines);
                }
                Err(Full) => self.dialect.missed(1, event.n, lines),
            },
            Read::Missed { count, last } => self.dialect.missed(count, last, lines),
        }
    }

    /// An answer that is these lines.
    pub(super) fn into_response(self, kind: &'static str) -> Response<Body> {
        let lines = stream::unfold(self, |mut lines| async move {
            let bytes = lines.next().await?;
            Some((Ok::<_, BoxError>(Frame::data(bytes)), lines))
        });
        let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

/// The guest's own dialect.
pub(super) struct Own;

impl Dialect for Own {
    const SILENCE: Duration = Duration::from_secs(15);

    fn event(&mut self, event: &Event<Value>, lines: &mut Vec<u8>) {
        let (name, text) = match &event.kind {
            EventKind::Stdout { text } => ("stdout", text),
            EventKind::Stderr { text } => ("stderr", text),
            _ => return put(lines, event),
        };
        let Event { n, time, .. } = event;
        let head = format!(r#"{{"n":{n},"time":"{time}","type":"{name}","text":"#);
        lines.extend_from_slice(head.as_bytes());
        put_string(text, lines);
        lines.extend_from_slice(b"}\n");
    }

    fn missed(&mut self, count: u64, last: u64, lines: &mut Vec<u8>) {
        let kind = EventKind::Dropped { count };
        put(lines, &Event::<Value> { n: last, time: text::now(), kind });
    }

    fn keepalive(&mut self, next: u64, lines: &mut Vec<u8>) {
        let kind = EventKind::Keepalive;
        put(lines, &Event::<Value> { n: next, time: text::now(), kind });
    }
}

fn put(lines: &mut Vec<u8>, event: &Event<Value>) {
    lines.append(&mut json_line(event));
    lines.push(b'\n');
}
