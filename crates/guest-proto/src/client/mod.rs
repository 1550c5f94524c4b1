//! The client of a guest: typed calls over any byte stream.
//!
//! [`GuestClient`] asks a [`Dial`] for streams and speaks HTTP/1.1 with Connect RPC on them, in
//! binary protobuf. It does not care whether a stream is a unix socket, a vsock or a pipe.
//!
//! A guest is hostile: code that broke out inside a sandbox may be the one that answers. So
//! every answer has a bound ([`MESSAGE_LIMIT`] and its like), every short
//! call has a time limit, and words from a guest are made harmless before they are shown.
//!
//! Start at [`GuestClient`]; the calls are in the files of their subject.

mod error;
mod files;
mod filesystem;
mod forward;
mod metrics;
mod ports;
mod process;
mod state;
mod terminal;
mod transfer;
mod transport;
mod version;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use connectrpc::client::{CallOptions, ClientConfig};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::sync::OnceCell;

pub use error::{BoxError, GuestError};
pub use files::{
    Attributes, CopyOptions, Found, GlobOptions, GrepOptions, Line, Lines, MakeDirectory,
};
pub use forward::traced;
pub use metrics::{CpuUsage, DiskUsage, Interface, MemoryUsage, Metrics, ProcessesUsage, Source};
pub use ports::{Holder, Port, Ports, PortsEvent, Reach, Transport as PortTransport};
pub use process::{Ended, Event, Running, StartOptions};
pub use state::{Init, LimitsTold};
pub use terminal::{TerminalInput, TerminalSize};
pub use transfer::Download;
pub use transport::Dial;
use transport::Transport;
pub use version::GuestVersion;
pub use watch::{Change, WatchOptions, Watching};

use crate::filesystem::FilesystemClient;
use crate::process::ProcessClient;
use crate::soma::guest::v1::GuestClient as OwnClient;

/// The most that one answer of a call may have, listings of folders apart.
pub const MESSAGE_LIMIT: usize = 16 << 20;
/// The most that a listing may have: as much as a guest makes, so that a folder with a hundred
/// thousand files can be listed.
pub const LISTING_LIMIT: usize = 48 << 20;
/// What the things in an answer may take beside their bytes: an empty one has two bytes on the way
/// and hundreds here.
const THINGS_LIMIT: usize = 8 << 20;
/// The same of a listing: as many entries as a guest makes.
const LISTED_LIMIT: usize = 128 << 20;
/// The most that one event of a stream may have. Guests send pieces far smaller.
pub const EVENT_LIMIT: usize = 4 << 20;
/// The most that a plain HTTP answer may have, file bodies apart.
pub const ANSWER_LIMIT: usize = 1 << 20;

/// Where a guest looks for its token.
const TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// How long a call may take that only asks or changes something small.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Speaks with one guest. Clones share their connections.
#[derive(Clone)]
pub struct GuestClient {
    transport: Transport,
    processes: ProcessClient<Transport>,
    files: FilesystemClient<Transport>,
    own: OwnClient<Transport>,
    version: Arc<OnceCell<GuestVersion>>,
}

impl GuestClient {
    /// A client that gets its connections from `dial`, none of them before the first call.
    pub fn new(dial: impl Dial) -> Self {
        Self::over(Transport::new(dial))
    }

    /// The same client with a token, which every call shows from now on.
    ///
    /// The guest learned it by [`GuestClient::init`]. It shares the connections of this one.
    pub fn with_token(&self, token: &str) -> Result<Self, GuestError> {
        // The token is not told: errors end in logs.
        let token = HeaderValue::from_str(token).map_err(|_| GuestError::InvalidArgument {
            message: "the access token cannot be sent in a header".to_owned(),
        })?;
        Ok(self.with_headers(HeaderMap::from_iter([(TOKEN, token)])))
    }

    /// The same client, whose calls show these headers from now on, which are taken for secrets:
    /// for a guest that is reached through somebody else.
    #[must_use]
    pub fn with_headers(&self, headers: HeaderMap) -> Self {
        Self::over(self.transport.with_headers(headers))
    }

    fn over(transport: Transport) -> Self {
        let config = ClientConfig::new(Uri::from_static(transport::BASE))
            .proto()
            .with_default_max_message_size(MESSAGE_LIMIT)
            .with_default_element_memory_limit(THINGS_LIMIT);
        Self {
            processes: ProcessClient::new(transport.clone(), config.clone()),
            files: FilesystemClient::new(transport.clone(), config.clone()),
            own: OwnClient::new(transport.clone(), config),
            version: Arc::default(),
            transport,
        }
    }

    /// Closes the connections that nobody uses now, as must be done before a sandbox is dumped.
    pub fn close_idle(&self) {
        self.transport.close_idle();
    }
}

impl fmt::Debug for GuestClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GuestClient").finish_non_exhaustive()
    }
}

/// The options of a call that is short.
fn short() -> CallOptions {
    CallOptions::default().with_timeout(CALL_TIMEOUT)
}

/// Names the user a call is for, the way E2B's agent takes it: as a password-less Basic user.
fn as_user(options: CallOptions, user: Option<&str>) -> Result<CallOptions, GuestError> {
    let Some(user) = user else { return Ok(options) };
    if user.is_empty() || user.contains([':', '\0']) {
        // Neither can be a user's name, and a colon would be cut off on the way.
        return Err(GuestError::UnknownUser { message: format!("invalid username: '{user}'") });
    }
    let words = base64::engine::general_purpose::STANDARD.encode(format!("{user}:"));
    Ok(options.with_header("authorization", format!("Basic {words}")))
}
