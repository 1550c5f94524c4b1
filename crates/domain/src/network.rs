//! What a sandbox may reach, as its owner said it.
//!
//! These are words only. Who is right when two of them disagree is decided by
//! `network::egress::judge`, and an operator's own configuration stands above all of it: a policy
//! can only narrow that.

mod check;
mod hide;
mod learned;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SandboxId;
pub use check::InvalidPolicy;
pub use hide::NoSecret;
pub use learned::Learned;

/// What a sandbox may reach.
///
/// One that says nothing may reach nothing: a policy that is missing or cannot be read denies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// What holds where nothing below says more.
    pub mode: NetworkMode,
    /// Names that may be reached, in [`NetworkMode::Custom`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_domains: Vec<DomainPattern>,
    /// Names that may not be reached, whatever else is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_domains: Vec<DomainPattern>,
    /// Addresses that may be reached, in [`NetworkMode::Custom`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_cidrs: Vec<Cidr>,
    /// Addresses that may not be reached, whatever else is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_cidrs: Vec<Cidr>,
    /// The ports that may be reached; all of them when there is none here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_ports: Vec<Ports>,
    /// What is changed in requests on their way out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transforms: Vec<Transform>,
    /// Other sandboxes that may be reached, by the name that they are reached by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sandboxes: BTreeMap<String, SandboxId>,
    /// Let everything pass that [`NetworkMode::AllowAll`] would, and write down what it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learn: bool,
}

/// What holds where a policy says no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Everything that the operator allows, which is every public address.
    AllowAll,
    /// Nothing.
    #[default]
    DenyAll,
    /// What is listed, and what has a transform.
    Custom,
}

/// A name, or every name below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainPattern {
    /// Lower case, without a dot at its end.
    name: String,
    is_wildcard: bool,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// A port, or all from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    first: u16,
    last: u16,
}

/// What is changed in requests to one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    /// Whose requests.
    pub domain: DomainPattern,
    /// Headers that are set, in the place of those that the sandbox sent.
    #[serde(default)]
    pub inject_headers: BTreeMap<String, SecretText>,
    /// Headers that are taken out.
    #[serde(default)]
    pub strip_headers: Vec<String>,
}

/// A text that nobody is shown.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SecretText(String);

/// Why a text is no part of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: {reason}")]
pub struct InvalidNetwork {
    text: String,
    what: &'static str,
    reason: &'static str,
}

impl DomainPattern {
    /// Whether a name is meant: itself, or with `*.` every name below it and not itself. The name
    /// is in lower case and has no dot at its end.
    pub fn matches(&self, name: &str) -> bool {
        if !self.is_wildcard {
            return self.name == name;
        }
        name.strip_suffix(self.name.as_str())
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

impl FromStr for DomainPattern {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let wrong = |reason| InvalidNetwork { text: shortened(text), what: "domain", reason };
        let lower = text.to_ascii_lowercase();
        let (is_wildcard, name) = match lower.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, lower.as_str()),
        };
        let labels: Vec<&str> = name.split('.').collect();
        if labels.len() < 2 {
            return Err(wrong("write at least two labels, as in example.com or *.example.com"));
        }
        let good = |label: &&str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if name.len() > 253 || !labels.iter().all(good) {
            return Err(wrong(
                "labels have letters, digits and hyphens, and neither a port nor a path follows",
            ));
        }
        if labels.last().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(wrong("it is an address: list it among the ranges of addresses"));
        }
        Ok(Self { name: name.to_owned(), is_wildcard })
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(formatter, "{star}{}", self.name)
    }
}

impl Cidr {
    /// The range with one address.
    pub fn one(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether it is every address of its kind.
    pub fn is_everything(&self) -> bool {
        self.prefix == 0
    }

    /// Whether an address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        // Of two ranges that have an address in common, one holds the other's first.
        self.contains(other.address) || other.contains(self.address)
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                let bits = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                range.to_bits() & bits == address.to_bits() & bits
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                let bits = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                range.to_bits() & bits == address.to_bits() & bits
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidNetwork;

    /// Bits beyond the prefix are dropped, as the ways to write a network do not agree on them.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let wrong = |reason| InvalidNetwork { text: shortened(text), what: "range", reason };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| wrong("write an address and how many bits count, as in 192.0.2.0/24"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| wrong("so many bits an address does not have"))?,
        };
        let address = match address {
            IpAddr::V4(address) => {
                let bits = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & bits))
            }
            IpAddr::V6(address) => {
                let bits = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & bits))
            }
        };
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

impl Ports {
    /// Every port that there is.
    pub const ALL: Self = Self { first: 1, last: u16::MAX };

    /// Whether a port is among them.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// What is left of them without others: nothing, one range or two.
    pub fn without(self, others: Self) -> Vec<Self> {
        if others.last < self.first || others.first > self.last {
            return vec![self];
        }
        let before =
            (others.first > self.first).then(|| Self { first: self.first, last: others.first - 1 });
        let after =
            (others.last < self.last).then(|| Self { first: others.last + 1, last: self.last });
        before.into_iter().chain(after).collect()
    }
}

impl FromStr for Ports {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let wrong = || InvalidNetwork {
            text: shortened(text),
            what: "port",
            reason: "write a number from 1 to 65535, or two of them as in 8000-8999",
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong);
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(wrong());
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(formatter, "{}", self.first);
        }
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl SecretText {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for whoever must send it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for SecretText {
    /// What is no text may be a secret as well, so the error does not repeat it.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer);
        text.map(Self).map_err(|_| serde::de::Error::custom("it has to be a text"))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretText(…)")
    }
}

/// What an error repeats of a text that may be long.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Each of them is written as one text.
macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = InvalidNetwork;

            fn try_from(text: String) -> Result<Self, InvalidNetwork> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    )*};
}

as_text!(DomainPattern, Cidr, Ports);
