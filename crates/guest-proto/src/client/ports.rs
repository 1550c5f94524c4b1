//! What listens inside a sandbox.

use std::net::IpAddr;

use connectrpc::client::{CallOptions, ServerStream};

use super::error::harmless;
use super::transport::GuestBody;
use super::{EVENT_LIMIT, GuestClient, GuestError};
use crate::soma::guest::v1::__buffa::oneof::ports_response::Event;
use crate::soma::guest::v1::{self as wire, PortsRequest, PortsResponseView};
use crate::version::PORTS;

/// A port that takes connections or datagrams, in the guest's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// How it is spoken to.
    pub transport: Transport,
    /// Where it listens.
    pub address: IpAddr,
    /// Its number.
    pub port: u16,
    /// Who can reach it.
    pub reach: Reach,
    /// Who made the socket, by the sandbox's own ids.
    pub uid: u32,
    /// A process that has it open, where the guest may know.
    pub holder: Option<Holder>,
}

/// A process that has a port open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its id inside the sandbox.
    pub pid: u32,
    /// What it calls itself. Nobody vouches for it.
    pub name: String,
}

/// How a port is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6, and over IPv4 where it listens on all addresses.
    Tcp6,
    /// Datagrams over IPv4.
    Udp,
    /// Datagrams over IPv6.
    Udp6,
}

/// Who can reach a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Only what is in the sandbox.
    Loopback,
    /// Whoever reaches any address of the sandbox.
    All,
    /// Whoever reaches this one address.
    Address,
}

/// What is known of the ports, or what changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortsEvent {
    /// All of them. Always the first event.
    Snapshot(Vec<Port>),
    /// What changed since the event before.
    Changes {
        /// New ports, and known ones that another process holds now.
        opened: Vec<Port>,
        /// Ports that are gone.
        closed: Vec<Port>,
    },
}

/// The ports of a sandbox, followed. Dropping this ends it.
#[derive(Debug)]
pub struct Ports {
    stream: ServerStream<GuestBody, PortsResponseView<'static>>,
}

impl Ports {
    /// The next thing that happens.
    ///
    /// Cancellation-safe: an event that was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<PortsEvent, GuestError> {
        loop {
            let Some(message) = self.stream.message().await? else {
                let message = "the stream of ports was over before its time".to_owned();
                return Err(GuestError::Unavailable { message });
            };
            match message.to_owned_message().event {
                Some(Event::Snapshot(snapshot)) => {
                    return Ok(PortsEvent::Snapshot(known(snapshot.ports)));
                }
                Some(Event::Changes(changes)) => {
                    let (opened, closed) = (known(changes.opened), known(changes.closed));
                    return Ok(PortsEvent::Changes { opened, closed });
                }
                // A sign of life, or an event of a newer guest.
                Some(Event::Keepalive(_)) | None => {}
            }
        }
    }
}

impl GuestClient {
    /// Follows what listens inside. The guest looks a few times a second: a port that was opened
    /// and closed between two looks is missed.
    pub async fn ports(&self) -> Result<Ports, GuestError> {
        self.require(PORTS).await?;
        let call = CallOptions::default().with_max_message_size(EVENT_LIMIT);
        let stream = self.own.ports_with_options(PortsRequest::default(), call).await?;
        Ok(Ports { stream })
    }
}

/// Those that make sense; what a newer guest calls otherwise is passed over.
fn known(ports: Vec<wire::Port>) -> Vec<Port> {
    ports.into_iter().filter_map(read).collect()
}

fn read(port: wire::Port) -> Option<Port> {
    let transport = match port.transport.as_known()? {
        wire::Transport::TRANSPORT_TCP => Transport::Tcp,
        wire::Transport::TRANSPORT_TCP6 => Transport::Tcp6,
        wire::Transport::TRANSPORT_UDP => Transport::Udp,
        wire::Transport::TRANSPORT_UDP6 => Transport::Udp6,
        wire::Transport::TRANSPORT_UNSPECIFIED => return None,
    };
    let reach = match port.reach.as_known()? {
        wire::Reach::REACH_LOOPBACK => Reach::Loopback,
        wire::Reach::REACH_ALL => Reach::All,
        wire::Reach::REACH_ADDRESS => Reach::Address,
        wire::Reach::REACH_UNSPECIFIED => return None,
    };
    let holder = port
        .holder
        .into_option()
        .map(|holder| Holder { pid: holder.pid, name: harmless(&holder.name) });
    Some(Port {
        transport,
        address: port.address.parse().ok()?,
        port: port.port.try_into().ok()?,
        reach,
        uid: port.uid,
        holder,
    })
}
