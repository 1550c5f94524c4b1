//! Sandboxes: made, seen, listed, given more time, deleted.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use control::{Control, LimitChange, Renewal, Wish};
use domain::Lease;
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{RunningRefusals, SandboxRefusals};
use crate::extract::{Asked, Asking, Body, Which};
use crate::{ApiError, Problem, stream};

mod create;
mod list;
mod view;

pub(crate) use create::seconds;
pub use create::{Create, Lived, OnExit};
pub use list::{Listed, Query};
pub use view::{Item, Sandbox};

/// Make a sandbox.
///
/// The answer comes when it can be used. With `lifetime: "connection"` the answer's body stays
/// open after the JSON, and the sandbox is deleted when the connection ends.
///
/// With the header `Idempotency-Key` the same request can be sent again when its answer was lost:
/// there is one sandbox for one key, as long as it is not deleted.
#[utoipa::path(
    post, path = "/v1/sandbox", tag = "sandboxes", operation_id = "create_sandbox",
    params(("Idempotency-Key" = Option<String>, Header, description = "names this request, so that \
            it can be repeated; 1 to 255 characters, such as a UUID", max_length = 255)),
    request_body = Create,
    responses(
        (status = 201, description = "it can be used", body = Sandbox),
        (status = 400, description = "the wish makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 404, description = "there is no such template", body = Problem),
        (status = 409, description = "the name or the key is taken, or there are too many",
            body = Problem),
        (status = 413, description = "the body is too large", body = Problem),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
    ),
)]
pub(crate) async fn create(
    State(control): State<Control>,
    Asking(caller): Asking,
    headers: HeaderMap,
    Body(wish): Body<Create>,
) -> Result<Response, ApiError> {
    let held = wish.lifetime == Lived::Connection;
    let asked = asked(&headers, &wish)?;
    let wish = Wish { asked, ..wish.into_wish()? };
    if held {
        let held = control.create_held(&caller, wish).await?;
        let text = serde_json::to_vec(&Sandbox::from(held.lease().as_ref()))
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let body = stream::open_ended(text, held);
        let json = [(header::CONTENT_TYPE, "application/json")];
        return Ok((StatusCode::CREATED, json, body).into_response());
    }
    let lease = control.create(&caller, wish).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::from(lease.as_ref()))).into_response())
}

/// What tells this request from others, if its sender may send it again.
fn asked(headers: &HeaderMap, wish: &Create) -> Result<Option<domain::Asked>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().unwrap_or_default();
    if wish.lifetime == Lived::Connection {
        let error = "a sandbox that lives with a connection cannot be asked for again";
        return Err(ApiError::wrong("Idempotency-Key", error));
    }
    // Read and written again: the order and the spelling of the fields do not matter.
    let text = serde_json::to_vec(wish).map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(Some(control::asked(key, &text)))
}

/// List sandboxes, page by page.
#[utoipa::path(
    get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "list_sandboxes",
    params(Query),
    responses(
        (status = 200, description = "one page of them", body = Listed),
        (status = 400, description = "the query makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Asked(pairs): Asked<Vec<(String, String)>>,
) -> Result<Json<Listed>, ApiError> {
    let page = control.list(&caller, list::query(&pairs)?).await?;
    let items = page.items.iter().map(Item::from).collect();
    Ok(Json(Listed { items, total_items: page.total }))
}

/// See one sandbox.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}", tag = "sandboxes", operation_id = "get_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "as it is now", body = Sandbox),
        SandboxRefusals,
    ),
)]
pub(crate) async fn get(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<Sandbox>, ApiError> {
    Ok(Json(Sandbox::from(control.get(&caller, &which)?.as_ref())))
}

/// End a sandbox and remove all of it.
#[utoipa::path(
    delete, path = "/v1/sandbox/{id}", tag = "sandboxes", operation_id = "delete_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 204, description = "nothing of it is left"),
        SandboxRefusals,
    ),
)]
pub(crate) async fn delete(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<StatusCode, ApiError> {
    control.delete(&caller, &which).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How long a sandbox has from now on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct Timeout {
    /// Seconds from now.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub timeout: u64,
}

/// Set when a sandbox's time is over.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/timeout", tag = "sandboxes", operation_id = "set_timeout",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = Timeout,
    responses(
        (status = 200, description = "as it is now", body = Sandbox),
        RunningRefusals,
    ),
)]
pub(crate) async fn set_timeout(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(Timeout { timeout }): Body<Timeout>,
) -> Result<Json<Sandbox>, ApiError> {
    let renewal = Renewal::Set(seconds("timeout", timeout)?);
    let lease = control.renew(&caller, &which, renewal).await?;
    Ok(Json(Sandbox::from(lease.as_ref())))
}

/// What of a sandbox's limits is to be another; what is left out stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 64)]
    pub vcpu: Option<f64>,
    /// Memory in MiB. Less than what is used now is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 16, maximum = 65536)]
    pub memory: Option<u64>,
    /// Processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8, maximum = 4_000_000)]
    pub pids: Option<u32>,
    /// Disk in MiB, which is set when a sandbox is made: another is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Files and folders on its disk, which are set when a sandbox is made: others are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// Descriptors of one process, which are set when a sandbox is made: others are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
}

/// Change what a sandbox may use while it runs.
///
/// Memory, processors and processes change at once. All of it changes or nothing does.
#[utoipa::path(
    patch, path = "/v1/sandbox/{id}/limits", tag = "sandboxes", operation_id = "set_limits",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = Limits,
    responses(
        (status = 200, description = "as it is now", body = Sandbox),
        (status = 501, description = "nothing on this host would hold it to them", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn set_limits(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(limits): Body<Limits>,
) -> Result<Json<Sandbox>, ApiError> {
    let lease = control.limit(&caller, &which, limits.into_change()?).await?;
    Ok(Json(Sandbox::from(lease.as_ref())))
}

impl Limits {
    fn into_change(self) -> Result<LimitChange, ApiError> {
        let bytes = |field, wanted: Option<u64>| match wanted {
            Some(_) => create::mebibytes(field, wanted, domain::Bytes(0)).map(Some),
            None => Ok(None),
        };
        Ok(LimitChange {
            memory: bytes("memory", self.memory)?,
            cpus: self.vcpu.map(create::milli_cpus).transpose()?,
            pids: self.pids,
            disk: bytes("disk", self.disk)?,
            inodes: self.inodes,
            open_files: self.open_files,
        })
    }
}

/// A user's home.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HomeFolder {
    /// Where it is.
    pub user_home_dir: String,
    /// The same, as some clients call it.
    pub home_dir: String,
}

/// Where the home of the sandbox's user is.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/system/user-home-dir", tag = "sandboxes",
    operation_id = "get_user_home_dir",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "where it is", body = HomeFolder),
        RunningRefusals,
    ),
)]
pub(crate) async fn home_folder(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<HomeFolder>, ApiError> {
    let home = control.guest(&caller, &which).await?.stat("~", None).await?.path;
    Ok(Json(HomeFolder { user_home_dir: home.clone(), home_dir: home }))
}

/// A folder to work in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkFolder {
    /// Where it is.
    pub workdir: String,
}

/// Where the sandbox's user works.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/system/workdir", tag = "sandboxes",
    operation_id = "get_workdir",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "where it is", body = WorkFolder),
        RunningRefusals,
    ),
)]
pub(crate) async fn work_folder(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<WorkFolder>, ApiError> {
    let guest = control.guest(&caller, &which).await?;
    Ok(Json(WorkFolder { workdir: guest.stat("/workspace", None).await?.path }))
}

/// What a sandbox uses now.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/metrics", tag = "sandboxes", operation_id = "get_metrics",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    responses(
        (status = 200, description = "processor, memory, disk, network, processes", body = Object),
        RunningRefusals,
    ),
)]
pub(crate) async fn metrics(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
) -> Result<Json<guest_proto::client::Metrics>, ApiError> {
    Ok(Json(control.guest(&caller, &which).await?.metrics().await?))
}

/// Mebibytes, which is what the API counts memory and disk in.
pub(crate) fn mebibytes(bytes: domain::Bytes) -> u64 {
    bytes.0 >> 20
}

/// Seconds of a lease's time.
fn timeout_seconds(lease: &Lease) -> Option<u64> {
    lease.spec.limits.timeout.map(|timeout| timeout.as_secs())
}
