//! Snapshots: taken, seen, made into sandboxes, removed; copies, and ways back.

use axum::Json;
use axum::extract::{FromRequestParts, Path, Query, State};
use control::{Control, MOST_COPIES, RestoreWish, SnapshotWish};
use domain::{OnTimeout, SnapshotName};
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::RunningRefusals;
use crate::extract::{Asking, Body, Which};
use crate::network::Network;
use crate::sandboxes::{Sandbox, mebibytes, seconds};
use crate::{ApiError, Problem};

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// What sandboxes are made from it by.
    pub name: String,
    /// The sandbox that it was taken of.
    pub sandbox_id: String,
    /// What that was made from.
    pub template_id: String,
    /// Its processors.
    pub vcpu: f64,
    /// Its memory in MiB.
    pub memory: u64,
    /// Its disk in MiB.
    pub disk: u64,
    /// When it was taken.
    pub created_at: String,
    /// Whether processes were captured too; otherwise only files.
    pub has_memory: bool,
    /// What it takes of the host's disk, in bytes, without what it shares with those below it.
    pub bytes: u64,
    /// The snapshots that it shares the rest with.
    pub layers: Vec<String>,
    /// Some of the sandboxes that were made from it.
    pub sandboxes: Vec<String>,
    /// What sandboxes that are made from it may reach.
    pub network_policy: Network,
    /// Always `ready`: one that is half written is not listed.
    pub state: String,
}

impl From<control::Snapshot> for Snapshot {
    fn from(snapshot: control::Snapshot) -> Self {
        let control::Snapshot { record, memory, bytes, layers, sandboxes } = snapshot;
        let limits = &record.lease.spec.limits;
        Self {
            name: record.name.as_ref().map_or_else(|| record.id.to_string(), ToString::to_string),
            sandbox_id: record.lease.id.to_string(),
            template_id: record.lease.template.clone(),
            vcpu: f64::from(limits.cpus.0) / 1000.0,
            memory: mebibytes(limits.memory),
            disk: mebibytes(limits.disk),
            created_at: record.created_at.to_string(),
            has_memory: memory,
            bytes,
            layers: layers.iter().map(ToString::to_string).collect(),
            sandboxes: sandboxes.iter().map(ToString::to_string).collect(),
            network_policy: Network::from(&record.lease.spec.network),
            state: "ready".to_owned(),
            id: record.id.to_string(),
        }
    }
}

/// What is wanted of a snapshot.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct NewSnapshot {
    /// What to call it; something is made up when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub name: Option<String>,
    /// Whether to capture processes too; they are when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// Whether to delete the sandbox once it is captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_sandbox_after: Option<bool>,
}

/// Take a snapshot of a sandbox, which goes on.
///
/// It stands still while its memory is written, and requests to it wait for that. Its disk is not
/// copied: it is sealed, and what the sandbox writes from then on goes over it. A sandbox that is
/// paused or stopped stays so; of one that is stopped only files are captured.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/snapshot/create", tag = "snapshots",
    operation_id = "create_snapshot",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = NewSnapshot,
    responses(
        (status = 201, description = "it is there", body = Snapshot),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn create(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(wanted): Body<NewSnapshot>,
) -> Result<(StatusCode, Json<Snapshot>), ApiError> {
    let name = wanted.name.as_deref().map(named).transpose()?;
    let wish = SnapshotWish { name, memory: wanted.memory.unwrap_or(true) };
    let taken = control.snapshot(&caller, &which, wish).await?;
    if wanted.kill_sandbox_after == Some(true) {
        control.delete(&caller, &which).await?;
    }
    Ok((StatusCode::CREATED, Json(Snapshot::from(taken))))
}

/// One page of snapshots.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SnapshotList {
    /// Those on this page.
    pub items: Vec<Snapshot>,
    /// How many match in all.
    pub total_items: u64,
}

/// Which snapshots, and in which order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SnapshotQuery {
    /// Only those whose name or id has this in it.
    #[serde(default)]
    #[param(max_length = 64)]
    pub query: String,
    /// What to put them in order by.
    #[serde(default)]
    #[param(pattern = "^(created_at|template_id)$")]
    pub sort: Option<String>,
    /// In which direction.
    #[serde(default, rename = "order-by")]
    #[param(pattern = "^(asc|desc)$")]
    pub order_by: Option<String>,
    /// Which page, from 1.
    #[serde(default)]
    #[param(minimum = 1)]
    pub page: Option<u64>,
    /// How many on a page.
    #[serde(default, rename = "page-size")]
    #[param(minimum = 1, maximum = 100)]
    pub page_size: Option<u64>,
}

/// List snapshots, the latest first unless something else is asked for.
#[utoipa::path(
    get, path = "/v1/snapshots", tag = "snapshots", operation_id = "list_snapshots",
    params(SnapshotQuery),
    responses(
        (status = 200, description = "those on the page", body = SnapshotList),
        (status = 400, description = "the query makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    query: Result<Query<SnapshotQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<SnapshotList>, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let page = query.page.unwrap_or(1);
    let size = query.page_size.unwrap_or(20);
    if page == 0 || !(1..=100).contains(&size) {
        return Err(ApiError::invalid("pages begin at 1 and have 1 to 100 snapshots"));
    }
    let all = control.snapshots(&caller).await?;
    let mut items: Vec<Snapshot> = all.into_iter().map(Snapshot::from).collect();
    items.retain(|one| one.name.contains(&query.query) || one.id.contains(&query.query));
    match query.sort.as_deref() {
        None | Some("created_at") => {}
        Some("template_id") => items.sort_by(|one, other| other.template_id.cmp(&one.template_id)),
        Some(_) => return Err(ApiError::wrong("sort", "it has to be created_at or template_id")),
    }
    match query.order_by.as_deref() {
        None | Some("desc") => {}
        Some("asc") => items.reverse(),
        Some(_) => return Err(ApiError::wrong("order-by", "it has to be asc or desc")),
    }
    let total_items = items.len() as u64;
    let before = usize::try_from((page - 1).saturating_mul(size)).unwrap_or(usize::MAX);
    let size = usize::try_from(size).unwrap_or(100);
    let items = items.into_iter().skip(before).take(size).collect();
    Ok(Json(SnapshotList { items, total_items }))
}

/// See one snapshot.
#[utoipa::path(
    get, path = "/v1/snapshot/{id}", tag = "snapshots", operation_id = "get_snapshot",
    params(("id" = String, Path, description = "its id or its name")),
    responses(
        (status = 200, description = "this is it", body = Snapshot),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 404, description = "there is no such snapshot", body = Problem),
    ),
)]
pub(crate) async fn get(
    State(control): State<Control>,
    Asking(caller): Asking,
    WhichSnapshot(which): WhichSnapshot,
) -> Result<Json<Snapshot>, ApiError> {
    Ok(Json(Snapshot::from(control.find_snapshot(&caller, &which).await?)))
}

/// Remove a snapshot. One that sandboxes were made from stays, and the answer names them.
///
/// The sandbox that it was taken of goes on, and keeps what it needs of it.
#[utoipa::path(
    delete, path = "/v1/snapshot/{id}", tag = "snapshots", operation_id = "delete_snapshot",
    params(("id" = String, Path, description = "its id or its name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 404, description = "there is no such snapshot", body = Problem),
        (status = 409, description = "sandboxes were made from it", body = Problem),
    ),
)]
pub(crate) async fn delete(
    State(control): State<Control>,
    Asking(caller): Asking,
    WhichSnapshot(which): WhichSnapshot,
) -> Result<StatusCode, ApiError> {
    control.remove_snapshot(&caller, &which).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a sandbox that is made from a snapshot has otherwise than the one that was captured.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Restore {
    /// The snapshot's name or id.
    pub snapshot_name: String,
    /// What to call the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long it may run, in seconds; 300 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub timeout: Option<u64>,
    /// Whether it is paused when its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause: Option<bool>,
    /// What it may reach; what the captured one could when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<Network>,
}

/// How long a sandbox may run that is made from a snapshot, when nobody says.
const USUAL: u64 = 300;

/// Make a sandbox from a snapshot: with its files and, where they were captured, its processes.
///
/// Its id, its token and its machine id are new, and so are the random numbers of its kernels.
#[utoipa::path(
    post, path = "/v1/snapshot/restore", tag = "snapshots", operation_id = "restore_snapshot",
    request_body = Restore,
    responses(
        (status = 201, description = "it can be used", body = Sandbox),
        (status = 400, description = "the request makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 404, description = "there is no such snapshot", body = Problem),
        (status = 409, description = "the name is taken, or there are too many", body = Problem),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
    ),
)]
pub(crate) async fn restore(
    State(control): State<Control>,
    Asking(caller): Asking,
    Body(wanted): Body<Restore>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let name = wanted.name.map(|name| {
        name.parse()
            .map_err(|error: domain::InvalidName| ApiError::wrong("name", error.to_string()))
    });
    let network = wanted.network_policy.map(|network| network.into_wish("network_policy."));
    let wish = RestoreWish {
        name: name.transpose()?,
        timeout: Some(seconds("timeout", wanted.timeout.unwrap_or(USUAL))?),
        on_timeout: wanted
            .auto_pause
            .map(|pauses| if pauses { OnTimeout::Pause } else { OnTimeout::Stop }),
        network: network.transpose()?,
        ..RestoreWish::default()
    };
    let lease = control.restore(&caller, &wanted.snapshot_name, wish).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::from(lease.as_ref()))))
}

/// How many copies.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct Fork {
    /// So many; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    pub count: Option<usize>,
    /// How long each may run, in seconds; as long as the first when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub timeout: Option<u64>,
}

/// What became of the copies.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// Those that were made.
    pub items: Vec<Sandbox>,
    /// Why others were not, one for each.
    pub errors: Vec<String>,
}

/// Copy a sandbox, which goes on: with its files, its processes and what they hold.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/fork", tag = "snapshots", operation_id = "fork_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = Fork,
    responses(
        (status = 201, description = "this became of the copies", body = Forked),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn fork(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(wanted): Body<Fork>,
) -> Result<(StatusCode, Json<Forked>), ApiError> {
    let count = wanted.count.unwrap_or(1);
    if count == 0 || count > MOST_COPIES {
        return Err(ApiError::wrong("count", format!("it has to be 1 to {MOST_COPIES}")));
    }
    let timeout = wanted.timeout.map(|wanted| seconds("timeout", wanted)).transpose()?;
    let wish = RestoreWish { timeout, ..RestoreWish::default() };
    let (mut items, mut errors, mut first) = (Vec::new(), Vec::new(), None);
    for made in control.fork(&caller, &which, count, wish).await? {
        match made {
            Ok(lease) => items.push(Sandbox::from(lease.as_ref())),
            Err(error) => {
                errors.push(error.to_string());
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if items.is_empty() => Err(error.into()),
        _ => Ok((StatusCode::CREATED, Json(Forked { items, errors }))),
    }
}

/// Where to go back to.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Rollback {
    /// A snapshot of this sandbox, by its name or id.
    pub snapshot_name: String,
}

/// Make a sandbox what it was in a snapshot. What it wrote and ran since is gone.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/rollback", tag = "snapshots", operation_id = "roll_back_sandbox",
    params(("id" = String, Path, description = "its id, its name, or a beginning of either")),
    request_body = Rollback,
    responses(
        (status = 200, description = "it is what it was, and runs", body = Sandbox),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn roll_back(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(wanted): Body<Rollback>,
) -> Result<Json<Sandbox>, ApiError> {
    let lease = control.roll_back(&caller, &which, &wanted.snapshot_name).await?;
    Ok(Json(Sandbox::from(lease.as_ref())))
}

/// The snapshot that a path names.
pub(crate) struct WhichSnapshot(String);

impl<S: Send + Sync> FromRequestParts<S> for WhichSnapshot {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(which) = path.map_err(|error| ApiError::invalid(error.body_text()))?;
        Ok(Self(which))
    }
}

fn named(name: &str) -> Result<SnapshotName, ApiError> {
    name.parse()
        .map_err(|error: domain::InvalidSnapshotName| ApiError::wrong("name", error.to_string()))
}
