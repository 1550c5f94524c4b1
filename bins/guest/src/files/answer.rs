//! What a search found, on its way out.
//!
//! Such an answer may be large, and a client that asks for many and reads none must not take the
//! guest's memory. So a search has a place, of which there are few, and a large answer keeps it
//! until its last byte was sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::{CodecFormat, ConnectError, Encodable};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::FileError;

/// Searches, and large answers that are sent, at the same time. Each is at most 12 MiB of text,
/// twice while it is written out.
static PLACES: Semaphore = Semaphore::const_new(4);

/// From this size on an answer keeps its place.
const LARGE: usize = 64 << 10;

/// How long a search waits for a place.
const PATIENCE: Duration = Duration::from_secs(20);

/// The place of a search.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: SemaphorePermit<'static>,
}

impl Place {
    /// Waits for a place, but not for ever.
    pub(crate) async fn take() -> Result<Self, FileError> {
        match tokio::time::timeout(PATIENCE, PLACES.acquire()).await {
            Ok(Ok(permit)) => Ok(Self { _permit: permit }),
            _ => Err(FileError::in_the_way(
                "other searches are being made or read; try again when they are done",
            )),
        }
    }

    /// Lets an answer keep the place.
    pub(crate) fn keep<M>(self, message: M) -> Answer<M> {
        Answer { message, place: Arc::new(self) }
    }
}

/// An answer that has a place.
#[derive(Debug)]
pub(crate) struct Answer<M> {
    message: M,
    place: Arc<Place>,
}

impl<M: Encodable<M>> Encodable<M> for Answer<M> {
    fn encode(&self, codec: CodecFormat) -> Result<Bytes, ConnectError> {
        let bytes = self.message.encode(codec)?;
        if bytes.len() < LARGE {
            return Ok(bytes);
        }
        Ok(Bytes::from_owner(Held { bytes, _place: Arc::clone(&self.place) }))
    }
}

/// Holds the place until the last byte was sent.
struct Held {
    bytes: Bytes,
    _place: Arc<Place>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
