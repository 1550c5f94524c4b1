//! The plain HTTP routes of the guest: everything that is not Connect.
//!
//! | route | what it does |
//! |---|---|
//! | `GET /health` | 204: the guest is there |
//! | `GET /metrics` | what the sandbox uses ([`crate::metrics`]) |
//! | `GET /envs` | the variables that every process gets |
//! | `POST /init` | what the engine tells about the sandbox ([`init`]) |
//! | `GET /files` | a file's content ([`download`]) |
//! | `POST /files` | new content of files ([`upload`]) |
//! | `POST /files/compose` | one file from several ([`compose`]) |
//! | `/code/...` | kernels ([`crate::code::http`]) |
//!
//! Every error is `{"code": <status>, "message": <text>}`. Who may ask is decided by [`access`].

mod access;
mod compose;
mod destination;
mod download;
mod file_body;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod gunzip;
mod gzip_body;
mod init;
mod multipart;
mod query;
mod range;
mod renewed;
mod trust;
mod upload;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use guest_proto::version;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Serialize;

#[cfg(feature = "fuzzing")]
pub use fuzzing::parsers;

use crate::files::{FileError, blocking};
use crate::metrics;
use crate::server::Body;
use crate::state::State;

pub(crate) use access::Token;
pub(crate) use query::parameter;

/// Routes of E2B's agent for what is done here from outside of the sandbox.
const OF_THE_ENGINE: [&str; 6] =
    ["/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];

/// Lets a request pass, or answers it.
pub(crate) async fn admit(
    head: &Parts,
    body: Incoming,
    state: &State,
) -> Result<Incoming, Response<Body>> {
    match access::check(head, state) {
        Ok(()) => Ok(body),
        Err(error) => {
            upload::ignore(head, body).await;
            Err(error.into_response())
        }
    }
}

/// Answers a request that may be made.
pub(crate) async fn respond(head: Parts, body: Incoming, state: Arc<State>) -> Response<Body> {
    if head.uri.path().starts_with("/code/") {
        return crate::code::http::respond(head, body, &state).await;
    }
    let answer = match (head.uri.path(), &head.method) {
        ("/health", &Method::GET | &Method::HEAD) => Ok(empty(StatusCode::NO_CONTENT)),
        ("/metrics", &Method::GET) => measure(&state).await,
        ("/envs", &Method::GET) => json(StatusCode::OK, &state.defaults().environment),
        ("/init", &Method::POST) => init::init(&head, body, &state).await,
        ("/files", &Method::GET | &Method::HEAD) => download::download(&head, &state).await,
        ("/files", &Method::POST) => upload::upload(&head, body, &state).await,
        ("/files/compose", &Method::POST) => compose::compose(&head, body, &state).await,
        ("/files", _) => Err(HttpError::wrong_method("GET, HEAD, POST")),
        ("/health", _) => Err(HttpError::wrong_method("GET, HEAD")),
        ("/metrics" | "/envs", _) => Err(HttpError::wrong_method("GET")),
        ("/init" | "/files/compose", _) => Err(HttpError::wrong_method("POST")),
        (path, _) if OF_THE_ENGINE.contains(&path) => Err(HttpError::new(
            StatusCode::NOT_IMPLEMENTED,
            format!("'{path}' is not for the guest: the engine does it, from outside"),
        )),
        (path, _) => {
            Err(HttpError::new(StatusCode::NOT_FOUND, format!("there is no route '{path}'")))
        }
    };
    answer.unwrap_or_else(HttpError::into_response)
}

async fn measure(state: &State) -> Result<Response<Body>, HttpError> {
    let limits = state.defaults().limits;
    let metrics = blocking::short(move || Ok(metrics::measure(limits))).await?;
    let metrics = if state.protocol > version::FIRST { metrics } else { metrics.without_usage() };
    json(StatusCode::OK, &metrics)
}

/// A request that cannot be answered as asked.
#[derive(Debug)]
pub(crate) struct HttpError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// A header that belongs to it.
    pub(crate) header: Option<(HeaderName, HeaderValue)>,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), header: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        let message = format!("this route takes {allow}");
        let header = Some((ALLOW, HeaderValue::from_static(allow)));
        Self { status: StatusCode::METHOD_NOT_ALLOWED, message, header }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let shape = ErrorShape { code: self.status.as_u16(), message: &self.message };
        let mut response = json(self.status, &shape).unwrap_or_else(|error| empty(error.status));
        response.headers_mut().extend(self.header);
        response
    }
}

impl From<FileError> for HttpError {
    fn from(error: FileError) -> Self {
        Self { header: error.header(), ..Self::new(error.status(), error.message) }
    }
}

#[derive(Serialize)]
struct ErrorShape<'a> {
    code: u16,
    message: &'a str,
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(crate::server::empty());
    *response.status_mut() = status;
    response
}

/// A body that is produced while it is sent.
fn streamed(body: impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

/// Reads a message that has a bound.
pub(crate) async fn whole(body: Incoming, largest: usize) -> Result<Bytes, HttpError> {
    let body = Limited::new(body, largest).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the message is larger than {largest} bytes");
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        } else {
            HttpError::bad_request(format!("the message broke off: {error}"))
        }
    })?;
    Ok(body.to_bytes())
}

fn json(status: StatusCode, value: &impl Serialize) -> Result<Response<Body>, HttpError> {
    let text = serde_json::to_vec(value).map_err(|error| {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no answer: {error}"))
    })?;
    let mut response = Response::new(crate::server::full(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
