//! Room for bodies that are held in memory as a whole.
//!
//! Each is bounded by itself; together they have one room, so that many large ones at once, or many
//! that never end, wait or are refused instead of growing the daemon. Small ones need no room, so
//! nobody's large requests keep small ones out.

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::ApiError;

/// What all large bodies may take together, in pieces.
const PIECE: usize = 64 << 10;
const PIECES: usize = (128 << 20) / PIECE;

/// How long a body may take from its first byte to its last, room included.
const WHOLE: Duration = Duration::from_mins(1);

/// How long one waits for room.
const PATIENCE: Duration = Duration::from_secs(5);

static ROOM: Room = Room(Semaphore::const_new(PIECES));

struct Room(Semaphore);

/// A body, and the room that it takes until it is let go.
#[derive(Debug)]
pub struct Held<'a> {
    bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
}

impl Held<'_> {
    /// The bytes by themselves, for whoever sends them on at once.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl Deref for Held<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body to its end, if it is not too large and does not take for ever.
pub async fn whole_body(
    headers: &HeaderMap,
    body: Body,
    most: usize,
) -> Result<Held<'static>, ApiError> {
    ROOM.hold(headers, body, most).await
}

impl Room {
    async fn hold(
        &self,
        headers: &HeaderMap,
        body: Body,
        most: usize,
    ) -> Result<Held<'_>, ApiError> {
        let said = headers.get(header::CONTENT_LENGTH);
        let length = said.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|length| length > most) {
            return Err(too_large(most));
        }
        let read = self.read(body, most, length.unwrap_or(most));
        timeout(WHOLE, read).await.unwrap_or_else(|_| {
            let message = format!(
                "the body did not come within {} seconds: send it again, in one go",
                WHOLE.as_secs()
            );
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
        })
    }

    async fn read(
        &self,
        mut body: Body,
        most: usize,
        expected: usize,
    ) -> Result<Held<'_>, ApiError> {
        let (mut bytes, mut room) = (BytesMut::new(), None);
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| ApiError::invalid("the body ended before it was complete"))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > most {
                return Err(too_large(most));
            }
            if length > PIECE && room.is_none() {
                room = Some(self.take(expected.max(length)).await?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Held { bytes: bytes.freeze(), _room: room })
    }

    async fn take(&self, length: usize) -> Result<SemaphorePermit<'_>, ApiError> {
        let pieces = u32::try_from(length.div_ceil(PIECE).min(PIECES)).unwrap_or(u32::MAX);
        match timeout(PATIENCE, self.0.acquire_many(pieces)).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large requests are being read at once: nothing of this one was done, \
                 send it again in a moment",
            )),
        }
    }
}

fn too_large(most: usize) -> ApiError {
    let message = format!("the body is larger than the {most} bytes that are taken here");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use futures::stream;

    use super::*;

    const MOST: usize = 10 << 20;

    /// A body of so many bytes, which then ends, or never does.
    fn body(length: usize, ends: bool) -> Body {
        let piece = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; length]))]);
        if ends {
            Body::from_stream(piece)
        } else {
            Body::from_stream(piece.chain(stream::pending()))
        }
    }

    async fn length(room: &Room, body: Body) -> Result<usize, StatusCode> {
        let held = room.hold(&HeaderMap::new(), body, MOST).await;
        held.map(|held| held.len()).map_err(|error| error.status())
    }

    #[tokio::test(start_paused = true)]
    async fn many_large_bodies_wait_for_each_other_and_small_ones_do_not() {
        let room = Room(Semaphore::const_new(2 * MOST / PIECE));
        let headers = HeaderMap::new();
        let one = room.hold(&headers, body(MOST, true), MOST).await.unwrap();
        let stuck = room.hold(&headers, body(MOST, false), MOST);
        tokio::pin!(stuck);
        assert!(timeout(Duration::from_secs(1), &mut stuck).await.is_err(), "it never ends");
        assert_eq!(length(&room, body(MOST, true)).await, Err(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(length(&room, body(PIECE, true)).await, Ok(PIECE));
        drop(one);
        assert_eq!(length(&room, body(MOST, true)).await, Ok(MOST));
        assert_eq!(stuck.await.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(room.0.available_permits(), 2 * MOST / PIECE);
    }

    #[tokio::test]
    async fn one_that_is_too_large_is_refused_whatever_it_says() {
        let room = Room(Semaphore::const_new(2 * MOST / PIECE));
        let refused = StatusCode::PAYLOAD_TOO_LARGE;
        assert_eq!(length(&room, body(MOST + 1, true)).await, Err(refused));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, (MOST + 1).into());
        let error = room.hold(&headers, body(0, true), MOST).await.unwrap_err();
        assert_eq!(error.status(), refused);
    }
}
