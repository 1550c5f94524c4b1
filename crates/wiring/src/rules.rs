//! The table of rules in a sandbox's namespace, as the kernel's packet filter wants it.
//!
//! What `nft` would read as:
//!
//! ```text
//! table ip soma {
//!     chain out {
//!         type filter hook prerouting priority mangle; policy accept;
//!         ip daddr 127.0.0.0/8 accept
//!         ip daddr OWN accept
//!         meta l4proto tcp tproxy to GATE accept
//!         meta l4proto tcp reject with tcp reset
//!         ip daddr RESOLVER udp dport 53 accept
//!         reject with icmp admin-prohibited
//!     }
//! }
//! ```

use std::net::{Ipv4Addr, SocketAddrV4};

use super::message::{APPEND, ASKED, MAKE, Message, TOLD, attribute};

const TABLE: &[u8] = b"soma\0";
const CHAIN: &[u8] = b"out\0";

const IPV4: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The kernel's number for its packet filter.
const NF_TABLES: u16 = 10;
/// A list, or an attribute of attributes.
const NESTED: u16 = 0x8000;
/// Before anything else looks at where a packet goes.
const PRIORITY: i32 = -150;

/// Two registers of the filter's machine, and the one for what becomes of a packet.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const VERDICT: u32 = 0;

/// Where in a packet to look: behind the header of the link, or behind that of the address.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const DESTINATION: u32 = 16;
const PORT: u32 = 2;

/// The whole table, made in one step.
pub(super) fn table(gate: SocketAddrV4, resolver: Ipv4Addr, own: Ipv4Addr) -> Vec<Message> {
    vec![
        batch(0x10),
        new_table(),
        new_chain(),
        rule(&[destination(1), is(&[127]), accept()]),
        rule(&[destination(4), is(&own.octets()), accept()]),
        rule(&[
            protocol(),
            is(&[TCP]),
            load(FIRST, &gate.ip().octets()),
            load(SECOND, &gate.port().to_be_bytes()),
            lead_to_socket(),
            accept(),
        ]),
        rule(&[protocol(), is(&[TCP]), reject_with_reset()]),
        rule(&[
            destination(4),
            is(&resolver.octets()),
            protocol(),
            is(&[UDP]),
            payload(TRANSPORT_HEADER, PORT, 2),
            is(&53_u16.to_be_bytes()),
            accept(),
        ]),
        rule(&[reject_as_prohibited()]),
        batch(0x11),
    ]
}

fn batch(kind: u16) -> Message {
    let mut body = vec![0, 0];
    body.extend(NF_TABLES.to_be_bytes());
    Message::new(kind, TOLD, body)
}

fn new_table() -> Message {
    let mut body = family();
    attribute(&mut body, 1, TABLE);
    Message::new(NF_TABLES << 8, ASKED | MAKE, body)
}

fn new_chain() -> Message {
    let mut hook = number(1, 0);
    attribute(&mut hook, 2, &PRIORITY.to_be_bytes());
    let mut body = family();
    attribute(&mut body, 1, TABLE);
    attribute(&mut body, 3, CHAIN);
    attribute(&mut body, 4 | NESTED, &hook);
    attribute(&mut body, 5, &1_u32.to_be_bytes());
    attribute(&mut body, 7, b"filter\0");
    Message::new((NF_TABLES << 8) | 3, ASKED | MAKE, body)
}

fn rule(expressions: &[Vec<u8>]) -> Message {
    let mut list = Vec::new();
    for expression in expressions {
        attribute(&mut list, 1 | NESTED, expression);
    }
    let mut body = family();
    attribute(&mut body, 1, TABLE);
    attribute(&mut body, 2, CHAIN);
    attribute(&mut body, 4 | NESTED, &list);
    Message::new((NF_TABLES << 8) | 6, ASKED | MAKE | APPEND, body)
}

fn family() -> Vec<u8> {
    vec![IPV4, 0, 0, 0]
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let mut expression = Vec::new();
    attribute(&mut expression, 1, format!("{name}\0").as_bytes());
    attribute(&mut expression, 2 | NESTED, data);
    expression
}

/// An attribute with a number, in the network's order.
fn number(kind: u16, value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    attribute(&mut bytes, kind, &value.to_be_bytes());
    bytes
}

fn numbers(values: &[(u16, u32)]) -> Vec<u8> {
    values.iter().flat_map(|(kind, value)| number(*kind, *value)).collect()
}

fn value(bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    attribute(&mut value, 1, bytes);
    value
}

fn destination(bytes: u32) -> Vec<u8> {
    payload(NETWORK_HEADER, DESTINATION, bytes)
}

fn payload(header: u32, offset: u32, length: u32) -> Vec<u8> {
    expression("payload", &numbers(&[(1, FIRST), (2, header), (3, offset), (4, length)]))
}

fn protocol() -> Vec<u8> {
    const LAYER_FOUR: u32 = 16;
    expression("meta", &numbers(&[(1, FIRST), (2, LAYER_FOUR)]))
}

fn is(bytes: &[u8]) -> Vec<u8> {
    const EQUAL: u32 = 0;
    let mut data = numbers(&[(1, FIRST), (2, EQUAL)]);
    attribute(&mut data, 3 | NESTED, &value(bytes));
    expression("cmp", &data)
}

fn load(register: u32, bytes: &[u8]) -> Vec<u8> {
    let mut data = number(1, register);
    attribute(&mut data, 2 | NESTED, &value(bytes));
    expression("immediate", &data)
}

fn accept() -> Vec<u8> {
    const ACCEPT: u32 = 1;
    let mut verdict = Vec::new();
    attribute(&mut verdict, 2 | NESTED, &number(1, ACCEPT));
    let mut data = number(1, VERDICT);
    attribute(&mut data, 2 | NESTED, &verdict);
    expression("immediate", &data)
}

/// The address is in the first register, the port in the second. Where nobody listens, the rule
/// ends here and the next one is tried.
fn lead_to_socket() -> Vec<u8> {
    expression("tproxy", &numbers(&[(1, u32::from(IPV4)), (2, FIRST), (3, SECOND)]))
}

fn reject_with_reset() -> Vec<u8> {
    expression("reject", &number(1, 1))
}

fn reject_as_prohibited() -> Vec<u8> {
    const PROHIBITED: u8 = 13;
    let mut data = number(1, 0);
    attribute(&mut data, 2, &[PROHIBITED]);
    expression("reject", &data)
}
