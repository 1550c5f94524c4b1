//! The policy that a run would have needed, from what it reached.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{Cidr, DomainPattern, NetworkMode, NetworkPolicy, Ports};
use crate::{NetworkEntry, NetworkProtocol};

/// More of a kind is not remembered: no policy has room for them.
const REMEMBERED: usize = 10_000;

/// What a policy has room for.
const MOST_DOMAINS: usize = 50;
const MOST_RANGES: usize = 10;
const MOST_PORTS: usize = 50;

/// Collects what a sandbox reached.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
}

impl Learned {
    /// Takes one line of the log into account, if something passed.
    pub fn note(&mut self, entry: &NetworkEntry) {
        if !entry.allowed || entry.address.is_some_and(is_own_service) {
            return;
        }
        if entry.protocol != NetworkProtocol::Dns && entry.port != 0 {
            self.ports.insert(entry.port);
        }
        match (&entry.name, entry.address) {
            (Some(name), _) if self.names.len() < REMEMBERED => {
                self.names.insert(name.trim_end_matches('.').to_ascii_lowercase());
            }
            (None, Some(address)) if self.addresses.len() < REMEMBERED => {
                self.addresses.insert(address);
            }
            _ => {}
        }
    }

    /// A policy that lets the same pass again, and what it has no room for. What was blocked,
    /// changed in requests and granted before stays so.
    pub fn policy(self, before: &NetworkPolicy) -> (NetworkPolicy, Vec<String>) {
        let mut left_out = Vec::new();
        let mut policy = NetworkPolicy {
            mode: NetworkMode::Custom,
            block_domains: before.block_domains.clone(),
            block_cidrs: before.block_cidrs.clone(),
            transforms: before.transforms.clone(),
            sandboxes: before.sandboxes.clone(),
            ..NetworkPolicy::default()
        };
        let names = self.names.into_iter().filter(|name| !before.sandboxes.contains_key(name));
        let mut domains = BTreeSet::new();
        for name in names {
            match name.parse::<DomainPattern>() {
                Ok(domain) => drop(domains.insert(domain)),
                Err(_) => left_out.push(name.chars().filter(|c| !c.is_control()).collect()),
            }
        }
        fit_domains(&mut domains);
        let mut domains = domains.into_iter();
        policy.allow_domains = domains.by_ref().take(MOST_DOMAINS).collect();
        left_out.extend(domains.map(|domain| domain.to_string()));
        let mut ranges = self.addresses.into_iter().map(Cidr::one);
        policy.allow_cidrs = ranges.by_ref().take(MOST_RANGES).collect();
        left_out.extend(ranges.map(|range| range.to_string()));
        policy.allow_ports = fit_ports(&self.ports);
        (policy, left_out)
    }
}

/// The resolver and the metadata service are there whatever a policy says.
fn is_own_service(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_link_local())
}

/// Makes wildcards of what has the most siblings until all have room.
fn fit_domains(domains: &mut BTreeSet<DomainPattern>) {
    while domains.len() > MOST_DOMAINS {
        let mut siblings: BTreeMap<&str, usize> = BTreeMap::new();
        for domain in domains.iter().filter(|domain| !domain.is_wildcard) {
            if let Some((_, parent)) = domain.name.split_once('.') {
                *siblings.entry(parent).or_default() += 1;
            }
        }
        // A top-level domain is nobody's, and everybody's.
        let shared = siblings.into_iter().filter(|(name, count)| *count > 1 && name.contains('.'));
        let Some((parent, _)) = shared.max_by_key(|(_, count)| *count) else { return };
        let wildcard = DomainPattern { name: parent.to_owned(), is_wildcard: true };
        domains.retain(|domain| domain.is_wildcard || !wildcard.matches(&domain.name));
        domains.insert(wildcard);
    }
}

/// Ports as ranges. Where there are too many, those that are nearest to each other become one.
fn fit_ports(ports: &BTreeSet<u16>) -> Vec<Ports> {
    let mut ranges: Vec<Ports> = Vec::new();
    for port in ports {
        match ranges.last_mut() {
            Some(range) if range.last.checked_add(1) == Some(*port) => range.last = *port,
            _ => ranges.push(Ports { first: *port, last: *port }),
        }
    }
    while ranges.len() > MOST_PORTS {
        let gaps = ranges.windows(2).map(|pair| pair[1].first - pair[0].last);
        let Some((nearest, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) else { break };
        let next = ranges.remove(nearest + 1);
        ranges[nearest].last = next.last;
    }
    ranges
}
