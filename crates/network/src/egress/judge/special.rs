//! Ranges of addresses that are not simply somebody's in the world: IANA's registries of special
//! purposes for both versions, multicast, and the addresses at which clouds give out credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not dialled unless the operator grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// What it is, as a rule's name: `private address`.
    pub what: &'static str,
    /// Whether only a grant of this one address, a /32 or a /128, counts. So it is for services
    /// that give out the machine's own credentials: who grants a wide private range does not mean
    /// those.
    pub is_exact: bool,
}

/// Who gives out credentials, or speaks for the cloud itself, wherever the range around it is.
const METADATA_V4: [[u8; 4]; 5] = [
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [100, 100, 100, 200],
    [100, 96, 0, 96],
    // A public address by number, and the machine's wire server on one cloud.
    [168, 63, 129, 16],
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// First address, bits that count, and what the range is.
const V4: [([u8; 4], u8, &str); 17] = [
    ([0, 0, 0, 0], 8, "unspecified address"),
    ([10, 0, 0, 0], 8, "private address"),
    ([100, 64, 0, 0], 10, "shared address"),
    ([127, 0, 0, 0], 8, "loopback address"),
    ([169, 254, 0, 0], 16, "link-local address"),
    ([172, 16, 0, 0], 12, "private address"),
    ([192, 0, 0, 0], 24, "reserved address"),
    ([192, 0, 2, 0], 24, "documentation address"),
    ([192, 31, 196, 0], 24, "reserved address"),
    ([192, 52, 193, 0], 24, "reserved address"),
    ([192, 88, 99, 0], 24, "reserved address"),
    ([192, 168, 0, 0], 16, "private address"),
    ([198, 18, 0, 0], 15, "benchmark address"),
    ([198, 51, 100, 0], 24, "documentation address"),
    ([203, 0, 113, 0], 24, "documentation address"),
    ([224, 0, 0, 0], 4, "multicast address"),
    // With the address of everybody on the link, 255.255.255.255.
    ([240, 0, 0, 0], 4, "reserved address"),
];

/// The same for version 6; `::ffff:0:0/96` and `64:ff9b::/96` are judged as what they embed.
const V6: [(Ipv6Addr, u8, &str); 13] = [
    // `::`, `::1` and the old way to embed version 4.
    (Ipv6Addr::UNSPECIFIED, 96, "loopback address"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "private address"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard address"),
    // Teredo, benchmarks, ORCHID and the rest of the protocol assignments.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation address"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "tunnel address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation address"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "reserved address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast address"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "reserved address"),
];

/// What is special about an address, if anything.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// The address of version 4 that one of version 6 stands for: written as one, translated to one
/// by the network, or tunnelled to one.
pub fn embedded(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else { return None };
    let [first, second, third, .., seventh, eighth] = address.segments();
    let of = |high: u16, low: u16| {
        IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
    };
    match (first, second) {
        (0x2002, _) => Some(of(second, third)),
        // Teredo turns the bits of its client around.
        (0x2001, 0) => Some(of(!seventh, !eighth)),
        _ if is_written_as_v4(address) || is_translated(address) => Some(of(seventh, eighth)),
        _ => None,
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    if METADATA_V4.contains(&address.octets()) {
        return Some(Special { what: "metadata address", is_exact: true });
    }
    let holds = |range: &&([u8; 4], u8, &str)| {
        let bits = u32::MAX << (32 - u32::from(range.1));
        Ipv4Addr::from(range.0).to_bits() == address.to_bits() & bits
    };
    V4.iter().find(holds).map(|range| Special { what: range.2, is_exact: false })
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    if is_written_as_v4(address) || is_translated(address) {
        return match embedded(IpAddr::V6(address)) {
            Some(IpAddr::V4(embedded)) => special_v4(embedded),
            _ => Some(Special { what: "reserved address", is_exact: false }),
        };
    }
    if METADATA_V6.contains(&address) {
        return Some(Special { what: "metadata address", is_exact: true });
    }
    let holds = |range: &&(Ipv6Addr, u8, &str)| {
        let bits = u128::MAX << (128 - u32::from(range.1));
        range.0.to_bits() == address.to_bits() & bits
    };
    V6.iter().find(holds).map(|range| Special { what: range.2, is_exact: false })
}

/// `::ffff:0:0/96`
fn is_written_as_v4(address: Ipv6Addr) -> bool {
    address.to_bits() >> 32 == 0xffff
}

/// `64:ff9b::/96`
fn is_translated(address: Ipv6Addr) -> bool {
    address.to_bits() >> 32 == 0x0064_ff9b_0000_0000_0000_0000
}
