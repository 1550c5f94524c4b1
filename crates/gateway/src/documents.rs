//! The contract, and a page to read it on that loads nothing from elsewhere.

use std::sync::LazyLock;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header;

/// The contract as text, made once.
static CONTRACT: LazyLock<String> = LazyLock::new(|| {
    // Every part of it was made by us and can be written.
    api_v1::document().to_pretty_json().unwrap_or_default()
});

/// Nothing but what this page brings along.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(crate) fn router() -> Router {
    Router::new()
        .route("/openapi.json", get(|| async { file("application/json", CONTRACT.as_str()) }))
        .route("/docs", get(|| async { file("text/html; charset=utf-8", PAGE) }))
        .route("/docs/page.js", get(|| async { file("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/docs/page.css", get(|| async { file("text/css; charset=utf-8", STYLE) }))
}

const PAGE: &str = include_str!("documents/page.html");
const SCRIPT: &str = include_str!("documents/page.js");
const STYLE: &str = include_str!("documents/page.css");

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}
