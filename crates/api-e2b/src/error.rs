//! Errors as E2B's clients read them.

use axum::Json;
use axum::response::{IntoResponse, Response};
use control::{ControlError, Fault};
use http::StatusCode;
use serde_json::json;

/// An error in E2B's shape.
pub fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "code": status.as_u16(), "message": message }))).into_response()
}

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn code(&self) -> u16 {
        self.status.as_u16()
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// In the words that E2B's clients and tests know.
    pub(crate) fn no_sandbox(id: &str) -> Self {
        let id: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = format!("Sandbox \"{id}\" doesn't exist or you don't have access to it");
        Self::new(StatusCode::NOT_FOUND, message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        error(self.status, &self.message)
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        let status = match error.fault() {
            Fault::NotFound => StatusCode::NOT_FOUND,
            Fault::Invalid => StatusCode::BAD_REQUEST,
            Fault::Forbidden => StatusCode::FORBIDDEN,
            Fault::Conflict => StatusCode::CONFLICT,
            Fault::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Fault::Full | Fault::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Fault::NoSpace | Fault::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            // The causes are for whoever runs the daemon: they may name its files.
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        Self::new(status, error.to_string())
    }
}
