//! Room for large values, one for all kernels and one for all readers.
//!
//! A value has up to 8 MiB. A kernel can be in the midst of one, and a reader that takes nothing
//! has the one that it is being sent. Each is bounded by itself; so that all of them together do
//! not fill the guest's memory, whoever is to hold a large one takes room for it first. What finds
//! none is left out, and that is said.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Less than this is not counted: other bounds hold it.
const SMALL: usize = 128 << 10;

/// Room is counted in pieces of so much.
const PIECE: usize = 16 << 10;

/// For what kernels are saying: the guest has 256 MiB for everything.
pub(super) static COMING: Room = Room::of(48 << 20);

/// For what is on its way to readers.
pub(super) static GOING: Room = Room::of(80 << 20);

/// Room for so much at one time.
#[derive(Debug)]
pub(super) struct Room {
    pieces: Semaphore,
}

/// A part of a room, until this is dropped. What is small has none and needs none.
pub(super) type Held = SemaphorePermit<'static>;

/// There is no room.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Room {
    const fn of(bytes: usize) -> Self {
        Self { pieces: Semaphore::const_new(bytes / PIECE) }
    }

    /// Room for so many bytes, if there is some now.
    pub(super) fn take(&'static self, bytes: usize) -> Result<Option<Held>, Full> {
        if bytes < SMALL {
            return Ok(None);
        }
        self.pieces.try_acquire_many(pieces(bytes)).map(Some).map_err(|_| Full)
    }

    /// Room for so many bytes, if there is some before long.
    pub(super) async fn wait_for(
        &'static self,
        bytes: usize,
        patience: Duration,
    ) -> Result<Option<Held>, Full> {
        if bytes < SMALL {
            return Ok(None);
        }
        let taken = timeout(patience, self.pieces.acquire_many(pieces(bytes))).await;
        taken.map_err(|_| Full)?.map(Some).map_err(|_| Full)
    }
}

fn pieces(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX)
}

struct Kept {
    content: Vec<u8>,
    _held: Vec<Held>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// Bytes that hold their room until the last of them is sent.
pub(super) fn holding(content: Vec<u8>, held: Vec<Held>) -> Bytes {
    if held.is_empty() {
        return content.into();
    }
    Bytes::from_owner(Kept { content, _held: held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_room_takes_nothing_large_until_something_is_sent() {
        static ROOM: Room = Room::of(1 << 20);
        let first = holding(vec![0; 800 << 10], vec![ROOM.take(800 << 10).unwrap().unwrap()]);
        let slice = first.slice(10..20);
        assert!(ROOM.take(300 << 10).is_err());
        assert!(ROOM.wait_for(300 << 10, Duration::from_secs(2)).await.is_err());
        // What is small is always taken.
        assert!(ROOM.take(SMALL - 1).unwrap().is_none());
        drop(first);
        assert!(ROOM.take(300 << 10).is_err(), "a part of it is still there");
        drop(slice);
        assert!(ROOM.wait_for(300 << 10, Duration::from_secs(2)).await.is_ok());
        assert!(ROOM.take(2 << 20).is_err());
    }
}
