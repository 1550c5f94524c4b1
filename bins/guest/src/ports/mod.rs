//! What listens inside the sandbox, as a stream of changes.
//!
//! The kernel tells nobody when a socket begins to listen, so this looks, four times a second,
//! and only while somebody follows. A port that was opened and closed between two looks is
//! missed. All followers share the looks.
//!
//! [`sockets`] reads what listens, [`holders`] finds the processes, [`look`] compares. [`whose`]
//! tells of one connection who holds it.

mod holders;
mod look;
mod sockets;
pub(crate) mod whose;

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connectrpc::{ConnectError, ServiceStream};
use futures::stream;
use guest_proto::soma::guest::v1::__buffa::oneof::ports_response::Event;
use guest_proto::soma::guest::v1::ports_response::{Changes, KeepAlive, Snapshot};
use guest_proto::soma::guest::v1::{
    Holder, Port, PortsResponse, Reach, Transport as TransportTold,
};
use tokio::sync::Mutex;

use look::{Look, Seen};
use sockets::{Address, Transport};

/// How long from one look to the next.
const PERIOD: Duration = Duration::from_millis(250);

/// A look this young serves another follower too.
const YOUNG: Duration = Duration::from_millis(100);

/// The looks that all followers share.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    last: Mutex<Option<(Instant, Arc<Look>)>>,
}

impl Watch {
    async fn look(&self) -> Result<Arc<Look>, ConnectError> {
        // Held while it looks, so that there is one look at a time however many follow.
        let mut last = self.last.lock().await;
        let before = match &*last {
            Some((at, look)) if at.elapsed() < YOUNG => return Ok(Arc::clone(look)),
            Some((_, look)) => Arc::clone(look),
            None => Arc::default(),
        };
        let look = tokio::task::spawn_blocking(move || Look::take(&before)).await;
        let look = Arc::new(look.map_err(|_| ConnectError::internal("the look was cut short"))?);
        *last = Some((Instant::now(), Arc::clone(&look)));
        Ok(look)
    }
}

/// Follows what listens: all of it, then the changes, until the deadline.
pub(crate) fn follow(
    watch: Arc<Watch>,
    keepalive: Duration,
    deadline: Option<Instant>,
) -> ServiceStream<PortsResponse> {
    let follower =
        Follower { watch, keepalive, deadline, told: None, spoke: Instant::now(), over: false };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        follower.over = event.is_err();
        Some((event, follower))
    }))
}

struct Follower {
    watch: Arc<Watch>,
    keepalive: Duration,
    deadline: Option<Instant>,
    /// The look that the client knows.
    told: Option<Arc<Look>>,
    /// When it was last told anything.
    spoke: Instant,
    over: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<PortsResponse, ConnectError>> {
        if self.over {
            return None;
        }
        let event = self.event().await;
        self.spoke = Instant::now();
        Some(event.map(|event| PortsResponse { event: Some(event), ..PortsResponse::default() }))
    }

    async fn event(&mut self) -> Result<Event, ConnectError> {
        let Some(mut told) = self.told.take() else {
            let look = self.watch.look().await?;
            let ports = look.ports.iter().map(|(address, seen)| port(*address, seen)).collect();
            self.told = Some(look);
            return Ok(Snapshot { ports, ..Snapshot::default() }.into());
        };
        loop {
            let now = Instant::now();
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                return Err(ConnectError::deadline_exceeded("the time to follow ports is over"));
            }
            tokio::time::sleep(left.unwrap_or(PERIOD).min(PERIOD)).await;
            let look = self.watch.look().await?;
            let changes = told.changes(&look);
            told = look;
            if !changes.is_empty() {
                self.told = Some(told);
                return Ok(tell(&changes).into());
            }
            if self.spoke.elapsed() >= self.keepalive {
                self.told = Some(told);
                return Ok(KeepAlive::default().into());
            }
        }
    }
}

fn tell(changes: &look::Changes) -> Changes {
    let ports = |ports: &[(Address, Seen)]| {
        ports.iter().map(|(address, seen)| port(*address, seen)).collect()
    };
    Changes { opened: ports(&changes.opened), closed: ports(&changes.closed), ..Changes::default() }
}

fn port(address: Address, seen: &Seen) -> Port {
    let transport = match address.transport {
        Transport::Tcp => TransportTold::TRANSPORT_TCP,
        Transport::Tcp6 => TransportTold::TRANSPORT_TCP6,
        Transport::Udp => TransportTold::TRANSPORT_UDP,
        Transport::Udp6 => TransportTold::TRANSPORT_UDP6,
    };
    let holder = seen.holder.as_ref().map(|holder| Holder {
        pid: holder.pid,
        name: holder.name.clone(),
        ..Holder::default()
    });
    Port {
        transport: transport.into(),
        address: address.ip.to_string(),
        port: u32::from(address.port),
        reach: reach(address.ip).into(),
        uid: seen.uid,
        holder: holder.into(),
        ..Port::default()
    }
}

fn reach(ip: IpAddr) -> Reach {
    // An IPv4 address may wear the clothes of an IPv6 one.
    let ip = ip.to_canonical();
    if ip.is_loopback() {
        Reach::REACH_LOOPBACK
    } else if ip.is_unspecified() {
        Reach::REACH_ALL
    } else {
        Reach::REACH_ADDRESS
    }
}

/// The start of a file of `/proc`, which is short when it is the kernel's.
fn read_start(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads bytes as the kernel's tables, for fuzzing.
#[cfg(feature = "fuzzing")]
pub(crate) fn parse_table(bytes: &[u8]) {
    for transport in [Transport::Tcp, Transport::Udp6] {
        let mut sockets = Vec::new();
        sockets::read(transport, bytes, &mut sockets);
        assert!(sockets.len() <= sockets::MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_told_for_both_kinds_of_addresses() {
        for (text, expected) in [
            ("127.0.0.1", Reach::REACH_LOOPBACK),
            ("127.9.9.9", Reach::REACH_LOOPBACK),
            ("::1", Reach::REACH_LOOPBACK),
            ("::ffff:127.0.0.1", Reach::REACH_LOOPBACK),
            ("0.0.0.0", Reach::REACH_ALL),
            ("::", Reach::REACH_ALL),
            ("10.0.0.1", Reach::REACH_ADDRESS),
            ("fe80::1", Reach::REACH_ADDRESS),
        ] {
            assert_eq!(reach(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_silent_stream_says_that_it_lives_and_ends_at_its_deadline() {
        use futures::StreamExt as _;
        let deadline = Instant::now() + Duration::from_millis(1500);
        let watch = Arc::default();
        let mut events = follow(watch, Duration::from_millis(300), Some(deadline));
        let mut told = 0;
        let error = loop {
            match events.next().await.unwrap() {
                Ok(_) => told += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.code, connectrpc::ErrorCode::DeadlineExceeded);
        assert!(events.next().await.is_none());
        // The snapshot, and a sign of life at every second look; what others open on this
        // machine meanwhile is one too.
        assert!((3..=7).contains(&told), "{told}");
    }
}
