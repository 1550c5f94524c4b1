//! Listeners and the connections that come to them.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// How long a client may take to say what it wants.
const HEADERS: Duration = Duration::from_secs(30);

/// How long to wait when no connection can be taken: descriptors are short, most likely.
const SHORT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// How long requests that are under way may take when the daemon ends.
const DRAIN: Duration = Duration::from_secs(5);

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Somebody on this machine, whose user the kernel told and who may use the daemon.
    Local {
        /// Their user id.
        user: u32,
    },
    /// Somebody at an address.
    Remote(SocketAddr),
}

/// Where connections come to.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A socket in a folder, for these users.
    Unix {
        /// The socket.
        socket: UnixListener,
        /// Who may come.
        users: Vec<u32>,
    },
}

/// Why nobody can come.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has the address.
    #[error(
        "another program listens at {address}: stop it, or choose another address with --listen \
         or SOMA_LISTEN"
    )]
    InUse {
        /// Which address.
        address: SocketAddr,
    },
    /// It is no address of this machine, or may not be used.
    #[error("could not listen at {address}: {source}")]
    Address {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("could not make the socket `{path}`: {source}")]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Listener {
    /// Listens at an address.
    pub async fn at_address(address: SocketAddr) -> Result<Self, ListenError> {
        match TcpListener::bind(address).await {
            Ok(listener) => Ok(Self::Tcp(listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(ListenError::InUse { address })
            }
            Err(source) => Err(ListenError::Address { address, source }),
        }
    }

    /// Listens at a socket. One that an earlier daemon left is replaced: whoever calls this holds
    /// the lock of the home.
    pub fn at_path(path: &Path, users: Vec<u32>) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Socket { path: path.to_owned(), source };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let socket = UnixListener::bind(path).map_err(failed)?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).map_err(failed)?;
        Ok(Self::Unix { socket, users })
    }

    /// The address, if it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix { .. } => None,
        }
    }
}

/// A door that is open.
#[derive(Debug)]
pub struct Serving {
    ending: CancellationToken,
    connections: TaskTracker,
}

impl Serving {
    /// Takes no more connections, lets requests that are under way end, and ends all that are
    /// left after a while.
    pub async fn end(self) {
        self.ending.cancel();
        self.connections.close();
        if tokio::time::timeout(DRAIN, self.connections.wait()).await.is_err() {
            tracing::warn!(left = self.connections.len(), "requests were given up");
        }
    }
}

pub(crate) fn serve(router: &Router, listeners: Vec<Listener>) -> Serving {
    let (ending, connections) = (CancellationToken::new(), TaskTracker::new());
    for listener in listeners {
        let door = Door {
            router: router.clone(),
            ending: ending.clone(),
            connections: connections.clone(),
        };
        connections.spawn(door.attend(listener));
    }
    Serving { ending, connections }
}

struct Door {
    router: Router,
    ending: CancellationToken,
    connections: TaskTracker,
}

impl Door {
    async fn attend(self, listener: Listener) {
        loop {
            let came = tokio::select! {
                () = self.ending.cancelled() => return,
                came = self.accept(&listener) => came,
            };
            if let Err(error) = came {
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(SHORT_OF_DESCRIPTORS).await;
            }
        }
    }

    async fn accept(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are small, and somebody waits for each.
                let _ = stream.set_nodelay(true);
                self.welcome(stream, Peer::Remote(address));
            }
            Listener::Unix { socket, users } => {
                let (stream, _) = socket.accept().await?;
                match user_of(&stream) {
                    Ok(user) if users.contains(&user) => {
                        self.welcome(stream, Peer::Local { user });
                    }
                    // Others cannot open the socket at all; this is for when they can.
                    _ => tracing::warn!("somebody came to the socket who may not"),
                }
            }
        }
        Ok(())
    }

    fn welcome(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: Peer) {
        let (router, ending) = (self.router.clone(), self.ending.clone());
        self.connections.spawn(async move {
            let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(peer);
                router.clone().oneshot(request)
            });
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
            builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256);
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            // Why a connection broke is the client's affair.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = ending.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
}

fn user_of(stream: &UnixStream) -> io::Result<u32> {
    Ok(stream.peer_cred()?.uid())
}
