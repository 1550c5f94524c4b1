//! Errors as `/v1` tells them.

use axum::Json;
use axum::response::{IntoResponse, Response};
use control::{ControlError, Fault};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoResponses, ToSchema};

/// What every error looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What happened, to what, and what to do.
    pub message: String,
    /// What is wrong with which field, where fields are to blame.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Wrong>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Wrong {
    /// Which field.
    pub field: String,
    /// What is wrong with it.
    pub error: String,
}

/// How a call on a sandbox can be refused that need not run.
#[derive(Debug, IntoResponses)]
#[expect(dead_code, reason = "it stands in the contract only")]
pub(crate) enum SandboxRefusals {
    /// Several begin like this, or the query makes no sense.
    #[response(status = 400)]
    Invalid(Problem),
    /// There is no key, or a wrong one.
    #[response(status = 401)]
    Unknown(Problem),
    /// There is no such sandbox.
    #[response(status = 404)]
    NotFound(Problem),
}

/// How a call on a sandbox can be refused that has to run.
#[derive(Debug, IntoResponses)]
#[expect(dead_code, reason = "it stands in the contract only")]
pub(crate) enum RunningRefusals {
    /// The request makes no sense.
    #[response(status = 400)]
    Invalid(Problem),
    /// There is no key, or a wrong one.
    #[response(status = 401)]
    Unknown(Problem),
    /// There is no such sandbox or process.
    #[response(status = 404)]
    NotFound(Problem),
    /// The sandbox is not running, or the process is not in a state for it.
    #[response(status = 409)]
    Conflict(Problem),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(Problem),
    /// The sandbox ended meanwhile.
    #[response(status = 503)]
    Away(Problem),
}

/// How a call on files can be refused.
#[derive(Debug, IntoResponses)]
#[expect(dead_code, reason = "it stands in the contract only")]
pub(crate) enum FileRefusals {
    /// The request makes no sense, or the path names something of another kind.
    #[response(status = 400)]
    Invalid(Problem),
    /// There is no key, or a wrong one.
    #[response(status = 401)]
    Unknown(Problem),
    /// The sandbox's user may not do this to that file.
    #[response(status = 403)]
    Forbidden(Problem),
    /// There is no such file or sandbox.
    #[response(status = 404)]
    NotFound(Problem),
    /// It is there already, or not empty, or the sandbox is not running.
    #[response(status = 409)]
    Conflict(Problem),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(Problem),
    /// The sandbox ended meanwhile.
    #[response(status = 503)]
    Away(Problem),
    /// The sandbox's disk is full.
    #[response(status = 507)]
    NoSpace(Problem),
}

/// An error on its way to the client.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    problem: Problem,
}

impl ApiError {
    /// An error with these words.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, problem: Problem { message: message.into(), errors: Vec::new() } }
    }

    /// What was sent makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// One field makes no sense.
    pub fn wrong(field: impl Into<String>, error: impl Into<String>) -> Self {
        let (field, error) = (field.into(), error.into());
        let mut whole = Self::invalid(format!("`{field}`: {error}"));
        whole.problem.errors.push(Wrong { field, error });
        whole
    }

    /// Its code.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Its words.
    pub fn message(&self) -> &str {
        &self.problem.message
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.problem)).into_response()
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let status = match error.fault() {
            Fault::NotFound => StatusCode::NOT_FOUND,
            Fault::Invalid => StatusCode::BAD_REQUEST,
            Fault::Forbidden => StatusCode::FORBIDDEN,
            Fault::Conflict => StatusCode::CONFLICT,
            Fault::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Fault::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            Fault::Full | Fault::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Fault::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            // The causes are for whoever runs the daemon: they may name its files.
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        Self::new(status, error.to_string())
    }
}

impl From<guest_proto::GuestError> for ApiError {
    fn from(error: guest_proto::GuestError) -> Self {
        ControlError::from(error).into()
    }
}
