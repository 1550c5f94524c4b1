//! Sandboxes that end and are started again, and what is found when somebody looks.

use axum::Json;
use axum::extract::State;
use control::{Control, Found};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{RunningRefusals, SandboxRefusals};
use crate::extract::{Asking, Which};
use crate::sandboxes::Sandbox;
use crate::{ApiError, Problem};

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

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reconciled {
    /// Sandboxes that run.
    pub running: usize,
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
