//! What listens, as the kernel lists it for the sandbox's network namespace.
//!
//! The kernel lists listening TCP sockets before all others, so reading stops at the first
//! connection: a sandbox with ten thousand connections costs no more than one without.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use domain::{NetworkEnds, NetworkTransport};

/// As many listening sockets as are told; a sandbox with more has the rest untold.
pub(super) const MOST: usize = 4096;

/// As many lines as are read of one table. Datagram sockets of clients are among the others.
const MOST_LINES: usize = 4 * MOST;

/// The longest line that the kernel writes is half as long.
const LONGEST_LINE: u64 = 512;

/// As many connections as are looked through for one, and what that is in bytes. The kernel pads
/// every line to 150.
const MOST_CONNECTIONS: usize = 8192;
const MOST_BYTES: u64 = 4 << 20;

/// How a port is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Transport {
    Tcp,
    Tcp6,
    Udp,
    Udp6,
}

impl Transport {
    /// All of them, with the kernel's tables.
    const TABLES: [(Self, &str); 4] = [
        (Self::Tcp, "/proc/net/tcp"),
        (Self::Tcp6, "/proc/net/tcp6"),
        (Self::Udp, "/proc/net/udp"),
        (Self::Udp6, "/proc/net/udp6"),
    ];

    /// The kernel's number for a socket that waits: `LISTEN`, or not connected to one peer.
    fn waiting(self) -> &'static str {
        match self {
            Self::Tcp | Self::Tcp6 => "0A",
            Self::Udp | Self::Udp6 => "07",
        }
    }
}

/// What names a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) transport: Transport,
    pub(super) ip: IpAddr,
    pub(super) port: u16,
}

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) address: Address,
    pub(super) uid: u32,
    /// The kernel's own name for it.
    pub(super) inode: u64,
}

/// Every socket that listens now. A table that is not there (a kernel without IPv6) is empty.
pub(super) fn listening() -> Vec<Socket> {
    let mut sockets = Vec::new();
    for (transport, path) in Transport::TABLES {
        if let Ok(table) = File::open(path) {
            read(transport, BufReader::new(table), &mut sockets);
        }
    }
    sockets.retain(|socket| !is_of_the_network(socket.address));
    sockets
}

/// The host's own sockets in the namespace, by which it leads connections out (`crates/wiring`):
/// they are no server of the sandbox's.
fn is_of_the_network(address: Address) -> bool {
    let Address { transport, ip, port } = address;
    let gate = (Transport::Tcp, IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    let resolver = (Transport::Udp, IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), 53);
    [gate, resolver].contains(&(transport, ip, port))
}

/// Adds what listens by one table. Stops where connections begin, and at the bounds.
pub(super) fn read(transport: Transport, mut table: impl BufRead, sockets: &mut Vec<Socket>) {
    let stream = matches!(transport, Transport::Tcp | Transport::Tcp6);
    let mut line = Vec::new();
    // The first line has the names of the columns.
    for number in 0..=MOST_LINES {
        line.clear();
        match table.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if number == 0 => continue,
            Ok(_) => {}
        }
        match std::str::from_utf8(&line).ok().and_then(|line| parse(transport, line)) {
            Some(_) if sockets.len() >= MOST => return,
            Some(socket) => sockets.push(socket),
            None if stream => return,
            None => {}
        }
    }
}

/// The socket of a connection that leaves, in whichever table it is.
pub(super) fn connected(ends: NetworkEnds) -> Option<u64> {
    let tables = match ends.transport {
        NetworkTransport::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
        NetworkTransport::Udp => ["/proc/net/udp", "/proc/net/udp6"],
    };
    tables.iter().find_map(|path| {
        let table = BufReader::new(File::open(path).ok()?);
        // A line that is longer than any, or no text, is none of the kernel's.
        let lines = table.take(MOST_BYTES).lines().map_while(Result::ok).skip(1);
        lines.take(MOST_CONNECTIONS).find_map(|line| {
            let line = Line::parse(&line)?;
            line.is_of(ends).then_some(line.inode)
        })
    })
}

/// A line such as `0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 1000 0 12345 ...`.
struct Line<'a> {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    state: &'a str,
    uid: u32,
    inode: u64,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let local = parse_end(fields.nth(1)?)?;
        let remote = parse_end(fields.next()?)?;
        let state = fields.next()?;
        let uid = fields.nth(3)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Self { local, remote, state, uid, inode })
    }

    /// Whether this is the end of a connection that its maker holds.
    fn is_of(&self, ends: NetworkEnds) -> bool {
        let is = |(ip, port): (IpAddr, u16), end: SocketAddrV4| {
            ip.to_canonical() == IpAddr::V4(*end.ip()) && port == end.port()
        };
        match ends.transport {
            NetworkTransport::Tcp => is(self.local, ends.from) && is(self.remote, ends.to),
            // Who sends packets need not say beforehand from where and to whom.
            NetworkTransport::Udp => {
                is(self.local, ends.from)
                    || self.local.0.is_unspecified() && self.local.1 == ends.from.port()
            }
        }
    }
}

/// What listens by one line; none for a socket that does not wait for somebody.
fn parse(transport: Transport, line: &str) -> Option<Socket> {
    let line = Line::parse(line)?;
    let (ip, port) = line.local;
    (line.state == transport.waiting()).then_some(Socket {
        address: Address { transport, ip, port },
        uid: line.uid,
        inode: line.inode,
    })
}

fn parse_end(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    Some((parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?))
}

/// The kernel writes an address as one or four numbers of 32 bits, each in the machine's own
/// order of bytes.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for index in 0..4 {
                bytes[index * 4..index * 4 + 4].copy_from_slice(&word(index)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";

    fn sockets(transport: Transport, lines: &str) -> Vec<Socket> {
        let mut sockets = Vec::new();
        read(transport, format!("{HEAD}{lines}").as_bytes(), &mut sockets);
        sockets
    }

    #[test]
    fn connections_come_after_what_listens_and_are_not_read() {
        let lines = "\
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 77 1\n\
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 78 1\n\
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 79 1\n\
   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 80 1\n";
        let found = sockets(Transport::Tcp, lines);
        assert_eq!(found.len(), 2);
        let first = found[0];
        assert_eq!((first.uid, first.inode, first.address.port), (1000, 77, 8080));
        assert_eq!(first.address.ip, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(found[1].address.ip, IpAddr::from([0, 0, 0, 0]));
    }

    #[test]
    fn the_long_addresses_are_read_in_words() {
        let lines = "\
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A \
             00000000:00000000 00:00000000 00000000     0        0 5 1\n\
   1: 0000000000000000FFFF00000100007F:1F91 00000000000000000000000000000000:0000 0A \
             00000000:00000000 00:00000000 00000000     0        0 6 1\n";
        let found = sockets(Transport::Tcp6, lines);
        assert_eq!(found[0].address.ip.to_string(), "::1");
        assert_eq!(found[1].address.ip.to_string(), "::ffff:127.0.0.1");
    }

    #[test]
    fn a_datagram_socket_with_one_peer_is_a_client() {
        let lines = "\
   1: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 5 2\n\
   2: 0100007F:9999 0100007F:0035 01 00000000:00000000 00:00000000 00000000     0        0 6 2\n\
   3: 00000000:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2\n";
        let ports: Vec<u16> =
            sockets(Transport::Udp, lines).iter().map(|socket| socket.address.port).collect();
        assert_eq!(ports, [53, 54]);
    }

    #[test]
    fn no_table_grows_the_list_beyond_its_bound() {
        let line = "0: 00000000:0035 00000000:0000 0A 0:0 0:0 0 0 0 5 2\n";
        assert_eq!(sockets(Transport::Tcp, &line.repeat(2 * MOST)).len(), MOST);
        assert_eq!(sockets(Transport::Tcp, &"x".repeat(1 << 20)), []);
    }

    proptest::proptest! {
        #[test]
        fn no_line_is_too_strange(line in ".{0,200}") {
            let _ = parse(Transport::Tcp, &line);
            let _ = parse_ip(&line);
        }
    }
}
