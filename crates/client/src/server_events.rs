//! Streams of server-sent events.

use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::{Client, ClientError};

/// The most that one event of a stream may have.
const LARGEST: usize = 1 << 20;

/// A stream of events.
#[derive(Debug)]
pub(crate) struct ServerEvents {
    client: Client,
    body: Incoming,
    waiting: BytesMut,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct ServerEvent {
    /// What kind it says it is.
    pub(crate) kind: Option<String>,
    pub(crate) data: String,
}

impl Client {
    pub(crate) async fn server_events(&self, path: &str) -> Result<ServerEvents, ClientError> {
        let body = self.send::<()>(Method::GET, path, None).await?.into_body();
        Ok(ServerEvents { client: self.clone(), body, waiting: BytesMut::new() })
    }
}

impl ServerEvents {
    /// Waits for the next one that says something; `None` when the daemon ends the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<ServerEvent>, ClientError> {
        loop {
            while let Some(end) = self.waiting.windows(2).position(|window| window == b"\n\n") {
                let text = self.waiting.split_to(end + 2);
                let text = std::str::from_utf8(&text).map_err(|error| self.client.odd(&error))?;
                let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
                // What has no data is a sign of life.
                if let Some(data) = field("data: ") {
                    let kind = field("event: ").map(ToOwned::to_owned);
                    return Ok(Some(ServerEvent { kind, data: data.to_owned() }));
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

    /// What an event says.
    pub(crate) fn read<T: DeserializeOwned>(&self, data: &str) -> Result<T, ClientError> {
        serde_json::from_str(data).map_err(|error| self.client.odd(&error))
    }
}
