//! The same in the words of E2B's clients, under `/code/e2b`.
//!
//! | route | what it does |
//! |---|---|
//! | `GET /health` | `OK` |
//! | `POST /execute` | runs code and tells its events, one JSON object a line |
//! | `GET, POST /contexts` | lists contexts; makes one |
//! | `POST /contexts/{id}/restart`, `DELETE /contexts/{id}` | |
//!
//! Errors are plain text. Code runs as long as its client listens, and nothing is cut unless the
//! client asks for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_proto::code::{Event, EventKind, Execute, Failure, Limits, NewContext, Status};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;

use super::super::bundle::raw;
use super::super::log::Value;
use super::super::text::{json_line, put_string};
use super::super::{Code, Wanted, folder};
use super::collect::forms;
use super::stream::{Dialect, Leash, Lines};
use crate::http::{HttpError, empty};
use crate::server::Body;
use crate::state::State;

/// Answers one request.
pub(super) async fn respond(
    head: &Parts,
    path: &[&str],
    body: Incoming,
    state: &Arc<State>,
) -> Response<Body> {
    let answer = match (path, &head.method) {
        (["health"], &Method::GET | &Method::HEAD) => Ok(text(StatusCode::OK, "OK")),
        (["execute"], &Method::POST) => execute(body, state).await,
        (["contexts"], &Method::GET) => list(state),
        (["contexts"], &Method::POST) => create(body, state).await,
        (["contexts", id, "restart"], &Method::POST) => restart(state, id).await,
        (["contexts", id], &Method::DELETE) => remove(state, id),
        (["health"], _) => Err(HttpError::wrong_method("GET")),
        (["execute"] | ["contexts", _, "restart"], _) => Err(HttpError::wrong_method("POST")),
        (["contexts"], _) => Err(HttpError::wrong_method("GET, POST")),
        (["contexts", _], _) => Err(HttpError::wrong_method("DELETE")),
        _ => Err(HttpError::new(StatusCode::NOT_FOUND, "there is no such route")),
    };
    answer.unwrap_or_else(|error| {
        let mut response = text(error.status, &error.message);
        response.headers_mut().extend(error.header);
        response
    })
}

#[derive(Serialize)]
struct Context {
    id: String,
    language: &'static str,
    cwd: String,
}

fn list(state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let home = folder(state, None)?;
    // Two are there from the start, although nobody has used them.
    let unused = state.code.unused().into_iter().map(|(id, language)| Context {
        id,
        language: language.name(),
        cwd: home.clone(),
    });
    let made = state.code.all().into_iter().map(|context| Context {
        id: context.id.clone(),
        language: context.language.name(),
        cwd: context.cwd.clone(),
    });
    let all: Vec<Context> = unused.chain(made).collect();
    Ok(super::json(StatusCode::OK, &all))
}

async fn create(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let request: NewContext = super::message(body).await?;
    let language = super::language(request.language.as_deref())?;
    let environment = BTreeMap::new();
    let wanted = Wanted { language, cwd: request.cwd, environment, passing: false };
    let context = Code::create(state, wanted)?;
    let (id, cwd) = (context.id.clone(), context.cwd.clone());
    let answer = Context { id, language: context.language.name(), cwd };
    Ok(super::json(StatusCode::OK, &answer))
}

async fn restart(state: &Arc<State>, id: &str) -> Result<Response<Body>, HttpError> {
    super::find(state, id)?.restart().await;
    Ok(empty(StatusCode::OK))
}

fn remove(state: &Arc<State>, id: &str) -> Result<Response<Body>, HttpError> {
    super::find(state, id)?;
    state.code.delete(id);
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn execute(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let mut request: Execute = super::message(body).await?;
    request.allow_stdin = false;
    let language = request.language.clone().filter(|name| !name.is_empty());
    let context = match (request.context_id.as_deref().filter(|id| !id.is_empty()), language) {
        (Some(_), Some(_)) => {
            let problem = "Only one of context_id or language can be provided";
            return Err(HttpError::bad_request(problem));
        }
        (Some(id), None) => super::find(state, id)?,
        (None, language) => Code::usual(state, super::language(language.as_deref())?)?,
    };
    let timeout = request.timeout_ms.filter(|limit| *limit > 0).map(Duration::from_millis);
    let asked = request.limits.unwrap_or(Limits::NONE);
    let none = Limits::NONE;
    let limits = Limits {
        stdout: asked.stdout.or(none.stdout),
        stderr: asked.stderr.or(none.stderr),
        result: asked.result.or(none.result),
        traceback: asked.traceback.or(none.traceback),
    };
    let execution = super::enqueue(state, &context, request, timeout, limits)?;
    let reader = execution.log.read(0);
    let leash = Some(Leash(Some(execution)));
    let lines = Lines { reader, dialect: E2b, follow: true, leash };
    Ok(lines.into_response("application/json"))
}

/// E2B's events.
struct E2b;

/// One of them.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    NumberOfExecutions { execution_count: u64 },
    Result(Shown),
    Error(&'a Failure),
    Keepalive,
    UnexpectedEndOfExecution,
    EndOfExecution,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    forms: BTreeMap<String, Value>,
    is_main_result: bool,
}

impl Dialect for E2b {
    const SILENCE: Duration = Duration::from_secs(5);

    fn event(&mut self, event: &Event<Value>, lines: &mut Vec<u8>) {
        let timestamp = event.time.as_str();
        let line = match &event.kind {
            EventKind::Started { execution_count } => {
                Line::NumberOfExecutions { execution_count: *execution_count }
            }
            EventKind::Stdout { text } => return output(lines, "stdout", text, timestamp),
            EventKind::Stderr { text } => return output(lines, "stderr", text, timestamp),
            EventKind::Result { bundle, main, .. } => Line::Result(Shown::new(bundle, *main)),
            EventKind::Display { bundle, .. } => Line::Result(Shown::new(bundle, false)),
            EventKind::Error(failure) => Line::Error(failure),
            EventKind::End { status, .. } => {
                if matches!(status, Status::Died | Status::Killed) {
                    put(lines, &Line::UnexpectedEndOfExecution);
                }
                Line::EndOfExecution
            }
            _ => return,
        };
        put(lines, &line);
    }

    fn missed(&mut self, count: u64, _last: u64, lines: &mut Vec<u8>) {
        let text = format!("[{count} events were missed: they were not read in time]\n");
        let timestamp = &super::super::text::now();
        output(lines, "stderr", &text, timestamp);
    }

    fn keepalive(&mut self, _next: u64, lines: &mut Vec<u8>) {
        put(lines, &Line::Keepalive);
    }
}

impl Shown {
    fn new(bundle: &BTreeMap<String, Value>, is_main_result: bool) -> Self {
        let mut forms = forms(bundle);
        if let Some(text) = forms.get_mut("text")
            && let Some(bare) = without_quotes(text)
        {
            *text = bare;
        }
        Self { forms, is_main_result }
    }
}

/// A text that is a string as its language shows it, without the quotes around it.
fn without_quotes(text: &Value) -> Option<Value> {
    let text: String = serde_json::from_str(text.get()).ok()?;
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let bare = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(raw(bare))
}

/// Output is written by hand, since there may be much of it.
fn output(lines: &mut Vec<u8>, name: &str, text: &str, timestamp: &str) {
    lines.extend_from_slice(format!(r#"{{"type":"{name}","text":"#).as_bytes());
    put_string(text, lines);
    lines.extend_from_slice(format!(",\"timestamp\":\"{timestamp}\"}}\n").as_bytes());
}

fn put(lines: &mut Vec<u8>, line: &Line<'_>) {
    lines.append(&mut json_line(line));
    lines.push(b'\n');
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let body = Bytes::copy_from_slice(message.as_bytes());
    let mut response = Response::new(crate::server::full(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
