//! One request, one answer.

use std::io;

use async_trait::async_trait;
use bytes::Bytes;
use guest_proto::client::BoxError;
use guest_proto::{ByteStream, Dial};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};

use crate::{Client, ClientError, Place};

/// The most that an answer may have that is read at once.
const LARGEST: usize = 64 << 20;

/// An answer whose body is still to be read.
pub type Answer = Response<Incoming>;

impl Client {
    /// Asks with a JSON body, or none, and reads the JSON of the answer.
    pub(crate) async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Q>,
    ) -> Result<A, ClientError> {
        let answer = self.send(method, path, body).await?;
        self.read(answer).await
    }

    /// The same where the answer says nothing.
    pub(crate) async fn order<Q: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Q>,
    ) -> Result<(), ClientError> {
        let answer = self.send(method, path, body).await?;
        self.whole(answer).await?;
        Ok(())
    }

    /// Asks, and returns the answer as soon as its head is there. A refusal is an error.
    pub async fn send<Q: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Q>,
    ) -> Result<Answer, ClientError> {
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| self.odd(&error))?,
            None => Vec::new(),
        };
        let kind = body.map(|_| "application/json");
        self.send_body(method, path, kind, Full::new(Bytes::from(bytes))).await
    }

    /// The same with any body, which is said to be of this kind.
    pub(crate) async fn send_body<B>(
        &self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: B,
    ) -> Result<Answer, ClientError>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers()?);
            headers.insert(header::HOST, self.host());
        }
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let request = request.body(body).map_err(|error| self.odd(&error))?;
        let stream = self
            .dial_daemon()
            .await
            .map_err(|source| ClientError::Away { place: self.shared.place.to_string(), source })?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.odd(&error))?;
        // It ends with the answer's body.
        self.shared.connections.spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| self.odd(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let bytes = self.whole(answer).await.unwrap_or_default();
        Err(ClientError::Refused { status, message: words(status, &bytes) })
    }

    /// Reads the JSON of an answer.
    pub(crate) async fn read<A: DeserializeOwned>(&self, answer: Answer) -> Result<A, ClientError> {
        let bytes = self.whole(answer).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.odd(&error))
    }

    async fn whole(&self, answer: Answer) -> Result<Bytes, ClientError> {
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        Ok(body.map_err(|error| self.odd(&error))?.to_bytes())
    }

    fn host(&self) -> HeaderValue {
        let name = match &self.shared.place {
            Place::Socket(_) => "localhost",
            Place::Address(address) => address,
        };
        HeaderValue::from_str(name).unwrap_or_else(|_| HeaderValue::from_static("localhost"))
    }

    pub(crate) async fn dial_daemon(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(match &self.shared.place {
            Place::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Place::Address(address) => {
                let stream = TcpStream::connect(address.as_str()).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }

    pub(crate) fn odd(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::Odd { place: self.shared.place.to_string(), reason: error.to_string() }
    }
}

/// What a refusal says.
fn words(status: StatusCode, bytes: &[u8]) -> String {
    let message = serde_json::from_slice::<serde_json::Value>(bytes)
        .ok()
        .and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
    message.unwrap_or_else(|| format!("the daemon answered {status}"))
}

/// Streams to the daemon, for requests that it passes on.
pub(crate) struct ThroughDaemon(pub(crate) Client);

#[async_trait]
impl Dial for ThroughDaemon {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        Ok(self.0.dial_daemon().await?)
    }
}
