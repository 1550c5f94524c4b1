//! What a sandbox may reach: seen, replaced while it runs, what it tried to reach, and what it
//! would need.

mod log;
mod policy;

use axum::Json;
use axum::extract::State;
use control::Control;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{RunningRefusals, SandboxRefusals};
use crate::extract::{Asking, Body, Which};
use crate::{ApiError, Problem};

pub(crate) use log::{__path_follow, __path_list, follow, list};
pub use log::{Attempt, AttemptList, Attempts, Following};
pub use policy::{Network, NetworkMode, Rewrite};

/// See what a sandbox may reach.
///
/// Values that are set in requests are never shown: `(secret)` stands in their place.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/network", tag = "network", operation_id = "get_network",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "what it may reach", body = Network),
        SandboxRefusals,
    ),
)]
pub(crate) async fn get(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Network>, ApiError> {
    Ok(Json(Network::from(&control.network(&caller, &which)?)))
}

/// Replace what a sandbox may reach, also while it runs.
///
/// It holds from the answer on: connections that it does not allow are cut. A value `(secret)`, as
/// an answer has it, keeps what the same header of the same domain had before.
#[utoipa::path(
    put, path = "/v1/sandbox/{id}/network", tag = "network", operation_id = "set_network",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = Network,
    responses(
        (status = 200, description = "what it may reach now", body = Network),
        (status = 501, description = "this host has no network for sandboxes", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn replace(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(network): Body<Network>,
) -> Result<Json<Network>, ApiError> {
    let lease = control.change_network(&caller, &which, network.into_wish("")?).await?;
    Ok(Json(Network::from(&lease.spec.network)))
}

/// A policy that was learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LearnedNetwork {
    /// What a policy has no room for: this would not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What would let pass what passed so far.
    #[serde(flatten)]
    pub policy: Network,
}

/// See the policy that a sandbox would need for what it reached so far.
///
/// Run it with `learn`, have it do its work, and make the next one with what this answers.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/network/learned", tag = "network",
    operation_id = "get_learned_network",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "a policy", body = LearnedNetwork),
        (status = 501, description = "this host has no network for sandboxes", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn learned(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<LearnedNetwork>, ApiError> {
    let (policy, left_out) = control.learned(&caller, &which).await?;
    Ok(Json(LearnedNetwork { left_out, policy: Network::from(&policy) }))
}
