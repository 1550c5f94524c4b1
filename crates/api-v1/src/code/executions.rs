//! Executions: code that runs, whether or not somebody reads what it says.

use guest_proto::code::{Answer, Begun, Event, Execute, Execution, Items, Summary};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Passed;
use crate::Problem;
use crate::error::RunningRefusals;
use crate::processes::Told;

/// Run code to its end.
///
/// Without a context, a new one is made and named in the answer. An error of the code is part of
/// a good answer.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/execute", tag = "code", operation_id = "execute_code",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Execute,
    responses(
        (status = 200, description = "what came of it", body = Execution),
        (status = 429, description = "too much waits already", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn execute(answer: Passed) -> Passed {
    answer
}

/// Run code in a process of its own, which remembers nothing, and follow it.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/execute/async", tag = "code",
    operation_id = "stream_code",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Execute,
    responses(
        (status = 200, description = "what it says", body = Told, content_type = "text/event-stream"),
        RunningRefusals,
    ),
)]
pub(crate) async fn execute_stream(answer: Passed) -> Passed {
    answer
}

/// Begin an execution, and follow it: one JSON object a line.
///
/// It belongs to the sandbox: a reader that goes away changes nothing, and can come back for the
/// events from any number on. With `detach` the answer is its id alone.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/executions", tag = "code",
    operation_id = "begin_execution",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Execute,
    responses(
        (status = 200, description = "its events", body = Event, content_type = "application/x-ndjson"),
        (status = 201, description = "it was begun (with `detach`)", body = Begun),
        (status = 429, description = "too much waits already", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn begin(answer: Passed) -> Passed {
    answer
}

/// List the executions of a sandbox that are still known.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/code/executions", tag = "code",
    operation_id = "list_executions",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    responses(
        (status = 200, description = "all of them, oldest first", body = Items<Summary>),
        RunningRefusals,
    ),
)]
pub(crate) async fn list(answer: Passed) -> Passed {
    answer
}

/// Which events of an execution.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it stands in the contract only: the guest reads the query")]
pub(crate) struct From {
    /// The number of the first event that is wanted.
    from: Option<u64>,
    /// Whether to go on until the execution ends.
    follow: Option<bool>,
}

/// Read the events of an execution from a number on: one JSON object a line.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/code/executions/{execution}", tag = "code",
    operation_id = "follow_execution",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("execution" = String, Path, description = "an execution's id"),
        From,
    ),
    responses(
        (status = 200, description = "its events", body = Event, content_type = "application/x-ndjson"),
        RunningRefusals,
    ),
)]
pub(crate) async fn follow(answer: Passed) -> Passed {
    answer
}

/// Cancel an execution: it is interrupted, and its interpreter ended if that does not help.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}/code/executions/{execution}", tag = "code",
    operation_id = "cancel_execution",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("execution" = String, Path, description = "an execution's id"),
    ),
    responses(
        (status = 204, description = "it was told"),
        RunningRefusals,
    ),
)]
pub(crate) async fn cancel(answer: Passed) -> Passed {
    answer
}

/// Answer what code asked with `input()`.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/executions/{execution}/input", tag = "code",
    operation_id = "answer_execution",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("execution" = String, Path, description = "an execution's id"),
    ),
    request_body = Answer,
    responses(
        (status = 204, description = "it has the answer"),
        RunningRefusals,
    ),
)]
pub(crate) async fn answer(answer: Passed) -> Passed {
    answer
}
