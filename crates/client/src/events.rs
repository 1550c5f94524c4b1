//! Calls on what happened to sandboxes.

use std::fmt::Write as _;

use api_v1::events::{EventList, Following, Happening, Query};
use http::Method;

use crate::sandboxes::{escaped, path};
use crate::server_events::ServerEvents;
use crate::{Client, ClientError};

/// Events as they happen.
#[derive(Debug)]
pub struct Events {
    events: ServerEvents,
}

/// What is told on a stream of events.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Something happened.
    Event(Box<Happening>),
    /// Events are no longer kept that were to be told.
    Missed {
        /// The number of the first of them.
        from: u64,
        /// The number of the last of them.
        to: u64,
    },
}

impl Client {
    /// What happened to one sandbox, the newest last.
    pub async fn sandbox_events(&self, which: &str) -> Result<EventList, ClientError> {
        self.ask::<(), _>(Method::GET, &path(which, "/events"), None).await
    }

    /// One page of what happened.
    pub async fn events(&self, query: &Query) -> Result<EventList, ClientError> {
        let mut path = "/v1/events?".to_owned();
        let mut add = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                let _ = write!(path, "{name}={}&", escaped(value));
            }
        };
        add("sandbox", query.sandbox.as_deref());
        add("since", query.since.map(|since| since.to_string()).as_deref());
        add("from", query.from.as_deref());
        add("order", query.order.as_deref());
        add("limit", query.limit.map(|limit| limit.to_string()).as_deref());
        add("cursor", query.cursor.as_deref());
        self.ask::<(), _>(Method::GET, &path, None).await
    }

    /// Follows what happens.
    pub async fn follow_events(&self, following: &Following) -> Result<Events, ClientError> {
        let mut path = "/v1/events/stream?".to_owned();
        if let Some(sandbox) = &following.sandbox {
            let _ = write!(path, "sandbox={}&", escaped(sandbox));
        }
        if let Some(since) = following.since {
            let _ = write!(path, "since={since}");
        }
        Ok(Events { events: self.server_events(&path).await? })
    }
}

impl Events {
    /// Waits for the next thing; `None` when the daemon ends the stream.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        let Some(event) = self.events.next().await? else { return Ok(None) };
        if event.kind.as_deref() == Some("missed") {
            let gap: serde_json::Value = self.events.read(&event.data)?;
            let number = |name: &str| gap[name].as_u64().unwrap_or(0);
            return Ok(Some(Told::Missed { from: number("from"), to: number("to") }));
        }
        Ok(Some(Told::Event(Box::new(self.events.read(&event.data)?))))
    }
}
