//! One id for a request from the door to the guest, and a line about what came of it.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method};
use telemetry::{Metrics, Outcome, TraceId};
use tracing::{Instrument as _, info_span};

use crate::{Gateway, Peer};

/// Where clients find the id of their request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, for what is written down about it.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Follows a request through: its span, its figures, its id in the answer.
pub(crate) async fn follow(
    State(gateway): State<Gateway>,
    mut request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    let trace = TraceId::from_header(header);
    let method = request.method().clone();
    let peer = match request.extensions().get() {
        Some(Peer::Local { .. }) => "local",
        Some(Peer::Remote(_)) => "remote",
        None => "nobody",
    };
    // The path may hold names of files and the query secrets: neither is logged.
    let span = info_span!(
        "request", request = tracing::field::Empty, %method, peer,
        route = tracing::field::Empty, status = tracing::field::Empty,
    );
    let trace = trace.adopt(&span);
    span.record("request", trace.request_id());
    request.extensions_mut().insert(RequestId(trace.request_id()));
    let begun = Instant::now();
    *gateway.shared.active.lock().unwrap_or_else(PoisonError::into_inner) = begun;
    let mut response = match HeaderValue::from_str(&trace.to_traceparent()) {
        Ok(parent) => {
            let answered = guest_proto::client::traced(parent, next.run(request));
            answered.instrument(span.clone()).await
        }
        Err(_) => next.run(request).instrument(span.clone()).await,
    };
    let status = response.status().as_u16();
    let route = response.extensions_mut().remove::<Route>();
    let route = route.as_ref().map(|Route(path)| path.as_str());
    count(&gateway.shared.metrics, &method, route, status, begun.elapsed());
    span.record("status", status);
    span.record("route", route.unwrap_or("other"));
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    span.in_scope(|| {
        if status >= 500 {
            tracing::warn!(milliseconds, "a request was answered");
        } else {
            tracing::debug!(milliseconds, "a request was answered");
        }
    });
    if let Ok(id) = HeaderValue::from_str(&trace.request_id()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Counts a request, and what it was for.
fn count(metrics: &Metrics, method: &Method, route: Option<&str>, status: u16, took: Duration) {
    metrics.request(method.as_str(), route, status, took);
    match (method, route) {
        (&Method::POST, Some("/v1/sandbox" | "/sandboxes" | "/v2/sandboxes")) => {
            let outcome = match status {
                200..=299 => Outcome::Created,
                500.. => Outcome::Failed,
                _ => Outcome::Refused,
            };
            metrics.created(outcome, took);
        }
        (&Method::POST, Some(route)) if EXECUTIONS.contains(&route) && status < 300 => {
            metrics.executed();
        }
        _ => {}
    }
}

/// The routes that run commands.
const EXECUTIONS: [&str; 3] = [
    "/v1/sandbox/{id}/process/execute",
    "/v1/sandbox/{id}/process/stream",
    "/v1/sandbox/{id}/process",
];

/// The pattern of the path that a request took, carried in its answer to whoever counts.
#[derive(Debug, Clone)]
pub(crate) struct Route(String);

/// Notes which route a request took. Runs behind the routing, where that is known.
pub(crate) async fn note_route(
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    if let Some(path) = path {
        response.extensions_mut().insert(Route(path.as_str().to_owned()));
    }
    response
}
