//! Calls on what happened to sandboxes.

use std::fmt::Write as _;

use api_v1::events::{EventList, Following, Happening, Query};
use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::sandboxes::{escaped, path};
use crate::{Client, ClientError};

/// The most that one event of a stream may have.
const LARGEST: usize = 1 << 20;

/// Events as they happen.
#[derive(Debug)]
pub struct Events {
    client: Client,
    body: Incoming,
    waiting: BytesMut,
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
        let body = self.send::<()>(Method::GET, &path, None).await?.into_body();
        Ok(Events { client: self.clone(), body, waiting: BytesMut::new() })
    }
}

impl Events {
    /// Waits for the next thing; `None` when the daemon ends the stream.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        loop {
            while let Some(end) = self.waiting.windows(2).position(|window| window == b"\n\n") {
                let text = self.waiting.split_to(end + 2);
                if let Some(told) = self.read(&text)? {
                    return Ok(Some(told));
                }
            }
            if self.waiting.len() > LARGEST {
                return Err(self.client.odd(&"an event has no end"));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| self.client.odd(&error))?;
            if let Ok(bytes) = frame.into_data() {
                self.waiting.extend_from_slice(&bytes);
            }
        }
    }

    /// One event of the stream; `None` for a sign of life.
    fn read(&self, text: &[u8]) -> Result<Option<Told>, ClientError> {
        let odd = |error: &dyn std::fmt::Display| self.client.odd(error);
        let text = std::str::from_utf8(text).map_err(|error| odd(&error))?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let Some(data) = field("data: ") else { return Ok(None) };
        if field("event: ") == Some("missed") {
            let gap: serde_json::Value = serde_json::from_str(data).map_err(|error| odd(&error))?;
            let number = |name: &str| gap[name].as_u64().unwrap_or(0);
            return Ok(Some(Told::Missed { from: number("from"), to: number("to") }));
        }
        let happening = serde_json::from_str(data).map_err(|error| odd(&error))?;
        Ok(Some(Told::Event(Box::new(happening))))
    }
}
