//! Serves HTTP on the guest's socket.
//!
//! The three Connect services have their own paths; everything else is plain HTTP. Nothing is
//! buffered here, and nothing that a peer sends ends the guest: a broken connection is dropped,
//! alone.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::{ConnectRpcService, Limits, Router};
use guest_proto::filesystem::FilesystemExt as _;
use guest_proto::process::ProcessExt as _;
use guest_proto::soma::guest::v1::GuestExt as _;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tower::Service as _;

use crate::files::Filesystem;
use crate::process::Processes;
use crate::soma::{self, Guest};
use crate::state::State;

/// The body of every answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a body broke off.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body of nothing.
pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is there already.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// The largest message that is taken whole. File contents are not messages: they are streamed.
const LARGEST_MESSAGE: usize = 16 << 20;

/// The most that a request's head may take, and that is gathered before it is written.
const LARGEST_BUFFER: usize = 256 << 10;

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(640);

/// Who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peers {
    /// Only processes outside of the sandbox: no process in it may command the guest.
    Outside,
    /// Anybody, for tests without a sandbox.
    Anybody,
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: UnixListener, peers: Peers, state: Arc<State>) -> io::Error {
    let services = services(&state);
    loop {
        match listener.accept().await {
            Ok((stream, _)) if may_connect(peers, &stream) => {
                crate::spawn(converse(stream, services.clone(), Arc::clone(&state)));
            }
            Ok(_) => {}
            // Out of descriptors, most likely. Some will be closed.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return error,
        }
    }
}

/// Everything that speaks Connect.
pub(crate) fn services(state: &Arc<State>) -> ConnectRpcService {
    let router = Arc::new(Processes::new(Arc::clone(state))).register(Router::new());
    let router = Arc::new(Filesystem::new(Arc::clone(state))).register(router);
    let router = Arc::new(Guest::new(Arc::clone(state))).register(router);
    let limits = Limits::default()
        .with_max_request_body_size(LARGEST_MESSAGE)
        .with_max_message_size(LARGEST_MESSAGE);
    ConnectRpcService::new(router).with_limits(limits)
}

/// Whether whoever connected is somebody to listen to.
pub(crate) fn may_connect(peers: Peers, stream: &UnixStream) -> bool {
    match peers {
        Peers::Outside => matches!(sys_linux::fdpass::peer_process(stream.as_fd()), Ok(None)),
        Peers::Anybody => true,
    }
}

/// Answers the requests of one connection, until it is over.
pub(crate) async fn converse<S>(stream: S, services: ConnectRpcService, state: Arc<State>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |request| {
        let services = services.clone();
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(with_cors(answer(request, services, state).await)) }
    });
    // What breaks a connection is the peer's business, and nobody else's.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(LARGEST_BUFFER)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    mut services: ConnectRpcService,
    state: Arc<State>,
) -> Response<Body> {
    if is_preflight(&request) {
        return preflight();
    }
    let (head, body) = request.into_parts();
    let body = match crate::http::admit(&head, body, &state).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    if is_connect(head.uri.path(), &state) {
        let request = Request::from_parts(head, body);
        return match services.call(request).await {
            Ok(response) => {
                response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
            }
            Err(never) => match never {},
        };
    }
    crate::http::respond(head, body, state).await
}

/// Whether a path is of a Connect service, and not of the plain routes.
fn is_connect(path: &str, state: &State) -> bool {
    path.starts_with("/process.Process/")
        || path.starts_with("/filesystem.Filesystem/")
        || soma::serves(path, state.protocol)
}

fn is_preflight(request: &Request<Incoming>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// A browser asks whether it may ask. It may: who may reach a sandbox is decided before.
fn preflight() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    response
}

fn with_cors(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_of_the_sandbox_is_turned_away() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(!may_connect(Peers::Outside, &here));
        assert!(may_connect(Peers::Anybody, &here));
    }
}
