//! Snapshots and copies, as E2B's clients ask for them.
//!
//! A snapshot is known by its name with a tag, `name:default`, and stands where a template does.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::{Control, Fault, Reference, RestoreWish, Snapshot, SnapshotWish, Wish};
use domain::State as Doing;
use http::{HeaderName, StatusCode};
use policy::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::sandboxes::{Asking, USUAL, alive, lifetime, read};
use crate::view;

/// The tag of every name, of which this release knows one.
const TAG: &str = ":default";

/// How many are on a page at the most, and when nobody says.
const PAGE: usize = 100;

/// Where clients find the token of the next page.
const NEXT: HeaderName = HeaderName::from_static("x-next-token");

#[derive(Debug, Default, Deserialize)]
struct NewSnapshot {
    name: Option<String>,
    memory: Option<bool>,
}

/// Takes a snapshot of a sandbox, which goes on.
pub(crate) async fn create(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let wanted: NewSnapshot = read(&body)?;
    let name = wanted.name.as_deref().map(|name| name.trim_end_matches(TAG).parse());
    let name = name
        .transpose()
        .map_err(|error: domain::InvalidSnapshotName| Failure::invalid(error.to_string()))?;
    let lease = alive(&control, &caller, &id)?;
    let wish = SnapshotWish { name, memory: wanted.memory.unwrap_or(true) };
    let taken = control.snapshot(&caller, &Reference::from(&lease.id), wish).await?;
    Ok((StatusCode::CREATED, Json(shown(&taken))).into_response())
}

/// The caller's snapshots, the latest first.
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Query(pairs): Query<BTreeMap<String, String>>,
) -> Result<Response, Failure> {
    let number = |name: &str, usual: usize| match pairs.get(name) {
        Some(text) => text.parse().map_err(|_| Failure::invalid(format!("`{name}` is no number"))),
        None => Ok(usual),
    };
    let (before, size) = (number("nextToken", 0)?, number("limit", PAGE)?.clamp(1, PAGE));
    let mut all = control.snapshots(&caller).await?;
    if let Some(sandbox) = pairs.get("sandboxID") {
        all.retain(|one| one.record.lease.id.as_str() == sandbox);
    }
    if let Some(name) = pairs.get("name") {
        let name = name.trim_end_matches(TAG);
        all.retain(|one| one.record.name.as_ref().is_some_and(|own| own.as_str() == name));
    }
    let (total, next) = (all.len(), before.saturating_add(size));
    let page: Vec<Value> = all.iter().skip(before).take(size).map(shown).collect();
    if next < total {
        return Ok(([(NEXT, next.to_string())], Json(page)).into_response());
    }
    Ok(Json(page).into_response())
}

/// Removes a snapshot, which these clients take for a template.
pub(crate) async fn delete(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let Some(snapshot) = find(&control, &caller, Some(&id)).await? else {
        return Err(Failure::new(StatusCode::NOT_FOUND, "there is no such snapshot"));
    };
    control.remove_snapshot(&caller, &snapshot).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Default, Deserialize)]
struct Fork {
    timeout: Option<i64>,
    count: Option<usize>,
}

/// Copies a sandbox, which goes on. Each copy is there, or why it is not.
pub(crate) async fn fork(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let wanted: Fork = read(&body)?;
    let lease = alive(&control, &caller, &id)?;
    if matches!(lease.state, Doing::Paused(_) | Doing::Pausing(_)) {
        let message = format!("Sandbox \"{}\" is paused", lease.id);
        return Err(Failure::new(StatusCode::CONFLICT, message));
    }
    let timeout = Some(lifetime(wanted.timeout, USUAL, 1)?);
    let wish = RestoreWish { timeout, ..RestoreWish::default() };
    let which = Reference::from(&lease.id);
    let copies = control.fork(&caller, &which, wanted.count.unwrap_or(1), wish).await?;
    let shown = copies.into_iter().map(|copy| match copy {
        Ok(lease) => json!({ "sandbox": view::made(&lease) }),
        Err(error) => {
            let failure = Failure::from(error);
            json!({ "error": { "code": failure.code(), "message": failure.message() } })
        }
    });
    Ok((StatusCode::CREATED, Json(shown.collect::<Vec<_>>())).into_response())
}

/// The snapshot that a template's name stands for, if it is one.
pub(crate) async fn find(
    control: &Control,
    caller: &Caller,
    template: Option<&str>,
) -> Result<Option<String>, Failure> {
    let Some(name) = template.map(|name| name.trim_end_matches(TAG)) else { return Ok(None) };
    match control.find_snapshot(caller, name).await {
        Ok(snapshot) => Ok(Some(snapshot.record.id.to_string())),
        Err(error) if error.fault() == Fault::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What was asked for of a sandbox that is to be made from a snapshot.
pub(crate) fn wish_of(wish: Wish) -> RestoreWish {
    RestoreWish {
        name: wish.name,
        timeout: wish.limits.timeout,
        on_timeout: Some(wish.on_timeout),
        network: wish.network,
        auto_resume: Some(wish.auto_resume),
        environment: wish.environment,
        labels: Some(wish.labels),
    }
}

fn shown(snapshot: &Snapshot) -> Value {
    let record = &snapshot.record;
    let name = record.name.as_ref().map_or_else(|| record.id.to_string(), ToString::to_string);
    json!({ "snapshotID": format!("{name}{TAG}"), "names": [format!("{name}{TAG}")] })
}
