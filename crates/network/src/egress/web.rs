//! Passes HTTP on, request by request, each for the host that the connection is to.
//!
//! A connection of the client's has one to its server, and both speak the same version. So nothing
//! is translated, and a protocol that a connection is upgraded to passes as it is. With TLS that
//! was ended here, headers are changed on the way ([`change`]).

mod change;
mod client;
mod redact;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use domain::NetworkProtocol;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::gate::explanation;
use super::judge::{self, Verdict};
use super::log::Attempt;
use super::relay::Counts;
use super::sandbox::{Sandbox, Subject};
use super::whose::Asked;
use super::world::World;
use change::Change;
pub(crate) use client::Client;
use redact::Redacted;

/// The most that the head of a request or an answer may have.
const LARGEST_HEAD: usize = 64 * 1024;
/// What one stream and one connection of HTTP/2 may have under way, and how many streams there are:
/// all sandboxes share this program's memory.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const MOST_STREAMS: u32 = 64;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// What is known of a connection that speaks HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    pub(crate) world: Arc<World>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) subject: Subject,
    /// Whether its TLS was ended here.
    pub(crate) is_secure: bool,
    pub(crate) counts: Arc<Counts>,
    pub(crate) whose: Asked,
}

/// Passes HTTP/1 on, in clear.
pub(crate) async fn serve_plain(
    web: Web,
    client: Client<tokio::net::TcpStream>,
    server: tokio::net::TcpStream,
) -> io::Result<()> {
    serve_1(web, client, server).await
}

/// Passes HTTP/1 on.
pub(crate) async fn serve_1<C, S>(web: Web, client: C, server: S) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, to_server) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(LARGEST_HEAD)
        .handshake::<_, Body>(TokioIo::new(server))
        .await
        .map_err(io::Error::other)?;
    let sender = Arc::new(tokio::sync::Mutex::new(sender));
    let upgraded: Arc<Mutex<Option<BoxFuture<'static, ()>>>> = Arc::default();
    let (later, shared) = (Arc::clone(&upgraded), web);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (web, sender, later) = (shared.clone(), Arc::clone(&sender), Arc::clone(&later));
        async move {
            let on_client = hyper::upgrade::on(&mut request);
            let (request, change) = match web.prepare(request) {
                Ok(prepared) => prepared,
                Err(answer) => return Ok::<_, hyper::Error>(*answer),
            };
            let mut sender = sender.lock().await;
            if sender.ready().await.is_err() {
                return Ok(bad_gateway("the server closed the connection"));
            }
            let mut response = match sender.send_request(request).await {
                Ok(response) => response,
                Err(error) => return Ok(bad_gateway(&error.to_string())),
            };
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let on_server = hyper::upgrade::on(&mut response);
                *later.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Box::pin(pass_upgraded(on_client, on_server)));
            }
            Ok(finish(response, change))
        }
    });
    let from_client = hyper::server::conn::http1::Builder::new()
        .preserve_header_case(true)
        .half_close(true)
        .max_buf_size(LARGEST_HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(client), service)
        .with_upgrades();
    let to_server = to_server.with_upgrades();
    tokio::pin!(from_client, to_server);
    let mut is_server_done = false;
    let result = tokio::select! {
        result = from_client.as_mut() => result,
        _ = to_server.as_mut() => {
            is_server_done = true;
            // The server wants no more; what is under way is finished.
            from_client.as_mut().graceful_shutdown();
            from_client.await
        }
    };
    let upgraded = upgraded.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(upgraded) = upgraded {
        let server = async {
            if !is_server_done {
                let _ = to_server.await;
            }
        };
        tokio::join!(upgraded, server);
    }
    result.map_err(io::Error::other)
}

/// Passes HTTP/2 on, in TLS that was ended here.
pub(crate) async fn serve_2<C, S>(web: Web, client: C, server: S) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tasks = Tasks(web.world.tasks.clone());
    let (sender, to_server) = hyper::client::conn::http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .handshake::<_, Body>(TokioIo::new(server))
        .await
        .map_err(io::Error::other)?;
    let service = service_fn(move |request: Request<Incoming>| {
        let (web, mut sender) = (web.clone(), sender.clone());
        async move {
            let (request, change) = match web.prepare(request) {
                Ok(prepared) => prepared,
                Err(answer) => return Ok::<_, hyper::Error>(*answer),
            };
            match sender.send_request(request).await {
                Ok(response) => Ok(finish(response, change)),
                Err(error) => Ok(bad_gateway(&error.to_string())),
            }
        }
    });
    let from_client = hyper::server::conn::http2::Builder::new(tasks)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(client), service);
    tokio::pin!(from_client, to_server);
    let result = tokio::select! {
        result = from_client.as_mut() => result,
        _ = to_server.as_mut() => {
            from_client.as_mut().graceful_shutdown();
            from_client.await
        }
    };
    result.map_err(io::Error::other)
}

impl Web {
    /// A request as it is sent on, with what is to be hidden in its answer; or the answer, when it
    /// is not sent on.
    fn prepare(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<(Request<Body>, Change), Box<Response<Body>>> {
        let rules = self.sandbox.rules();
        let policy = &rules.rules.policy;
        if let Err(verdict) = self.check_host(policy, &request) {
            self.write(&verdict);
            let status = if self.is_secure && verdict.rule == "other name" {
                StatusCode::MISDIRECTED_REQUEST
            } else {
                StatusCode::FORBIDDEN
            };
            return Err(Box::new(answer(status, explanation(&self.subject, &verdict))));
        }
        if request.version() < Version::HTTP_2 && request.method() != Method::CONNECT {
            to_origin_form(&mut request);
            refuse_http2(&mut request);
        }
        let name = self.subject.name.as_deref();
        let change = name.map_or_else(Change::default, |name| {
            Change::of(&policy.transforms, name, self.is_secure)
        });
        change.apply(request.headers_mut()).map_err(|text| Box::new(bad_gateway(&text)))?;
        Ok((request.map(BodyExt::boxed_unsync), change))
    }

    /// Whether every host that a request names is the one that the connection is to.
    fn check_host(
        &self,
        policy: &domain::NetworkPolicy,
        request: &Request<Incoming>,
    ) -> Result<(), Verdict> {
        let missing = |text: &str| Verdict::refused("no host", text);
        let mut named = Vec::new();
        named.extend(request.uri().authority().map(|authority| authority.as_str().to_owned()));
        for value in request.headers().get_all(HOST) {
            let value =
                value.to_str().map_err(|_| missing("the Host of the request is no text"))?;
            named.push(value.to_owned());
        }
        if named.is_empty() || request.headers().get_all(HOST).iter().count() > 1 {
            return Err(missing("the request must name one Host"));
        }
        for host in named {
            if let Some(address) = address_of(&host)
                && self.subject.name.is_none()
            {
                // An address names nobody that the connection does not name.
                if address == self.subject.address {
                    continue;
                }
            }
            let verdict = judge::spoken(policy, self.subject.name.as_deref(), without_port(&host));
            if !verdict.allowed {
                return Err(verdict);
            }
        }
        Ok(())
    }

    fn write(&self, verdict: &Verdict) {
        let mut attempt = Attempt::new(NetworkProtocol::Http, self.subject.port);
        attempt.name.clone_from(&self.subject.name);
        attempt.address = self.subject.name.is_none().then_some(self.subject.address);
        attempt.process = self.whose.now();
        self.sandbox.log.write(attempt, verdict);
    }
}

/// The answer of a server, with what is secret hidden in it.
fn finish(response: Response<Incoming>, change: Change) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    change.hide(&mut parts.headers);
    let body = match change.into_secrets() {
        secrets if secrets.is_empty() => body.boxed_unsync(),
        secrets => Redacted::new(body, secrets).boxed_unsync(),
    };
    Response::from_parts(parts, body)
}

/// `GET http://host/path` is for proxies; a server gets the path.
fn to_origin_form(request: &mut Request<Incoming>) {
    let Some(authority) = request.uri().authority().cloned() else { return };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    if let Ok(uri) = path.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
        request.headers_mut().insert(HOST, host);
    }
}

/// A connection that becomes HTTP/2 would be read no further, so that offer is taken out.
fn refuse_http2(request: &mut Request<Incoming>) {
    const SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
    let is_http2 = |value: &HeaderValue| {
        let words = value.as_bytes().to_ascii_lowercase();
        words.split(|byte| *byte == b',').any(|word| word.trim_ascii().starts_with(b"h2"))
    };
    if request.headers().get_all(UPGRADE).iter().any(is_http2) {
        let headers = request.headers_mut();
        headers.remove(UPGRADE);
        headers.remove(SETTINGS);
        headers.remove(CONNECTION);
    }
}

/// After an upgrade nothing is looked at any more.
async fn pass_upgraded(client: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) {
    if let (Ok(client), Ok(server)) = tokio::join!(client, server) {
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        // Either may break off at any time.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn address_of(host: &str) -> Option<std::net::IpAddr> {
    let bare = without_port(host);
    bare.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn bad_gateway(reason: &str) -> Response<Body> {
    answer(StatusCode::BAD_GATEWAY, format!("soma: the request could not be passed on: {reason}\n"))
}

fn answer(status: StatusCode, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Runs what HTTP/2 needs beside its connection among the program's tasks.
#[derive(Debug, Clone)]
struct Tasks(tokio_util::task::TaskTracker);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
