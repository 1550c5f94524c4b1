//! Sandboxes that end and are started again, and what is found when somebody looks.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use control::{Control, Found};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::{RunningRefusals, SandboxRefusals};
use crate::extract::{Asked, Asking, Which};
use crate::sandboxes::Sandbox;
use crate::{ApiError, Problem};

/// More than this is never.
const LONGEST_GRACE: Duration = Duration::from_hours(24 * 366);

/// Run a sandbox again that stopped or broke, with the files that it has.
///
/// Nothing that ran in it before is started. Its time begins anew. One that runs is left alone.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/start", tag = "sandboxes", operation_id = "start_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "it can be used", body = Sandbox),
        (status = 501, description = "this host cannot run it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn start(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(Sandbox::from(control.start(&caller, &which).await?.as_ref())))
}

/// End a sandbox and keep its files. One that ended already is left alone.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/stop", tag = "sandboxes", operation_id = "stop_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "nothing of it runs", body = Sandbox),
        RunningRefusals,
    ),
)]
pub(crate) async fn stop(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(Sandbox::from(control.stop(&caller, &which).await?.as_ref())))
}

/// When a paused sandbox is put on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Pause {
    /// After so many seconds in memory; 0 is before the answer. What the operator chose, or 60,
    /// when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(maximum = 31_622_400)]
    pub grace: Option<u64>,
}

/// Let a sandbox stand still. It goes on where it was when somebody needs it.
///
/// Its processes are frozen at once, and after a grace they are put on the disk, which frees their
/// memory and outlives the host. Where that cannot be done they stay frozen. `reason` says which of
/// the two it is, and why. Connections to it are closed, and its time begins anew when it goes on.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/pause", tag = "sandboxes", operation_id = "pause_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either"), Pause),
    responses(
        (status = 201, description = "it stands still", body = Sandbox),
        (status = 501, description = "this host cannot pause it", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn pause(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Asked(Pause { grace }): Asked<Pause>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let grace = grace.map(Duration::from_secs);
    if grace.is_some_and(|grace| grace > LONGEST_GRACE) {
        let error = format!("it has to be at most {} seconds", LONGEST_GRACE.as_secs());
        return Err(ApiError::wrong("grace", error));
    }
    let lease = control.pause(&caller, &which, grace).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::from(lease.as_ref()))))
}

/// Let a paused sandbox go on. One that runs is left alone.
///
/// Any request that needs a paused sandbox does so too, and is held until it runs.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/resume", tag = "sandboxes", operation_id = "resume_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "it can be used", body = Sandbox),
        (status = 501, description = "this host cannot resume it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn resume(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(Sandbox::from(control.resume(&caller, &which).await?.as_ref())))
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconciled {
    /// Sandboxes that run.
    pub running: usize,
    /// Sandboxes that are paused.
    #[serde(default)]
    pub paused: usize,
    /// Sandboxes that ended; their files are there.
    pub ended: usize,
    /// Sandboxes that the daemon did not know, and knows now.
    pub adopted: usize,
    /// Sandboxes whose record cannot be read.
    pub damaged: Vec<String>,
    /// Sandboxes of which nothing was found, though nobody removed them.
    pub missing: Vec<String>,
}

impl From<Found> for Reconciled {
    fn from(found: Found) -> Self {
        let ids = |ids: Vec<domain::SandboxId>| ids.iter().map(ToString::to_string).collect();
        Self {
            running: found.running,
            paused: found.paused,
            ended: found.ended,
            adopted: found.adopted,
            damaged: ids(found.damaged),
            missing: ids(found.missing),
        }
    }
}

/// Compare what the daemon knows with what is there, and go by the latter.
///
/// The daemon does so at its start and every 30 seconds. Only for whoever runs the machine.
#[utoipa::path(
    post, path = "/v1/reconcile", tag = "sandboxes", operation_id = "reconcile",
    responses(
        (status = 200, description = "what is there", body = Reconciled),
        SandboxRefusals,
    ),
)]
pub(crate) async fn reconcile(
    State(control): State<Control>,
    Asking(caller): Asking,
) -> Result<Json<Reconciled>, ApiError> {
    Ok(Json(control.reconcile_for(&caller).await?.into()))
}
