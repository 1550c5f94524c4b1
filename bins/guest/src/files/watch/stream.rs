//! A watcher as a stream of events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use connectrpc::{ConnectError, ServiceStream};
use futures::stream;
use guest_proto::filesystem::__buffa::oneof::watch_dir_response::Event;
use guest_proto::filesystem::watch_dir_response::{KeepAlive, StartEvent};
use guest_proto::filesystem::{FilesystemEvent, WatchDirResponse};
use tokio::time::timeout;

use super::Watcher;

/// Events that are described in one go.
const BATCH: usize = 128;

/// Tells what the watcher sees, until the client goes or its time is over.
pub(crate) fn follow(
    watcher: Watcher,
    deadline: Option<Instant>,
    keepalive: Duration,
) -> ServiceStream<WatchDirResponse> {
    let follower = Follower {
        watcher,
        deadline,
        keepalive,
        begun: false,
        over: false,
        ready: VecDeque::new(),
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        let response = event
            .map(|event| WatchDirResponse { event: Some(event), ..WatchDirResponse::default() });
        Some((response, follower))
    }))
}

struct Follower {
    watcher: Watcher,
    deadline: Option<Instant>,
    keepalive: Duration,
    begun: bool,
    over: bool,
    /// Taken and not sent yet.
    ready: VecDeque<FilesystemEvent>,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, ConnectError>> {
        if !self.begun {
            self.begun = true;
            return Some(Ok(Event::from(StartEvent::default())));
        }
        if self.over {
            return None;
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(Event::from(event)));
            }
            match self.watcher.take(BATCH).await {
                Ok(taken) => self.ready = taken.into(),
                Err(error) => {
                    self.over = true;
                    return Some(Err(error.into()));
                }
            }
            if !self.ready.is_empty() {
                continue;
            }
            let left = self.deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if timeout(self.keepalive.min(left), self.watcher.changed()).await.is_ok() {
                continue;
            }
            if left <= self.keepalive {
                self.over = true;
                return Some(Err(ConnectError::deadline_exceeded("the time to watch is over")));
            }
            return Some(Ok(Event::from(KeepAlive::default())));
        }
    }
}
