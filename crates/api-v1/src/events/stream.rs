//! Events as they happen.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::{Follower, Told};
use futures::stream;
use http::header;
use serde_json::json;

use super::Happening;
use crate::stream::SIGN_OF_LIFE;

/// What a follower is told, as server-sent events.
pub(super) fn events(follower: Follower) -> Response {
    // The head goes out with the first bytes, so a silent stream begins with some.
    let state = (follower, Some(": here\n\n".to_owned()));
    let events = stream::unfold(state, |(mut follower, first)| async move {
        let text = match first {
            Some(text) => text,
            None => next(&mut follower).await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (follower, None)))
    });
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

/// The next text of the stream; `None` when it is over.
async fn next(follower: &mut Follower) -> Option<String> {
    match tokio::time::timeout(SIGN_OF_LIFE, follower.next()).await {
        Err(_) => Some(": still there\n\n".to_owned()),
        Ok(None) => None,
        Ok(Some(Ok(Told::Event(recorded)))) => {
            let shown = serde_json::to_string(&Happening::from(recorded.as_ref())).ok()?;
            Some(format!("id: {}\ndata: {shown}\n\n", recorded.sequence))
        }
        Ok(Some(Ok(Told::Missed { from, to }))) => {
            let (id, shown) = (follower.position(), json!({ "from": from, "to": to }));
            Some(format!("id: {id}\nevent: missed\ndata: {shown}\n\n"))
        }
        Ok(Some(Err(error))) => {
            // The client comes back, and goes on where this broke off.
            tracing::error!(error = &error as &dyn std::error::Error, "a stream of events broke");
            None
        }
    }
}
