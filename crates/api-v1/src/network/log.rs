//! What a sandbox tried to reach, entry by entry.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::{Control, ControlError, NetworkLog};
use domain::{NetworkEntry, NetworkProtocol};
use futures::stream;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::RunningRefusals;
use crate::extract::{Asked, Asking, Which};
use crate::stream::SIGN_OF_LIFE;
use crate::{ApiError, Problem};

/// How many entries one answer has unless more are asked for.
const USUAL: u64 = 100;

/// How many it may have.
const MOST: u64 = 1000;

/// How long an answer waits for something to tell.
const PATIENCE: Duration = Duration::from_secs(20);

/// One attempt of a sandbox to reach something: a question for a name, or a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Its number within the sandbox's log, from 1.
    pub sequence: u64,
    /// When it began.
    pub at: String,
    /// What was spoken: `dns`, `tcp`, `tls` or `http`.
    pub protocol: String,
    /// The name that was meant, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address that was dialled or asked for, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The port; 53 for questions.
    pub port: u16,
    /// Which process inside, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Bytes that left the sandbox.
    pub sent: u64,
    /// Bytes that came back.
    pub received: u64,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
    /// Whether it was let through.
    pub allowed: bool,
    /// Which rule decided.
    pub rule: String,
    /// What went wrong with what was allowed, or what to do about what was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl From<&NetworkEntry> for Attempt {
    fn from(entry: &NetworkEntry) -> Self {
        let protocol = match entry.protocol {
            NetworkProtocol::Dns => "dns",
            NetworkProtocol::Tcp => "tcp",
            NetworkProtocol::Tls => "tls",
            NetworkProtocol::Http => "http",
        };
        Self {
            sequence: entry.sequence,
            at: entry.at.to_string(),
            protocol: protocol.to_owned(),
            name: entry.name.clone(),
            address: entry.address.map(|address| address.to_string()),
            port: entry.port,
            process: entry.process.clone(),
            sent: entry.sent,
            received: entry.received,
            milliseconds: entry.milliseconds,
            allowed: entry.allowed,
            rule: entry.rule.clone(),
            detail: entry.detail.clone(),
        }
    }
}

/// Which entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct Attempts {
    /// Only those after the entry with this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// How many; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
    /// Wait for up to 20 seconds when there is none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<bool>,
}

/// Some entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptList {
    /// They, the oldest first.
    pub items: Vec<Attempt>,
    /// What to send as `after` for those that follow.
    pub next: u64,
}

/// See what a sandbox tried to reach, the oldest first.
///
/// Each has whether it was let through and by which rule. A connection that was let through is
/// written down when it ends. The log is bounded: when there is too much, the oldest is dropped.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/network/log", tag = "network",
    operation_id = "list_network_log",
    params(
        ("id" = String, Path, description = "its id, its name, or a beginning of either"),
        Attempts,
    ),
    responses(
        (status = 200, description = "what it tried", body = AttemptList),
        (status = 501, description = "this host has no network for sandboxes", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Asked(asked): Asked<Attempts>,
) -> Result<Json<AttemptList>, ApiError> {
    let limit = asked.limit.unwrap_or(USUAL);
    let limit = (1..=MOST).contains(&limit).then(|| usize::try_from(limit).ok()).flatten();
    let limit = limit
        .ok_or_else(|| ApiError::wrong("limit", format!("it has to be between 1 and {MOST}")))?;
    let after = asked.after.unwrap_or(0);
    let mut items = read(control.network_log(&caller, &which, after, false).await?, limit).await?;
    if items.is_empty() && asked.follow == Some(true) {
        let mut coming = control.network_log(&caller, &which, after, true).await?;
        match tokio::time::timeout(PATIENCE, coming.next()).await {
            Err(_) | Ok(None) => {}
            Ok(Some(first)) => items.push(Attempt::from(&first?)),
        }
    }
    let next = items.last().map_or(after, |last| last.sequence);
    Ok(Json(AttemptList { items, next }))
}

async fn read(mut log: NetworkLog, limit: usize) -> Result<Vec<Attempt>, ControlError> {
    let mut items = Vec::new();
    while items.len() < limit {
        let Some(entry) = log.next().await else { break };
        items.push(Attempt::from(&entry?));
    }
    Ok(items)
}

/// From where to follow.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct Following {
    /// Only what comes after the entry with this number; all that is kept unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// Follow what a sandbox tries to reach, as server-sent events.
///
/// Each has its number as `id` and the entry as JSON. A client that comes back with
/// `Last-Event-ID` goes on behind that entry. A silent stream has a comment every 15 seconds.
#[utoipa::path(
    get, path = "/v1/sandbox/{id}/network/log/stream", tag = "network",
    operation_id = "follow_network_log",
    params(
        ("id" = String, Path, description = "its id, its name, or a beginning of either"),
        Following,
        ("Last-Event-ID" = Option<String>, Header,
         description = "the number of the last entry that was seen; wins over `after`"),
    ),
    responses(
        (status = 200, description = "what it tries, until it is gone", body = String,
         content_type = "text/event-stream"),
        (status = 501, description = "this host has no network for sandboxes", body = Problem),
        RunningRefusals,
    ),
)]
pub(crate) async fn follow(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Asked(asked): Asked<Following>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = headers.get("last-event-id").map(|value| {
        let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
        number.ok_or_else(|| ApiError::wrong("Last-Event-ID", "it has to be an entry's number"))
    });
    let after = last.transpose()?.or(asked.after).unwrap_or(0);
    Ok(events(control.network_log(&caller, &which, after, true).await?))
}

fn events(log: NetworkLog) -> Response {
    // The head goes out with the first bytes, so a silent stream begins with some.
    let state = (log, Some(": here\n\n".to_owned()));
    let events = stream::unfold(state, |(mut log, first)| async move {
        let text = match first {
            Some(text) => text,
            None => next(&mut log).await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (log, None)))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, axum::body::Body::from_stream(events)).into_response()
}

/// The next text of the stream; `None` when it is over.
async fn next(log: &mut NetworkLog) -> Option<String> {
    match tokio::time::timeout(SIGN_OF_LIFE, log.next()).await {
        Err(_) => Some(": still there\n\n".to_owned()),
        Ok(None) => None,
        Ok(Some(Ok(entry))) => {
            let shown = serde_json::to_string(&Attempt::from(&entry)).ok()?;
            Some(format!("id: {}\ndata: {shown}\n\n", entry.sequence))
        }
        Ok(Some(Err(error))) => {
            // The client comes back, and goes on where this broke off.
            tracing::warn!(error = &error as &dyn std::error::Error, "a network log broke off");
            None
        }
    }
}
