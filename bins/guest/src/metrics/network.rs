//! What passed through the interfaces of the sandbox's network namespace.

use serde::Serialize;

/// As many interfaces as are told.
const MOST: usize = 32;

/// One interface, since it is there.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interface {
    name: String,
    received_bytes: u64,
    received_packets: u64,
    sent_bytes: u64,
    sent_packets: u64,
}

/// Every interface.
pub(super) fn interfaces() -> Vec<Interface> {
    parse(&super::read("/proc/net/dev").unwrap_or_default())
}

/// Lines such as `lo: 10 2 0 0 0 0 0 0 10 2 0 0 0 0 0 0` after two of names.
fn parse(table: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, figures) = line.split_once(':')?;
        let figures: Vec<u64> =
            figures.split_ascii_whitespace().map_while(|figure| figure.parse().ok()).collect();
        Some(Interface {
            name: name.trim().to_owned(),
            received_bytes: *figures.first()?,
            received_packets: *figures.get(1)?,
            sent_bytes: *figures.get(8)?,
            sent_packets: *figures.get(9)?,
        })
    };
    table.lines().skip(2).filter_map(interface).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interface_is_a_line_after_the_names() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n    \
                     lo: 10 2 0 0 0 0 0 0 30 4 0 0 0 0 0 0\n eth0:1 1\n";
        let lo = Interface {
            name: "lo".to_owned(),
            received_bytes: 10,
            received_packets: 2,
            sent_bytes: 30,
            sent_packets: 4,
        };
        assert_eq!(parse(table), [lo]);
        assert_eq!(parse(""), []);
    }
}
