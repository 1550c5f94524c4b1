//! The events of one process as one client gets them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use connectrpc::{ConnectError, ServiceStream};
use futures::stream;
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::timeout;

use super::audience::{Ahead, Following};
use super::ending::Ending;
use super::event::Event;
use super::running::Process;

/// How long nothing is sent before a sign of life, when the client does not say.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// Why a stream stops before the process is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The client started the process: its deadline is the process's, which is then killed.
    Ended,
    /// The client only follows: its deadline ends the stream and nothing else.
    Deadline(Option<Instant>),
}

/// Follows a process: its start, its output from an offset or from now on, its end.
pub(super) fn follow(
    process: Arc<Process>,
    from: Option<u64>,
    until: Until,
    headers: &HeaderMap,
) -> Result<ServiceStream<Event>, Ahead> {
    let following = process.audience.follow(from)?;
    let follower = Follower {
        start: Some(Event::Start { pid: process.pid, offset: following.offset }),
        following,
        until,
        keepalive: keepalive(headers),
        exited: wants_exit(headers).then(|| process.exited.subscribe()),
        process,
        over: false,
    };
    Ok(Box::pin(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((event, follower))
    })))
}

struct Follower {
    process: Arc<Process>,
    start: Option<Event>,
    following: Following,
    until: Until,
    keepalive: Duration,
    /// Where the end of the command is heard of, until it was told; unset for those who do not
    /// want to know.
    exited: Option<watch::Receiver<Option<Ending>>>,
    over: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, ConnectError>> {
        if let Some(start) = self.start.take() {
            return Some(Ok(start));
        }
        if let Some(event) = self.following.held.pop_front() {
            return Some(Ok(event));
        }
        if self.over {
            return None;
        }
        // The usual case has no timer: a busy process never waits here.
        if let Ok(event) = self.following.queue.try_recv() {
            return Some(Ok(event));
        }
        let left = match self.until {
            Until::Deadline(Some(deadline)) => deadline.saturating_duration_since(Instant::now()),
            Until::Deadline(None) | Until::Ended => Duration::MAX,
        };
        let next = async {
            tokio::select! {
                // What was written before the command ended is told before its end.
                biased;
                event = self.following.queue.recv() => event,
                ending = exit(self.exited.as_mut()) => Some(Event::Exited(ending)),
            }
        };
        match timeout(self.keepalive.min(left), next).await {
            Ok(Some(event)) => {
                if matches!(event, Event::Exited(_)) {
                    self.exited = None;
                }
                Some(Ok(event))
            }
            Ok(None) => Some(self.end()),
            Err(_) if left <= self.keepalive => {
                self.over = true;
                Some(Err(ConnectError::deadline_exceeded("the time to follow the process is over")))
            }
            Err(_) => Some(Ok(Event::KeepAlive)),
        }
    }

    fn end(&mut self) -> Result<Event, ConnectError> {
        self.over = true;
        match self.process.audience.ending() {
            Some(ending) if ending.expired && self.until == Until::Ended => {
                Err(ConnectError::deadline_exceeded("the process ran out of time and was killed"))
            }
            Some(ending) => Ok(Event::End(ending)),
            // The queue is closed at the end only.
            None => Err(ConnectError::internal("the end of the process was missed")),
        }
    }
}

/// Waits for the end of a command; for ever where nobody wants to know.
async fn exit(exited: Option<&mut watch::Receiver<Option<Ending>>>) -> Ending {
    let known = match exited {
        Some(exited) => exited.wait_for(Option::is_some).await.ok().and_then(|ending| *ending),
        None => None,
    };
    match known {
        Some(ending) => ending,
        None => std::future::pending().await,
    }
}

/// Whether the client wants to hear that the command ended before its output has.
fn wants_exit(headers: &HeaderMap) -> bool {
    headers.get("soma-exit").is_some_and(|value| value == "told")
}

/// The client's wish, in whole seconds; what makes no sense counts as none.
pub(crate) fn keepalive(headers: &HeaderMap) -> Duration {
    headers
        .get("keepalive-ping-interval")
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .filter(|seconds| *seconds > 0)
        .map_or(KEEPALIVE, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_senseless_interval_is_ninety_seconds() {
        let with = |value| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static("keepalive-ping-interval"),
                HeaderValue::from_static(value),
            )])
        };
        assert_eq!(keepalive(&with("50")), Duration::from_secs(50));
        for senseless in ["", "0", "-3", "soon", "1.5"] {
            assert_eq!(keepalive(&with(senseless)), KEEPALIVE, "{senseless}");
        }
        assert_eq!(keepalive(&HeaderMap::new()), KEEPALIVE);
    }
}
