//! Answers of the door itself. All of them are JSON, like those of everything behind it.

use std::any::Any;

use api_v1::ApiError;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri, header};

/// The most that the framework says about an error.
const LONGEST_WORDS: usize = 4096;

/// The most of a client's own words that is repeated to it.
const REPEATED: usize = 80;

pub(crate) async fn no_such_path(method: Method, uri: Uri) -> Response {
    let path = harmless(uri.path());
    let message = format!("there is no `{method} {path}`: `/docs` lists what there is");
    ApiError::new(StatusCode::NOT_FOUND, message).into_response()
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let path = harmless(uri.path());
    let message = format!("`{path}` has no `{method}`: `/docs` lists what it has");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}

#[expect(clippy::needless_pass_by_value, reason = "whoever calls it gives it away")]
pub(crate) fn of_panic(cause: Box<dyn Any + Send + 'static>) -> Response {
    let words = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied());
    tracing::error!(words, "a request made the daemon stumble");
    let message = "the daemon stumbled over this request: its log says where, please report it";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
}

/// Errors of the framework are plain text: puts them into the shape that all others have.
pub(crate) async fn in_our_shape(request: Request, next: Next) -> Response {
    let is_e2b = api_e2b::is_its_path(request.uri().path());
    let response = next.run(request).await;
    let status = response.status();
    let is_text = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text {
        return response;
    }
    let bytes = axum::body::to_bytes(response.into_body(), LONGEST_WORDS).await;
    let words = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    let message = if words.is_empty() { status.to_string() } else { words };
    if is_e2b {
        return api_e2b::error(status, &message);
    }
    ApiError::new(status, message).into_response()
}

pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(REPEATED).collect()
}
