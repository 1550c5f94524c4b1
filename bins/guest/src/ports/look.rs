//! One look at what listens, and what changed since the look before.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::holders::{self, Holder};
use super::sockets::{self, Address, Socket};

/// What listened at one moment.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) ports: BTreeMap<Address, Seen>,
}

/// What is known of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: u32,
    pub(super) holder: Option<Holder>,
    inode: u64,
}

/// What changed between two looks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) opened: Vec<(Address, Seen)>,
    pub(super) closed: Vec<(Address, Seen)>,
}

impl Look {
    /// Looks now. Who holds a port is searched only for what is new since `before`, and for
    /// what its holder left: searching reads the open files of every process.
    pub(super) fn take(before: &Self) -> Self {
        let mut lives = HashMap::new();
        let mut ports = BTreeMap::new();
        let mut wanted = HashSet::new();
        for socket in chosen(sockets::listening(), before) {
            let known = before.ports.get(&socket.address).filter(|seen| {
                let held = seen.holder.as_ref();
                let mut lives =
                    |holder: &Holder| *lives.entry(holder.pid).or_insert_with(|| holder.lives());
                seen.inode == socket.inode && held.is_none_or(&mut lives)
            });
            let seen = known.cloned().unwrap_or_else(|| {
                wanted.insert(socket.inode);
                Seen { uid: socket.uid, holder: None, inode: socket.inode }
            });
            ports.insert(socket.address, seen);
        }
        let mut found = holders::find(&wanted);
        for seen in ports.values_mut().filter(|seen| wanted.contains(&seen.inode)) {
            seen.holder = found.remove(&seen.inode);
        }
        Self { ports }
    }

    /// What is different in `now`.
    pub(super) fn changes(&self, now: &Self) -> Changes {
        let mut changes = Changes::default();
        for (address, seen) in &self.ports {
            if now.ports.get(address).is_none_or(|now| now.inode != seen.inode) {
                changes.closed.push((*address, seen.clone()));
            }
        }
        for (address, seen) in &now.ports {
            if self.ports.get(address) != Some(seen) {
                changes.opened.push((*address, seen.clone()));
            }
        }
        changes
    }
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.closed.is_empty()
    }
}

/// Several sockets may share a port; it is told once, by the one that was told before.
fn chosen(sockets: Vec<Socket>, before: &Look) -> impl Iterator<Item = Socket> {
    let mut chosen: BTreeMap<Address, Socket> = BTreeMap::new();
    for socket in sockets {
        let told = before.ports.get(&socket.address).map(|seen| seen.inode);
        let other = chosen.entry(socket.address).or_insert(socket);
        if Some(other.inode) != told && (Some(socket.inode) == told || socket.inode < other.inode) {
            *other = socket;
        }
    }
    chosen.into_values()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::sockets::Transport;
    use super::*;

    fn address(port: u16) -> Address {
        Address { transport: Transport::Tcp, ip: IpAddr::from([127, 0, 0, 1]), port }
    }

    fn look(ports: &[(u16, u64)]) -> Look {
        let seen = |inode| Seen { uid: 0, holder: None, inode };
        Look { ports: ports.iter().map(|(port, inode)| (address(*port), seen(*inode))).collect() }
    }

    fn numbers(ports: &[(Address, Seen)]) -> Vec<u16> {
        ports.iter().map(|(address, _)| address.port).collect()
    }

    #[test]
    fn a_port_that_was_closed_and_opened_between_looks_is_told_as_both() {
        let changes = look(&[(1, 1), (2, 2), (3, 3)]).changes(&look(&[(1, 1), (2, 9), (4, 4)]));
        assert_eq!(numbers(&changes.closed), [2, 3]);
        assert_eq!(numbers(&changes.opened), [2, 4]);
        assert!(look(&[(1, 1)]).changes(&look(&[(1, 1)])).is_empty());
    }

    #[test]
    fn of_sockets_that_share_a_port_the_one_that_was_told_stays() {
        let socket = |inode| Socket { address: address(1), uid: 0, inode };
        let pick = |sockets: &[u64], before: &Look| {
            let sockets = sockets.iter().map(|inode| socket(*inode)).collect();
            chosen(sockets, before).map(|socket| socket.inode).collect::<Vec<_>>()
        };
        assert_eq!(pick(&[7, 5, 6], &Look::default()), [5]);
        assert_eq!(pick(&[7, 5, 6], &look(&[(1, 6)])), [6]);
        assert_eq!(pick(&[6, 7, 5], &look(&[(1, 6)])), [6]);
        assert_eq!(pick(&[6, 7, 5], &look(&[(1, 4)])), [5]);
    }
}
