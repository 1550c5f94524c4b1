//! The client of `/v1` that the commands use.
//!
//! It speaks HTTP/1.1 to the daemon's unix socket, where the kernel says who it is, or to an
//! address with a key. What happens inside a sandbox goes through the same door to the guest,
//! by [`Client::guest`]: processes, terminals, files.
//!
//! Start at [`Client`]. The types are those of `api-v1` itself.

mod code;
mod connection;
mod error;
mod events;
mod lines;
mod network;
mod sandboxes;
mod server_events;
mod snapshots;
mod templates;

use std::path::PathBuf;
use std::sync::Arc;

use domain::Token;
use http::{HeaderMap, HeaderValue, header};
use tokio_util::task::TaskTracker;

pub use code::Executing;
pub use connection::Answer;
pub use error::ClientError;
pub use events::{Events, Told};
pub use network::NetworkAttempts;
pub use sandboxes::Held;

/// Where a daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At a socket on this machine.
    Socket(PathBuf),
    /// At `host:port`.
    Address(String),
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => write!(formatter, "{}", path.display()),
            Self::Address(address) => write!(formatter, "http://{address}"),
        }
    }
}

/// Asks one daemon. Clones are the same.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    key: Option<Token>,
    /// Each ends with the answer that it carries.
    connections: TaskTracker,
}

impl Client {
    /// A client of the daemon at this place. Nothing is dialled yet.
    pub fn new(place: Place, key: Option<Token>) -> Self {
        Self { shared: Arc::new(Shared { place, key, connections: TaskTracker::new() }) }
    }

    /// Where the daemon is.
    pub fn place(&self) -> &Place {
        &self.shared.place
    }

    /// What every request shows.
    fn headers(&self) -> Result<HeaderMap, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.shared.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.reveal()))
                .map_err(|_| ClientError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(headers)
    }
}
