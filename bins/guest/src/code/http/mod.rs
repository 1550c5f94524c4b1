//! Kernels over HTTP: one implementation, two dialects.
//!
//! [`own`] answers under `/code`, [`e2b`] in the words of E2B's clients under `/code/e2b`. The
//! routes are listed in `guest_proto::code`.

mod collect;
mod e2b;
mod own;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use guest_proto::code::{Execute, Language, Limits, USUAL_TIMEOUT_MS};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{Context, Job};
use super::execution::{Asked, Execution};
use super::room::{Held, holding};
use super::text::json_line;
use super::{Code, ContextError, Wanted};
use crate::http::{HttpError, whole};
use crate::server::Body;
use crate::state::State;

/// As large as a request may be.
const LARGEST: usize = 16 << 20;

/// Answers a request under `/code`.
pub(crate) async fn respond(head: Parts, body: Incoming, state: &Arc<State>) -> Response<Body> {
    let path = head.uri.path().to_owned();
    let rest = path.strip_prefix("/code").unwrap_or_default();
    let segments: Vec<&str> = rest.trim_start_matches('/').split('/').collect();
    match segments[..] {
        ["e2b", ref rest @ ..] => e2b::respond(&head, rest, body, state).await,
        ref rest => {
            let answer = own::respond(&head, rest, body, state).await;
            answer.unwrap_or_else(HttpError::into_response)
        }
    }
}

/// A message that has to be JSON. Nothing at all counts as an empty object.
async fn message<T: DeserializeOwned>(body: Incoming) -> Result<T, HttpError> {
    let bytes = whole(body, LARGEST).await?;
    let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| HttpError::bad_request(format!("the request makes no sense: {error}")))
}

/// An answer in JSON, which is ASCII.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    json_holding(status, value, Vec::new())
}

/// The same of what takes room until it is sent.
fn json_holding(status: StatusCode, value: &impl Serialize, held: Vec<Held>) -> Response<Body> {
    let mut response = Response::new(crate::server::full(holding(json_line(value), held)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The language that is meant; Python where none is named.
fn language(name: Option<&str>) -> Result<Language, HttpError> {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => name.parse().map_err(|unknown| HttpError::bad_request(format!("{unknown}"))),
        None => Ok(Language::Python),
    }
}

/// Finds a context, or says that there is none.
fn find(state: &Arc<State>, id: &str) -> Result<Arc<Context>, HttpError> {
    Code::find(state, id)?.ok_or_else(|| {
        let id: String = id.chars().take(60).collect();
        HttpError::new(StatusCode::NOT_FOUND, format!("there is no context '{id}'"))
    })
}

/// Puts code into the queue of a context.
fn enqueue(
    state: &Arc<State>,
    context: &Context,
    request: Execute,
    timeout: Option<Duration>,
    limits: Limits,
) -> Result<Arc<Execution>, HttpError> {
    let named = request.language.as_deref().filter(|name| !name.is_empty());
    let language = match named {
        Some(name) => language(Some(name))?,
        None => context.language,
    };
    if language.kernel() != context.language {
        let problem = format!("the context '{}' runs {}", context.id, context.language);
        return Err(HttpError::bad_request(problem));
    }
    let environment = request.env_vars.unwrap_or_default();
    super::check_variables(&environment)?;
    let (code, answered) = (request.code, request.allow_stdin);
    let asked = Asked { code, language, environment, timeout, limits, answered };
    let full = || {
        let problem = format!("too much waits in the context '{}' already", context.id);
        HttpError::new(StatusCode::TOO_MANY_REQUESTS, problem)
    };
    let execution = state.code.executions.add(&context.id, asked).ok_or_else(full)?;
    if context.ask(Job::Execute(Arc::clone(&execution))).is_err() {
        execution.cancel("too much waits in this context already");
        return Err(full());
    }
    Ok(execution)
}

/// A context for code that names none.
fn passing(state: &Arc<State>, request: &Execute) -> Result<Arc<Context>, HttpError> {
    let language = language(request.language.as_deref())?;
    let environment = std::collections::BTreeMap::new();
    Ok(Code::create(state, Wanted { language, cwd: None, environment, passing: true })?)
}

/// As long as code may take; zero is for ever.
fn timeout(asked: Option<u64>) -> Option<Duration> {
    let milliseconds = asked.unwrap_or(USUAL_TIMEOUT_MS);
    (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
}

impl From<ContextError> for HttpError {
    fn from(error: ContextError) -> Self {
        let status = match error {
            ContextError::Invalid(_) => StatusCode::BAD_REQUEST,
            ContextError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        };
        Self::new(status, error.to_string())
    }
}
