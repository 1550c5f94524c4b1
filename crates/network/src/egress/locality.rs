//! Which addresses are this host's own, so that no sandbox reaches the host by a public one.
//!
//! The kernel's routes know it: also addresses that are on no interface, and as they are now.

use std::io;
use std::net::IpAddr;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const GET_ROUTE: u16 = 26;
const NEW_ROUTE: u16 = 24;
const REQUEST: u16 = 1;
const DESTINATION: u16 = 1;
/// A route to somebody else.
const UNICAST: u8 = 1;
/// Where in an answer the kind of a route is: behind the header, in the eighth byte.
const KIND: usize = 16 + 7;

/// Whether a connection to an address would end on this host, or at more than one. What cannot be
/// found out is nobody's to dial.
pub(crate) fn is_own(address: IpAddr) -> bool {
    match route_kind(address) {
        Ok(kind) => kind.is_some_and(|kind| kind != UNICAST),
        Err(error) => {
            tracing::warn!(%error, "the kernel's routes cannot be asked");
            true
        }
    }
}

/// The kind of the route to an address; none where there is no route.
fn route_kind(address: IpAddr) -> io::Result<Option<u8>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    send(&socket, &question(address), SendFlags::empty())?;
    let mut buffer = [0; 4096];
    let (_, length) = recv(&socket, &mut buffer, RecvFlags::empty())?;
    let answer = &buffer[..length];
    let is_route = answer.get(4..6) == Some(&NEW_ROUTE.to_ne_bytes());
    Ok(answer.get(KIND).copied().filter(|_| is_route))
}

fn question(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (2_u8, address.octets().to_vec()),
        IpAddr::V6(address) => (10_u8, address.octets().to_vec()),
    };
    let bits = u8::try_from(octets.len() * 8).unwrap_or(128);
    // Family and bits of the destination; all else is for the kernel to say.
    let mut body = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    body.extend(u16::try_from(4 + octets.len()).unwrap_or(20).to_ne_bytes());
    body.extend(DESTINATION.to_ne_bytes());
    body.extend(octets);
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(16 + body.len()).unwrap_or(0).to_ne_bytes());
    bytes.extend(GET_ROUTE.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_known_by_its_addresses() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(is_own("127.1.2.3".parse().unwrap()));
        assert!(!is_own("8.8.8.8".parse().unwrap()));
        assert!(is_own("255.255.255.255".parse().unwrap()));
    }
}
