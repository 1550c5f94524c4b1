//! Bodies that go on: a JSON document that holds something open, and events as they happen.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use bytes::Bytes;
use domain::Cause;
use futures::stream::{self, StreamExt as _};
use guest_proto::GuestError;
use guest_proto::client::{Ended, Event, Running};
use http::header;
use serde_json::{Value, json};

use crate::processes::Reason;

/// How often a silent stream shows that it lives. Clients give up after five minutes.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// A body that begins with a JSON document and ends when the client goes away, or never: what
/// follows is white space, which JSON allows. `held` is dropped with it.
pub(crate) fn open_ended<T: Send + 'static>(document: Vec<u8>, held: T) -> Body {
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(document))]);
    let rest = stream::unfold(held, |held| async move {
        tokio::time::sleep(SIGN_OF_LIFE).await;
        Some((Ok(Bytes::from_static(b"\n")), held))
    });
    Body::from_stream(first.chain(rest))
}

/// What a process does, as server-sent events. `begun` is what its reader took already.
pub(crate) fn process_events(running: Running, begun: Option<Event>) -> Response {
    let state = Following { running, begun, over: false };
    let events = stream::unfold(state, |mut following| async move {
        let text = following.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(text)), following))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

struct Following {
    running: Running,
    begun: Option<Event>,
    over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        if let Some(event) = self.begun.take() {
            return Some(self.tell(&event));
        }
        match tokio::time::timeout(SIGN_OF_LIFE, self.running.next()).await {
            Err(_) => Some(": still there\n\n".to_owned()),
            Ok(Ok(Some(event))) => Some(self.tell(&event)),
            Ok(Ok(None)) => None,
            Ok(Err(error)) => {
                self.over = true;
                Some(event_text(&failure(&error)))
            }
        }
    }

    fn tell(&mut self, event: &Event) -> String {
        let offset = self.running.offset();
        let value = match event {
            Event::Started { pid } => json!({ "type": "started", "pid": pid }),
            Event::Stdout(bytes) => output("stdout", bytes),
            Event::Stderr(bytes) => output("stderr", bytes),
            Event::Terminal(bytes) => output("terminal", bytes),
            Event::Dropped { from, to } => json!({ "type": "dropped", "from": from, "to": to }),
            Event::Exited(ended) => ending("exited", ended),
            Event::Ended(ended) => {
                self.over = true;
                ending("exit", ended)
            }
        };
        event_text(&with_offset(value, offset))
    }
}

/// Where the next event begins, so that a reader that lost its stream knows how to go on.
fn with_offset(mut value: Value, offset: Option<u64>) -> Value {
    if let (Some(offset), Some(object)) = (offset, value.as_object_mut()) {
        object.insert("next_offset".to_owned(), offset.into());
    }
    value
}

fn output(kind: &str, bytes: &Bytes) -> Value {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return json!({ "type": kind, "data": text });
    }
    // Said as what it is, rather than with bytes replaced.
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    json!({ "type": kind, "base64": text })
}

fn ending(kind: &str, ended: &Ended) -> Value {
    let value = json!({
        "type": kind,
        "code": exit_code(ended),
        "signal": ended.signal,
        "status": ended.status,
    });
    with_reason(value, control::cause_of(ended))
}

/// Why it failed, where that is known.
fn with_reason(mut value: Value, cause: Option<Cause>) -> Value {
    let reason = cause.map(Reason::from).and_then(|reason| serde_json::to_value(reason).ok());
    if let (Some(reason), Some(object)) = (reason, value.as_object_mut()) {
        object.insert("reason".to_owned(), reason);
    }
    value
}

fn failure(error: &GuestError) -> Value {
    let timed_out = matches!(error, GuestError::DeadlineExceeded { .. });
    let kind = if timed_out { "timeout" } else { "error" };
    let value = json!({ "type": kind, "message": error.to_string() });
    with_reason(value, timed_out.then_some(Cause::Timeout))
}

/// The code as shells tell it: 128 and the signal for one that a signal ended.
pub(crate) fn exit_code(ended: &Ended) -> i32 {
    match (ended.signal, ended.exec_errno) {
        (Some(signal), _) => 128 + signal,
        // The program is not there, or cannot be executed.
        (None, Some(2)) => 127,
        (None, Some(_)) => 126,
        (None, None) => ended.code,
    }
}

/// One event of a stream. JSON has no line ends of its own, so one line is enough.
fn event_text(value: &Value) -> String {
    format!("data: {value}\n\n")
}
