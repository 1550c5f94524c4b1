//! The inside of a sandbox's network namespace: where everything that it sends is led.
//!
//! There is `lo` and nothing else. A route makes every address of the world one of this
//! namespace's own, so that what is sent to it comes back in over `lo`, where a table of rules
//! sees it first:
//!
//! ```text
//! to 127.0.0.0/8, to the own address     as ever
//! TCP to anywhere else                   to the socket that `soma egress` listens on,
//!                                        refused when there is none
//! UDP to the resolver, port 53           to the resolver's socket
//! the rest                               refused
//! ```
//!
//! Nothing here needs a privilege on the host, a device or a rule of the host's. It is made by
//! [`wire`] once, before anything hostile runs; [`listen`] makes the sockets, and does so again
//! for an egress program that starts anew.

mod message;
mod rules;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, listen as start_listening,
    netlink, recv, send, socket_with, sockopt,
};

use message::Message;

/// Where in a sandbox's namespace its resolver answers: UDP, port 53.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The sandbox's own address.
pub const OWN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// Where the socket for all connections listens. Of the sandbox's users only its root could take
/// it, and would take the network from itself.
const GATE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);

/// Connections that wait to be accepted: what browsers and package managers open at once.
const BACKLOG: i32 = 512;

/// Lays the wires in the namespace of whoever calls, who has every right in it. `lo` is up.
pub fn wire() -> io::Result<()> {
    // The protocol that has number 0.
    let routes = open(None)?;
    ask(&routes, &[message::own_address(OWN)])?;
    ask(&routes, &[message::everything_is_local(OWN)])?;
    let filter = open(Some(netlink::NETFILTER))?;
    ask(&filter, &rules::table(GATE, RESOLVER, OWN))
}

/// The two sockets for the egress program, made in the namespace of whoever calls: the one that
/// all connections arrive at, and the resolver's.
pub fn listen() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let gate = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // What an egress program that died had accepted may still be about.
    sockopt::set_socket_reuseaddr(&gate, true)?;
    sys_linux::network::listen_for_all(&gate)?;
    bind(&gate, &GATE)?;
    start_listening(&gate, BACKLOG)?;
    let resolver = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    bind(&resolver, &SocketAddrV4::new(RESOLVER, 53))?;
    Ok((gate, resolver))
}

fn open(protocol: Option<rustix::net::Protocol>) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?)
}

/// Sends messages as one, and waits until the kernel has said yes to each that wants an answer.
fn ask(socket: &OwnedFd, messages: &[Message]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for (number, message) in (1..).zip(messages) {
        message.write(number, &mut bytes);
    }
    send(socket, &bytes, SendFlags::empty())?;
    let mut open = messages.iter().filter(|message| message.is_answered()).count();
    let mut buffer = [0; 4096];
    while open > 0 {
        let (_, length) = recv(socket, &mut buffer, RecvFlags::empty())?;
        for answer in message::answers(&buffer[..length]) {
            answer?;
            open = open.saturating_sub(1);
        }
    }
    Ok(())
}
