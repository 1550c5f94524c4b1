//! Both ends of a connection that a sandbox makes, as one program of ours names it to another.
//!
//! The egress program sees a connection and not whose it is; the guest sees processes. The first
//! sends the second these bytes, and gets a line of text back, with its length before it.

use std::net::{Ipv4Addr, SocketAddrV4};

/// The abstract name of the guest's socket for these questions, in the sandbox's own network
/// namespace. Nothing else is answered there.
pub const WHOSE: &[u8] = b"soma-whose";

/// The most that an answer may have: the name of a program and its number.
pub const LONGEST_HOLDER: usize = 96;

/// What a connection is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkTransport {
    /// A stream.
    Tcp,
    /// A packet: only where it came from counts.
    Udp,
}

/// Both ends of a connection, as the sandbox sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkEnds {
    /// What it is made of.
    pub transport: NetworkTransport,
    /// Where it comes from.
    pub from: SocketAddrV4,
    /// Where it was meant to go.
    pub to: SocketAddrV4,
}

impl NetworkEnds {
    /// How many bytes name one.
    pub const LENGTH: usize = 13;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = match self.transport {
            NetworkTransport::Tcp => 6,
            NetworkTransport::Udp => 17,
        };
        for (end, place) in [(self.from, 1), (self.to, 7)] {
            bytes[place..place + 4].copy_from_slice(&end.ip().octets());
            bytes[place + 4..place + 6].copy_from_slice(&end.port().to_be_bytes());
        }
        bytes
    }

    /// From bytes; none where they name nothing.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let transport = match bytes[0] {
            6 => NetworkTransport::Tcp,
            17 => NetworkTransport::Udp,
            _ => return None,
        };
        let end = |place: usize| {
            let ip =
                Ipv4Addr::new(bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]);
            SocketAddrV4::new(ip, u16::from_be_bytes([bytes[place + 4], bytes[place + 5]]))
        };
        Some(Self { transport, from: end(1), to: end(7) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_as_they_were_written() {
        for transport in [NetworkTransport::Tcp, NetworkTransport::Udp] {
            let ends = NetworkEnds {
                transport,
                from: "127.0.0.1:40000".parse().unwrap(),
                to: "198.18.1.7:443".parse().unwrap(),
            };
            assert_eq!(NetworkEnds::from_bytes(ends.to_bytes()), Some(ends));
        }
        assert_eq!(NetworkEnds::from_bytes([0; NetworkEnds::LENGTH]), None);
    }
}
