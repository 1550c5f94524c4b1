//! Contexts: each is the state of one interpreter.

use guest_proto::code::{Complete, Completions, Context, Items, NewContext};

use super::Passed;
use crate::Problem;
use crate::error::RunningRefusals;

/// Make a context: an interpreter that remembers.
///
/// Its process is started when it is first used. Packages named as `dependencies` are installed
/// before; when that fails, the context is there all the same and the answer says what happened.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/contexts", tag = "code", operation_id = "create_context",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = NewContext,
    responses(
        (status = 201, description = "it is there", body = Context),
        (status = 429, description = "there are as many as a sandbox may have", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn create(answer: Passed) -> Passed {
    answer
}

/// List the contexts of a sandbox.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/code/contexts", tag = "code", operation_id = "list_contexts",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    responses(
        (status = 200, description = "all of them, oldest first", body = Items<Context>),
        RunningRefusals,
    ),
)]
pub(crate) async fn list(answer: Passed) -> Passed {
    answer
}

/// See one context.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/code/contexts/{context}", tag = "code",
    operation_id = "get_context",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("context" = String, Path, description = "a context's id"),
    ),
    responses(
        (status = 200, description = "the context", body = Context),
        RunningRefusals,
    ),
)]
pub(crate) async fn get(answer: Passed) -> Passed {
    answer
}

/// End a context, with all that it runs.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}/code/contexts/{context}", tag = "code",
    operation_id = "delete_context",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("context" = String, Path, description = "a context's id"),
    ),
    responses(
        (status = 204, description = "it is gone"),
        RunningRefusals,
    ),
)]
pub(crate) async fn delete(answer: Passed) -> Passed {
    answer
}

/// Clear what a context remembers: its interpreter is started anew.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/contexts/{context}/restart", tag = "code",
    operation_id = "restart_context",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("context" = String, Path, description = "a context's id"),
    ),
    responses(
        (status = 200, description = "it is as new", body = Context),
        RunningRefusals,
    ),
)]
pub(crate) async fn restart(answer: Passed) -> Passed {
    answer
}

/// Interrupt what a context runs, and keep what it remembers.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/contexts/{context}/interrupt", tag = "code",
    operation_id = "interrupt_context",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("context" = String, Path, description = "a context's id"),
    ),
    responses(
        (status = 200, description = "it was told", body = Context),
        RunningRefusals,
    ),
)]
pub(crate) async fn interrupt(answer: Passed) -> Passed {
    answer
}

/// See what could stand at a place of some code.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/contexts/{context}/complete", tag = "code",
    operation_id = "complete_code",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        ("context" = String, Path, description = "a context's id"),
    ),
    request_body = Complete,
    responses(
        (status = 200, description = "what could", body = Completions),
        RunningRefusals,
    ),
)]
pub(crate) async fn complete(answer: Passed) -> Passed {
    answer
}
