//! What the operator of a machine says about the network of its sandboxes: the section
//! `[network]`.

use std::fmt::{self, Display};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use domain::{Cidr, NetworkMode, SecretText};

use super::{Settings, Words};
use crate::failure::Failure;

/// Where names are asked for, unless another port is said.
const PORT: u16 = 53;

/// Beside the usual certificates only an operator's own are needed, and all of the configuration
/// travels in one message.
const LARGEST_BUNDLE: u64 = 40 << 10;

/// Ranges that are not public and may be reached all the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants(Vec<Cidr>);

impl FromStr for Grants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = words(text);
        let ranges = words.iter().map(|word| word.parse());
        ranges.collect::<Result<_, domain::InvalidNetwork>>().map(Self).map_err(|it| it.to_string())
    }
}

impl Display for Grants {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(formatter, &self.0)
    }
}

/// Who is asked for names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resolvers(Vec<SocketAddr>);

impl FromStr for Resolvers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let resolver = |word: &String| {
            let alone = word.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
            alone.or_else(|_| word.parse()).map_err(|_| {
                format!("`{word}` is no address such as 10.0.0.53, with a port where it is not 53")
            })
        };
        words(text).iter().map(resolver).collect::<Result<_, _>>().map(Self)
    }
}

impl Display for Resolvers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        joined(formatter, &self.0)
    }
}

/// A proxy through which everything is dialled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxy(Option<SecretText>);

impl FromStr for Proxy {
    type Err = &'static str;

    /// What is wrong is not repeated: it may have a password.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let shape = "it has to be http://HOST:PORT or socks5://HOST:PORT, with NAME:PASSWORD@ \
                     before the host where the proxy wants that";
        let (_, address) = parts(text).ok_or(shape)?;
        let (host, port) = address.rsplit_once(':').ok_or(shape)?;
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ', '?', '#']);
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        if is_host && is_port { Ok(Self(Some(SecretText::new(text)))) } else { Err(shape) }
    }
}

impl Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.as_ref().and_then(|text| parts(text.expose()));
        shown.map_or(Ok(()), |(scheme, address)| write!(formatter, "{scheme}://{address}"))
    }
}

/// The kind of a proxy and where it is, without a name and a password.
fn parts(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
    matches!(scheme, "http" | "socks5").then_some((scheme, address))
}

/// A file with certificates that are trusted beside the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Certificates(Option<PathBuf>);

impl FromStr for Certificates {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match PathBuf::from(text) {
            path if text.is_empty() || path.is_absolute() => {
                Ok(Self(Some(path).filter(|path| path.is_absolute())))
            }
            _ => Err("it has to be the whole path of a file, beginning with /"),
        }
    }
}

impl Display for Certificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |path| write!(formatter, "{}", path.display()))
    }
}

/// What a sandbox may reach of which nobody said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usual(pub(crate) NetworkMode);

impl Default for Usual {
    fn default() -> Self {
        Self(NetworkMode::AllowAll)
    }
}

impl FromStr for Usual {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "allow-all" => Ok(Self(NetworkMode::AllowAll)),
            "deny-all" => Ok(Self(NetworkMode::DenyAll)),
            _ => Err("it has to be `allow-all` or `deny-all`"),
        }
    }
}

impl Display for Usual {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            NetworkMode::AllowAll => "allow-all",
            NetworkMode::DenyAll | NetworkMode::Custom => "deny-all",
        })
    }
}

impl Settings {
    /// What the egress program is told.
    pub(crate) fn network(&self) -> Result<::network::Configuration, Failure> {
        let certificates = self.network_certificates.value.0.as_ref().map(read).transpose()?;
        Ok(::network::Configuration {
            grants: self.network_grants.value.0.clone(),
            resolvers: self.network_resolvers.value.0.clone(),
            proxy: self.network_proxy.value.0.clone(),
            certificates,
        })
    }
}

fn read(path: &PathBuf) -> Result<String, Failure> {
    let wrong = |why: &dyn Display| {
        Failure::usage(format!("`network.certificates`: {} {why}", path.display()))
    };
    let file = std::fs::File::open(path);
    let file = file.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let mut text = String::new();
    let taken = file.take(LARGEST_BUNDLE + 1).read_to_string(&mut text);
    taken.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if text.len() as u64 > LARGEST_BUNDLE {
        let most = LARGEST_BUNDLE >> 10;
        return Err(wrong(&format!("has more than {most} KiB: name your own certificates alone")));
    }
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(wrong(&"has no certificates as PEM"));
    }
    Ok(text)
}

fn words(text: &str) -> Vec<String> {
    let Ok(Words(words)) = text.parse();
    words
}

fn joined(formatter: &mut fmt::Formatter<'_>, items: &[impl ToString]) -> fmt::Result {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    formatter.write_str(&texts.join(","))
}
