//! Messages to the kernel's network, as bytes. Numbers in headers have the machine's order.

use std::io;
use std::net::Ipv4Addr;

/// It is asked, and wants an answer.
pub(super) const ASKED: u16 = 0x1 | 0x4;
/// It is asked, without an answer.
pub(super) const TOLD: u16 = 0x1;
/// Make it; there is none.
pub(super) const MAKE: u16 = 0x400;
/// Behind those that are there.
pub(super) const APPEND: u16 = 0x800;

const HEADER: usize = 16;
/// An answer: an error, or zero for none.
const ERROR: u16 = 2;
/// `lo` is the first interface of every namespace.
const LOOPBACK: u32 = 1;

/// One request.
#[derive(Debug)]
pub(super) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    pub(super) fn new(kind: u16, flags: u16, body: Vec<u8>) -> Self {
        Self { kind, flags, body }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.flags & ASKED == ASKED
    }

    pub(super) fn write(&self, number: u32, into: &mut Vec<u8>) {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(u32::MAX);
        into.extend(length.to_ne_bytes());
        into.extend(self.kind.to_ne_bytes());
        into.extend(self.flags.to_ne_bytes());
        into.extend(number.to_ne_bytes());
        // From nobody in particular.
        into.extend(0_u32.to_ne_bytes());
        into.extend(&self.body);
        pad(into);
    }
}

/// `ip address add OWN/32 dev lo`
pub(super) fn own_address(own: Ipv4Addr) -> Message {
    const NEW_ADDRESS: u16 = 20;
    // Family, bits, flags, scope, interface.
    let mut body = vec![2, 32, 0, 0];
    body.extend(LOOPBACK.to_ne_bytes());
    attribute(&mut body, 1, &own.octets());
    attribute(&mut body, 2, &own.octets());
    Message::new(NEW_ADDRESS, ASKED | MAKE, body)
}

/// `ip route add local default dev lo src OWN`
pub(super) fn everything_is_local(own: Ipv4Addr) -> Message {
    const NEW_ROUTE: u16 = 24;
    // Family, bits of destination and of source, service, table `local`, made at boot, for this
    // host, local; flags.
    let mut body = vec![2, 0, 0, 0, 255, 3, 254, 2];
    body.extend(0_u32.to_ne_bytes());
    attribute(&mut body, 4, &LOOPBACK.to_ne_bytes());
    attribute(&mut body, 7, &own.octets());
    Message::new(NEW_ROUTE, ASKED | MAKE, body)
}

/// Appends an attribute: its length, its kind, its value.
pub(super) fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    pad(body);
}

/// Everything begins at a multiple of four.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// What the kernel answered: for each request that wanted it, yes or why not.
pub(super) fn answers(mut bytes: &[u8]) -> Vec<io::Result<()>> {
    let mut answers = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if kind == ERROR
            && let Some(code) = rest.first_chunk::<4>()
        {
            let code = i32::from_ne_bytes(*code);
            let failed = || Err(io::Error::from_raw_os_error(code.saturating_neg()));
            answers.push(if code == 0 { Ok(()) } else { failed() });
        }
        bytes = bytes.get(length.max(HEADER).next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}
