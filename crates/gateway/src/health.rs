//! Whether the daemon lives, whether it can serve, and its figures.

use std::time::Duration;

use api_v1::ApiError;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{StatusCode, header};
use serde_json::json;

use crate::Gateway;

/// How long the parts of the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What anybody may ask: it tells nothing but that the daemon is there.
pub(crate) fn open(gateway: Gateway) -> Router {
    Router::new()
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
        .route("/readyz", get(ready))
        .with_state(gateway)
}

/// What needs a key.
pub(crate) fn guarded(gateway: Gateway) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(gateway)
}

async fn ready(State(gateway): State<Gateway>) -> Response {
    match tokio::time::timeout(PATIENCE, gateway.shared.control.check()).await {
        Ok(Ok(())) => Json(json!({ "status": "ok" })).into_response(),
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "not ready");
            let message = "the engine or the database does not answer: the daemon's log says why";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).into_response()
        }
        Err(_) => {
            let message = "the engine or the database takes too long to answer";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).into_response()
        }
    }
}

async fn metrics(State(gateway): State<Gateway>) -> Response {
    let census: Vec<(&str, u64)> = gateway.shared.control.census().into_iter().collect();
    gateway.shared.metrics.set_sandboxes(&census);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], gateway.shared.metrics.encode()).into_response()
}
