//! Bodies of E2B's calls, held in the same room as those of `/v1`.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;

/// The most that a call of E2B's may have.
const LARGEST: usize = 2 << 20;

/// Reads a body before it is passed on, so that it is bounded in time, and all of them together in
/// memory.
pub(crate) async fn hold(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match api_v1::whole_body(&parts.headers, body, LARGEST).await {
        // The room is theirs until they are answered.
        Ok(held) => next.run(Request::from_parts(parts, Body::from(held.bytes()))).await,
        Err(error) => api_e2b::error(error.status(), error.message()),
    }
}
