//! The guest of a sandbox in memory: serves the real protocol on pipes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use connectrpc::{ConnectRpcBody, ConnectRpcService, Router};
use domain::SandboxSpec;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::files::{self, Files};
use super::processes::Processes;
use super::tree::Tree;

/// What lies on a pipe between the guest and who speaks with it.
const PIPE: usize = 256 << 10;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) struct Guest {
    environment: BTreeMap<String, String>,
    tree: Arc<Tree>,
    service: ConnectRpcService<Router>,
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl Guest {
    pub(super) fn new(spec: &SandboxSpec) -> Self {
        Self::with(spec.environment.clone(), Arc::new(Tree::new()))
    }

    /// The guest of the same sandbox after a start: with its files, without its processes.
    pub(super) fn again(&self) -> Self {
        Self::with(self.environment.clone(), Arc::clone(&self.tree))
    }

    fn with(environment: BTreeMap<String, String>, tree: Arc<Tree>) -> Self {
        let (tasks, ended) = (TaskTracker::new(), CancellationToken::new());
        let processes = Processes::new(Arc::clone(&tree), tasks.clone(), ended.clone());
        let router = Router::new()
            .add_service(Arc::new(processes))
            .add_service(Arc::new(Files { tree: Arc::clone(&tree) }));
        let service = ConnectRpcService::new(router);
        Self { environment, tree, service, tasks, ended }
    }

    /// The far end of a fresh connection.
    pub(super) fn connect(self: &Arc<Self>) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE);
        let guest = Arc::clone(self);
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            let answer = service_fn(move |request| answer(Arc::clone(&guest), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(near), answer);
            // Why a connection ended is the affair of whoever was at its other end.
            let _ = ended.run_until_cancelled(connection).await;
        });
        far
    }

    /// Ends everything at once.
    pub(super) fn stop(&self) {
        self.ended.cancel();
        self.tasks.close();
    }

    /// Ends everything, and waits for it.
    pub(super) async fn end(&self) {
        self.stop();
        self.tasks.wait().await;
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Guest").finish_non_exhaustive()
    }
}

async fn answer(
    guest: Arc<Guest>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/health") => plain(StatusCode::NO_CONTENT, Bytes::new()),
        (&Method::GET, "/envs") => {
            let words = serde_json::to_vec(&guest.environment).unwrap_or_default();
            plain(StatusCode::OK, words.into())
        }
        (&Method::GET, "/metrics") => {
            let words = r#"{"ts":0,"cpu_count":1,"cpu_used_pct":0,"mem_total":1,"mem_used":1}"#;
            plain(StatusCode::OK, words.into())
        }
        (&Method::GET, "/files") => files::download(&guest.tree, request.uri()),
        (&Method::POST, "/files") => files::upload(&guest.tree, request).await,
        _ => {
            let Ok(answer) = guest.service.clone().call(request).await;
            answer.map(ConnectRpcBody::boxed_unsync)
        }
    })
}

pub(super) fn plain(status: StatusCode, words: Bytes) -> Response<Body> {
    let body = Full::new(words).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}
