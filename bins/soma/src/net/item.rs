//! What can be allowed or denied: a domain, a range of addresses, ports, another sandbox.

use std::str::FromStr;

use api_v1::network::Network;
use domain::{Cidr, DomainPattern, Ports};

/// One of them, as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Domain(DomainPattern),
    Range(Cidr),
    Ports(Ports),
    Sandbox(String),
}

impl FromStr for Item {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("sandbox:") {
            return match name {
                "" => Err("write the name or the id of a sandbox behind `sandbox:`".to_owned()),
                name => Ok(Self::Sandbox(name.to_owned())),
            };
        }
        if let Ok(ports) = text.parse() {
            return Ok(Self::Ports(ports));
        }
        // What begins like a number or has a colon or a slash was never meant as a name.
        if text.contains(['/', ':']) || text.parse::<std::net::IpAddr>().is_ok() {
            return text
                .parse()
                .map(Self::Range)
                .map_err(|error: domain::InvalidNetwork| error.to_string());
        }
        text.parse().map(Self::Domain).map_err(|error: domain::InvalidNetwork| error.to_string())
    }
}

impl Item {
    /// Lists it among what may be reached.
    pub(crate) fn allow(&self, network: &mut Network) {
        match self {
            Self::Domain(domain) => add(&mut network.allow_domains, domain),
            Self::Range(range) => add(&mut network.allow_cidrs, range),
            Self::Ports(ports) => add(&mut network.allow_ports, ports),
            Self::Sandbox(name) => add(&mut network.allow_sandboxes, name),
        }
    }

    /// Lists it among what may not be reached. Of ports and sandboxes there is no such list.
    pub(crate) fn block(&self, network: &mut Network) -> Result<(), String> {
        match self {
            Self::Domain(domain) => add(&mut network.block_domains, domain),
            Self::Range(range) => add(&mut network.block_cidrs, range),
            Self::Ports(ports) => network.allow_ports = without(&network.allow_ports, *ports)?,
            Self::Sandbox(_) => {}
        }
        Ok(())
    }

    /// Takes it off what may be reached.
    pub(crate) fn take_off_allowed(&self, network: &mut Network) {
        match self {
            Self::Domain(domain) => remove(&mut network.allow_domains, domain),
            Self::Range(range) => remove(&mut network.allow_cidrs, range),
            Self::Sandbox(name) => remove(&mut network.allow_sandboxes, name),
            Self::Ports(_) => {}
        }
    }

    /// Takes it off what may not be reached.
    pub(crate) fn take_off_blocked(&self, network: &mut Network) {
        match self {
            Self::Domain(domain) => remove(&mut network.block_domains, domain),
            Self::Range(range) => remove(&mut network.block_cidrs, range),
            Self::Ports(_) | Self::Sandbox(_) => {}
        }
    }
}

fn add(list: &mut Vec<String>, item: &impl ToString) {
    let text = item.to_string();
    if !list.contains(&text) {
        list.push(text);
    }
}

fn remove(list: &mut Vec<String>, item: &impl ToString) {
    let text = item.to_string();
    list.retain(|known| *known != text);
}

/// The ports that are left. No list at all is every port, so the last one cannot be taken away.
fn without(list: &[String], ports: Ports) -> Result<Vec<String>, String> {
    let known: Vec<Ports> = match list {
        [] => vec![Ports::ALL],
        list => list
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, _>>()
            .map_err(|error: domain::InvalidNetwork| error.to_string())?,
    };
    let left: Vec<String> =
        known.into_iter().flat_map(|range| range.without(ports)).map(|it| it.to_string()).collect();
    if left.is_empty() {
        return Err("no port would be left: `--all` denies everything".to_owned());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use api_v1::network::NetworkMode;

    use super::*;

    #[test]
    fn what_is_typed_is_told_apart() {
        let item = |text: &str| text.parse::<Item>().unwrap();
        assert!(matches!(item("*.pypi.org"), Item::Domain(_)));
        assert!(matches!(item("203.0.113.0/24"), Item::Range(_)));
        assert!(matches!(item("203.0.113.7"), Item::Range(_)));
        assert!(matches!(item("2001:db8::/32"), Item::Range(_)));
        assert!(matches!(item("443"), Item::Ports(_)));
        assert!(matches!(item("8000-8999"), Item::Ports(_)));
        assert_eq!(item("sandbox:db"), Item::Sandbox("db".to_owned()));
        for wrong in ["", "localhost", "https://a.com", "a.com:443", "70000", "sandbox:", "*"] {
            let error = wrong.parse::<Item>().unwrap_err();
            assert!(!error.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn the_last_port_cannot_be_taken_away() {
        let mut network = Network::new(NetworkMode::AllowAll);
        let ports = |text: &str| text.parse::<Item>().unwrap();
        ports("25").block(&mut network).unwrap();
        assert_eq!(network.allow_ports, ["1-24", "26-65535"]);
        network.allow_ports = vec!["443".to_owned()];
        assert!(ports("400-500").block(&mut network).is_err());
        assert_eq!(network.allow_ports, ["443"]);
    }
}
