//! What happened to sandboxes: looked up page by page, or followed as it happens.

mod stream;
mod view;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use control::{Control, EventQuery, Reference};
use domain::{SandboxId, Timestamp};
use http::HeaderMap;
use policy::Caller;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::SandboxRefusals;
use crate::extract::{Asked, Asking, Which};
use crate::{ApiError, Problem};

pub use view::{EventResult, Happening};

/// How many events one answer has unless more are asked for.
const USUAL: u64 = 100;

/// How many it may have.
const MOST: u64 = 1000;

/// Which events, and in which order.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct Query {
    /// Only those of this sandbox: its id, or of one that is there its name or a beginning of
    /// either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Only those after the event with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Only those of this moment or later, as RFC 3339 has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `desc` for the newest first, as is usual, or `asc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^(asc|desc)$")]
    pub order: Option<String>,
    /// How many; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
    /// `next_cursor` of the page before this one, of the same query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Those on this page.
    pub items: Vec<Happening>,
    /// What to send as `cursor` for the next page; left out on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number of the newest event of all when this was asked: a stream goes on from there.
    pub newest: u64,
}

/// See what happened to sandboxes, also to those that are gone.
///
/// The events are kept in files of bounded size: when there are too many, the oldest are dropped.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "list_events",
    params(Query),
    responses(
        (status = 200, description = "one page of them", body = EventList),
        (status = 400, description = "the query makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 404, description = "there is no such sandbox, and it is no whole id",
         body = Problem),
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Asked(asked): Asked<Query>,
) -> Result<Json<EventList>, ApiError> {
    let newest_first = match asked.order.as_deref() {
        None | Some("desc") => true,
        Some("asc") => false,
        Some(_) => return Err(ApiError::wrong("order", "it has to be asc or desc")),
    };
    let from = asked.from.as_deref().map(|text| {
        let wrong = || ApiError::wrong("from", "it has to be a moment as RFC 3339 has it");
        Timestamp::parse(text).ok_or_else(wrong)
    });
    let cursor = asked.cursor.as_deref().map(|text| {
        let wrong = || ApiError::wrong("cursor", "it has to be `next_cursor` of another page");
        text.parse::<u64>().map_err(|_| wrong())
    });
    let cursor = cursor.transpose()?;
    let since = asked.since.unwrap_or(0);
    let query = EventQuery {
        owner: None,
        sandbox: meant(&control, &caller, asked.sandbox.as_deref())?,
        after: if newest_first { since } else { cursor.unwrap_or(0).max(since) },
        before: cursor.filter(|_| newest_first),
        from: from.transpose()?,
        newest_first,
        limit: limit(asked.limit, MOST)?,
    };
    let page = control.history(&caller, query).await?;
    let last = page.items.last().filter(|_| page.has_more);
    Ok(Json(EventList {
        next_cursor: last.map(|recorded| recorded.sequence.to_string()),
        items: page.items.iter().map(|recorded| Happening::from(recorded.as_ref())).collect(),
        newest: page.newest,
    }))
}

/// From where to follow.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct Following {
    /// Only what happens to this sandbox: its id, or of one that is there its name or a beginning
    /// of either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// First what happened after the event with this number; only what happens from now on unless
    /// said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

/// Follow what happens to sandboxes, as server-sent events.
///
/// Each has its number as `id` and the event as JSON. A client that comes back with
/// `Last-Event-ID` goes on behind that event, and neither misses one nor is told one twice. Where
/// events are no longer kept that were to be told, an event `missed` says which: `{"from": 5,
/// "to": 17}`. A silent stream has a comment every 15 seconds.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "follow_events",
    params(
        Following,
        ("Last-Event-ID" = Option<String>, Header,
         description = "the number of the last event that was seen; wins over `since`"),
    ),
    responses(
        (status = 200, description = "what happens, without end", body = String,
         content_type = "text/event-stream"),
        (status = 400, description = "the query makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 404, description = "there is no such sandbox, and it is no whole id",
         body = Problem),
        (status = 503, description = "too many follow already", body = Problem),
    ),
)]
pub(crate) async fn follow(
    State(control): State<Control>,
    Asking(caller): Asking,
    Asked(asked): Asked<Following>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = headers.get("last-event-id").map(|value| {
        let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
        number.ok_or_else(|| ApiError::wrong("Last-Event-ID", "it has to be an event's number"))
    });
    let after = last.transpose()?.or(asked.since);
    let sandbox = meant(&control, &caller, asked.sandbox.as_deref())?;
    Ok(stream::events(control.follow(&caller, sandbox, after)?))
}

/// Which events to show.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
pub struct EventsAsked {
    /// The newest so many; 100 unless said.
    pub limit: Option<u64>,
}

/// What happened to a sandbox, the newest last. Also for one that is gone, by its whole id.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/events", tag = "sandboxes", operation_id = "get_events",
    params(
        ("id" = String, Path, description = "its id, or of one that is there its name"),
        EventsAsked,
    ),
    responses(
        (status = 200, description = "what happened", body = EventList),
        SandboxRefusals,
    ),
)]
pub(crate) async fn of_sandbox(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Asked(asked): Asked<EventsAsked>,
) -> Result<Json<EventList>, ApiError> {
    let query = EventQuery {
        sandbox: Some(control.meant(&caller, &which)?),
        newest_first: true,
        limit: limit(asked.limit.map(|limit| limit.clamp(1, MOST)), MOST)?,
        ..EventQuery::default()
    };
    let page = control.history(&caller, query).await?;
    let items = page.items.iter().rev().map(|recorded| Happening::from(recorded.as_ref()));
    Ok(Json(EventList { items: items.collect(), next_cursor: None, newest: page.newest }))
}

fn meant(
    control: &Control,
    caller: &Caller,
    which: Option<&str>,
) -> Result<Option<SandboxId>, ApiError> {
    let which = which.filter(|which| !which.is_empty()).map(Reference::from);
    Ok(which.map(|which| control.meant(caller, &which)).transpose()?)
}

fn limit(asked: Option<u64>, most: u64) -> Result<usize, ApiError> {
    let limit = asked.unwrap_or(USUAL);
    let fits = (1..=most).contains(&limit).then(|| usize::try_from(limit).ok()).flatten();
    fits.ok_or_else(|| ApiError::wrong("limit", format!("it has to be between 1 and {most}")))
}
