//! One sandbox: made, connected to, looked at, given time, killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::{Control, Reference, Renewal, Wish};
use domain::{Lease, Limits, OnTimeout, SandboxId, State as Doing};
use http::StatusCode;
use http::request::Parts;
use policy::Caller;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::{network, snapshots, view};

/// How long a sandbox of the second generation lives when nobody says.
pub(crate) const USUAL: u64 = 300;

/// The same for the first generation.
const USUAL_FIRST: u64 = 15;

/// The most that may be asked for.
const LONGEST: u64 = 366 * 24 * 3600;

/// Who asks. The gateway has found it out.
pub(crate) struct Asking(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for Asking {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        // Fails closed: a route that the gateway does not guard serves nobody.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(Asking).ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "send an API key"))
    }
}

#[derive(Debug, Deserialize)]
struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<i64>,
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(rename = "autoPauseMemory")]
    auto_pause_memory: Option<bool>,
    #[serde(rename = "autoResume")]
    auto_resume: Option<AutoResume>,
    secure: Option<bool>,
    network: Option<network::Config>,
    allow_internet_access: Option<bool>,
    metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    variables: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    #[serde(rename = "volumeMounts")]
    volumes: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
struct AutoResume {
    enabled: bool,
}

pub(crate) async fn create_first(
    State(control): State<Control>,
    Asking(caller): Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    let wanted: NewSandbox = read(&body)?;
    let secure = wanted.secure.unwrap_or(false);
    create(&control, &caller, wanted, secure, USUAL_FIRST).await
}

pub(crate) async fn create_second(
    State(control): State<Control>,
    Asking(caller): Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    create(&control, &caller, read(&body)?, true, USUAL).await
}

async fn create(
    control: &Control,
    caller: &Caller,
    wanted: NewSandbox,
    secure: bool,
    usual: u64,
) -> Result<Response, Failure> {
    refuse_what_is_not_there_yet(&wanted)?;
    let limits = Limits { timeout: Some(lifetime(wanted.timeout, usual, 1)?), ..Limits::default() };
    let wish = Wish {
        template: Some(wanted.template),
        limits,
        environment: wanted.variables.unwrap_or_default(),
        labels: wanted.metadata.unwrap_or_default(),
        on_timeout: match wanted.auto_pause {
            Some(true) => OnTimeout::Pause,
            _ => OnTimeout::Delete,
        },
        auto_resume: wanted.auto_resume.unwrap_or_default().enabled,
        secure,
        allow_unenforced: true,
        network: network::policy(wanted.allow_internet_access, wanted.network)?.map(Into::into),
        ..Wish::default()
    };
    let lease = match snapshots::find(control, caller, wish.template.as_deref()).await? {
        Some(snapshot) => control.restore(caller, &snapshot, snapshots::wish_of(wish)).await?,
        None => control.create(caller, wish).await?,
    };
    Ok((StatusCode::CREATED, Json(view::made(&lease))).into_response())
}

/// Says what this release has not got, instead of giving less than was asked for.
fn refuse_what_is_not_there_yet(wanted: &NewSandbox) -> Result<(), Failure> {
    let there = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let missing = if wanted.auto_pause_memory == Some(false) {
        "pausing without memory"
    } else if there(&wanted.mcp) {
        "the MCP gateway"
    } else if wanted.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
        "volumes"
    } else {
        return Ok(());
    };
    Err(Failure::invalid(format!("this release has no {missing} yet")))
}

pub(crate) fn lifetime(wanted: Option<i64>, usual: u64, least: u64) -> Result<Duration, Failure> {
    let seconds = match wanted {
        Some(wanted) => u64::try_from(wanted).unwrap_or(0),
        None => usual,
    };
    if (least..=LONGEST).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        let message = format!("the timeout has to be between {least} and {LONGEST} seconds");
        Err(Failure::invalid(message))
    }
}

#[derive(Debug, Default, Deserialize)]
struct Time {
    timeout: Option<i64>,
    duration: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
struct Pause {
    memory: Option<bool>,
}

/// Lets a sandbox stand still. One that does already is a conflict, as the SDK wants it.
pub(crate) async fn pause(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    let wanted: Pause = read(&body)?;
    if wanted.memory == Some(false) {
        return Err(Failure::invalid("this release has no pausing without memory yet"));
    }
    let lease = alive(&control, &caller, &id)?;
    control.pause(&caller, &Reference::from(&lease.id), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// As old clients say it: a sandbox that is not paused is a conflict.
pub(crate) async fn resume(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let time: Time = read(&body)?;
    let lease = alive(&control, &caller, &id)?;
    if !matches!(lease.state, Doing::Paused(_) | Doing::Pausing(_)) {
        let message = format!("Sandbox \"{}\" is not paused", lease.id);
        return Err(Failure::new(StatusCode::CONFLICT, message));
    }
    let which = Reference::from(&lease.id);
    control.resume(&caller, &which).await?;
    let renewal = Renewal::Set(lifetime(time.timeout, USUAL_FIRST, 0)?);
    let lease = control.renew(&caller, &which, renewal).await?;
    Ok((StatusCode::CREATED, Json(view::made(&lease))).into_response())
}

/// Makes sure that a sandbox runs so long, and tells how to reach it. One that is paused is resumed,
/// with this time and not with the one that it was made with.
pub(crate) async fn connect(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let time: Time = read(&body)?;
    let lease = alive(&control, &caller, &id)?;
    let timeout = lifetime(time.timeout, USUAL, 0)?;
    let which = Reference::from(&lease.id);
    let (renewal, status) = if matches!(lease.state, Doing::Paused(_) | Doing::Pausing(_)) {
        control.resume(&caller, &which).await?;
        (Renewal::Set(timeout), StatusCode::CREATED)
    } else {
        (Renewal::AtLeast(timeout), StatusCode::OK)
    };
    let lease = control.renew(&caller, &which, renewal).await?;
    Ok((status, Json(view::made(&lease))).into_response())
}

pub(crate) async fn info(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(view::detail(alive(&control, &caller, &id)?.as_ref())))
}

pub(crate) async fn kill(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    let id = parse(&id)?;
    match control.delete(&caller, &Reference::from(&id)).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) if error.fault() == control::Fault::NotFound => {
            Err(Failure::no_sandbox(id.as_str()))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn set_timeout(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    let time: Time = read(&body)?;
    let Some(timeout) = time.timeout else {
        return Err(Failure::invalid("`timeout` is missing: say how many seconds"));
    };
    let lease = running(&control, &caller, &id)?;
    let renewal = Renewal::Set(lifetime(Some(timeout), USUAL, 0)?);
    control.renew(&caller, &Reference::from(&lease.id), renewal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// As old clients say it.
pub(crate) async fn refresh(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    let time: Time = read(&body)?;
    let lease = running(&control, &caller, &id)?;
    let renewal = Renewal::AtLeast(lifetime(time.duration, USUAL_FIRST, 0)?);
    control.renew(&caller, &Reference::from(&lease.id), renewal).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn metrics(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let lease = running(&control, &caller, &id)?;
    let guest = control.guest(&caller, &Reference::from(&lease.id)).await?;
    let seen = guest.metrics().await.map_err(control::ControlError::from)?;
    Ok(Json(json!([{
        "timestamp": domain::Timestamp(seen.ts.saturating_mul(1000)).to_string(),
        "timestampUnix": seen.ts,
        "cpuCount": seen.cpu_count,
        "cpuUsedPct": seen.cpu_used_pct,
        "memUsed": seen.mem_used,
        "memTotal": seen.mem_total,
        "memCache": seen.mem_cache,
        "diskUsed": seen.disk_used,
        "diskTotal": seen.disk_total,
    }])))
}

/// A sandbox that runs, or is about to.
pub(crate) fn running(control: &Control, caller: &Caller, id: &str) -> Result<Arc<Lease>, Failure> {
    let lease = alive(control, caller, id)?;
    match lease.state {
        Doing::Paused(_) | Doing::Pausing(_) => Err(Failure::no_sandbox(id)),
        _ => Ok(lease),
    }
}

/// A sandbox as far as this dialect knows sandboxes: those that run or are paused.
pub(crate) fn alive(control: &Control, caller: &Caller, id: &str) -> Result<Arc<Lease>, Failure> {
    let lease = control.get(caller, &Reference::from(&parse(id)?));
    let lease = lease.map_err(|_| Failure::no_sandbox(id))?;
    match lease.state {
        Doing::Starting(_)
        | Doing::Running(_)
        | Doing::Snapshotting(_)
        | Doing::Pausing(_)
        | Doing::Paused(_)
        | Doing::Resuming(_) => Ok(lease),
        _ => Err(Failure::no_sandbox(id)),
    }
}

fn parse(id: &str) -> Result<SandboxId, Failure> {
    id.parse().map_err(|_| Failure::no_sandbox(id))
}

/// Reads a body of JSON; none at all counts as `{}`.
pub(crate) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let text: &[u8] = if body.is_empty() { b"{}" } else { body };
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Failure::invalid("the body has to be a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| {
        Failure::invalid(format!("the body is not the JSON that belongs here: {error}"))
    })
}
