//! Packet filter rules, tried by making a table in a network namespace of its own.
//!
//! The kernel is spoken to directly, in its own messages: the program `nft` may be missing
//! where the kernel's part is there, and the other way round.

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use sys_linux::namespace::Namespaces;

use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::{Host, find_in_system};

const NAME: &str = "nftables";

/// Numbers of `linux/netlink.h` and `linux/netfilter/nfnetlink.h`.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const CREATE: u16 = 0x400;
const TABLE_NAME: u16 = 1;
const INET: u8 = 1;

pub(crate) fn check(host: &Host) -> Finding {
    let namespaces = if host.is_root() {
        Namespaces::NETWORK
    } else {
        Namespaces::USER.and(Namespaces::NETWORK)
    };
    let finding = match attempt(QUICK, || within(namespaces, make_table)) {
        Ok(()) if find_in_system("nft").is_some() => {
            Finding::works(NAME, "made a table in a network namespace; the program `nft` is there")
        }
        Ok(()) => Finding::limited(
            NAME,
            "made a table in a network namespace, but there is no program `nft`",
        )
        .fix(Fix::package("nftables")),
        Err(refusal) => {
            let lacks = [Errno::OPNOTSUPP, Errno::PROTONOSUPPORT, Errno::NOENT];
            let fix = refusal.errno().filter(|errno| lacks.contains(errno));
            Finding::missing(NAME, refusal.to_string())
                .fix(fix.map(|_| Fix::safe(&["modprobe", "nf_tables"])))
        }
    };
    finding.without("gives sandboxes loopback alone; rules for outside addresses need it")
}

fn make_table() -> Result<(), Refusal> {
    let step = "make a table of packet filter rules";
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(NETFILTER),
    )
    .step(step)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    let request = batch();
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &kernel).step(step)?;
    let mut answer = [0; 4096];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).step(step)?;
    match outcome(&answer[..length.min(answer.len())]) {
        Some(0) => Ok(()),
        Some(number) => Err(Errno::from_raw_os_error(-number)).step(step),
        None => Err(Refusal::new(step, "the kernel's answer cannot be read")),
    }
}

/// The first error number of an answer; zero is success.
fn outcome(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let number = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == ERROR).then_some(number)
}

/// Three messages that the kernel takes as one: begin, a table, end.
fn batch() -> Vec<u8> {
    let mut request = message(BATCH_BEGIN, REQUEST, 0, SUBSYSTEM, &[]);
    request.extend(message(
        NEW_TABLE,
        REQUEST | ACKNOWLEDGE | CREATE,
        INET,
        0,
        &attribute(TABLE_NAME, b"soma\0"),
    ));
    request.extend(message(BATCH_END, REQUEST, 0, SUBSYSTEM, &[]));
    request
}

fn message(kind: u16, flags: u16, family: u8, resource: u16, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + rest.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(20 + rest.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // The number of the message, and of the sender, whom the kernel knows.
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(rest);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_long_as_they_say_and_aligned() {
        let request = batch();
        let mut rest = &request[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            assert_eq!(length % 4, 0);
            kinds.push(u16::from_ne_bytes(rest[4..6].try_into().unwrap()));
            rest = &rest[length..];
        }
        assert_eq!(kinds, [BATCH_BEGIN, NEW_TABLE, BATCH_END]);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_no_success() {
        assert_eq!(outcome(&[0; 10]), None);
        assert_eq!(outcome(&[0; 20]), None);
    }
}
