//! HTTP/1.1 on dialled streams.
//!
//! Each request takes an idle connection or dials a fresh one. A connection comes back when the
//! body of its answer was read to the end; one whose answer was left half read is closed, which
//! is how a stream is given up. Each connection is driven by a task that ends with it.
//!
//! There is no HTTP/2 on purpose: streams to a guest are cheap to open, and a long stream then
//! never competes with other calls for a window.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use connectrpc::client::{BoxFuture, ClientBody, ClientTransport};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio_util::task::TaskTracker;

use super::error::BoxError;
use crate::ByteStream;

/// Where requests go as far as HTTP is concerned. Nothing resolves this name.
pub(super) const BASE: &str = "http://guest";

/// What a broken connection is called in errors, so that it can be told from the guest's own.
pub(super) const BROKEN: &str = "the connection to the guest broke";

/// Connections kept for the next call. Calls rarely overlap more than this.
const IDLE_LIMIT: usize = 4;

/// An idle connection that is not ready within this time is given up.
const READY_TIMEOUT: Duration = Duration::from_millis(200);

/// The most that the head of an answer may have, and what is read at once.
const BUFFER_LIMIT: usize = 512 << 10;

/// Opens streams to one guest.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Opens a fresh stream.
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError>;
}

#[derive(Clone)]
pub(super) struct Transport {
    shared: Arc<Shared>,
    /// What every request shows, if anything. Marked as sensitive, so no `Debug` tells it.
    headers: HeaderMap,
}

struct Shared {
    dial: Box<dyn Dial>,
    idle: Mutex<Vec<SendRequest<ClientBody>>>,
    connections: TaskTracker,
}

impl Transport {
    pub(super) fn new(dial: impl Dial) -> Self {
        let shared = Shared {
            dial: Box::new(dial),
            idle: Mutex::default(),
            connections: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared), headers: HeaderMap::new() }
    }

    /// The same connections, with requests that show these headers as well.
    pub(super) fn with_headers(&self, more: HeaderMap) -> Self {
        let mut headers = self.headers.clone();
        headers.extend(more);
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        Self { shared: Arc::clone(&self.shared), headers }
    }

    /// Runs a task that belongs to a call and ends with it.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.connections.spawn(task);
    }

    pub(super) fn close_idle(&self) {
        self.shared.idle().clear();
    }

    /// Sends a request and returns its answer as soon as the head of it is there.
    pub(super) async fn exchange(
        &self,
        mut request: Request<ClientBody>,
    ) -> Result<Response<GuestBody>, TransportError> {
        to_origin_form(&mut request);
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        if let Some(trace) = super::forward::trace() {
            request.headers_mut().insert("traceparent", trace);
        }
        loop {
            let reused = self.shared.take_idle().await;
            let fresh = reused.is_none();
            let mut sender = match reused {
                Some(sender) => sender,
                None => self.shared.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer.map(|body| self.shared.lend(body, sender))),
                // An idle connection may have been closed under us. A request that did not
                // leave is safe to send again, on the next connection.
                Err(mut failure) => match failure.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(TransportError::Broken(failure.into_error())),
                },
            }
        }
    }
}

/// Connections speak to one host only: the target has no host in it, the header names one.
fn to_origin_form(request: &mut Request<ClientBody>) {
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("guest"));
}

impl Shared {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SendRequest<ClientBody>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_idle(&self) -> Option<SendRequest<ClientBody>> {
        loop {
            let mut sender = self.idle().pop()?;
            if let Ok(Ok(())) = tokio::time::timeout(READY_TIMEOUT, sender.ready()).await {
                return Some(sender);
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<ClientBody>, TransportError> {
        let stream = self.dial.dial().await.map_err(TransportError::Dial)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_LIMIT)
            .max_headers(64)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(TransportError::Broken)?;
        // It ends when both its sender and the body it delivers are gone, and whoever waits
        // for an answer on it is told why it broke.
        self.connections.spawn(connection);
        Ok(sender)
    }

    fn lend(self: &Arc<Self>, incoming: Incoming, sender: SendRequest<ClientBody>) -> GuestBody {
        let mut body = GuestBody { incoming, lease: Some((Arc::clone(self), sender)) };
        body.give_back_at_end();
        body
    }
}

impl ClientTransport for Transport {
    type ResponseBody = GuestBody;
    type Error = TransportError;

    fn send(
        &self,
        request: Request<ClientBody>,
    ) -> BoxFuture<'static, Result<Response<GuestBody>, TransportError>> {
        let transport = self.clone();
        Box::pin(async move { transport.exchange(request).await })
    }
}

/// The body of an answer, which holds its connection until it was read.
pub(super) struct GuestBody {
    incoming: Incoming,
    lease: Option<(Arc<Shared>, SendRequest<ClientBody>)>,
}

impl GuestBody {
    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some((shared, sender)) = self.lease.take()
        {
            let mut idle = shared.idle();
            if idle.len() < IDLE_LIMIT && !sender.is_closed() {
                idle.push(sender);
            }
        }
    }
}

impl Body for GuestBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        match frame {
            Some(Err(cause)) => {
                self.lease = None;
                Poll::Ready(Some(Err(TransportError::Broken(cause))))
            }
            frame => {
                self.give_back_at_end();
                Poll::Ready(frame.map(|frame| frame.map_err(TransportError::Broken)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Why a request had no answer.
#[derive(Debug)]
pub(super) enum TransportError {
    Dial(BoxError),
    Broken(hyper::Error),
}

impl fmt::Display for TransportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(cause) => write!(formatter, "{cause}"),
            Self::Broken(cause) => write!(formatter, "{BROKEN}: {cause}"),
        }
    }
}

impl std::error::Error for TransportError {}
