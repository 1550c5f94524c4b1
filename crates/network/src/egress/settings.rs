//! The operator's configuration, made ready for use.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use domain::NetworkPolicy;
use rustls::ClientConfig;

use super::certificates;
use super::judge::{self, Verdict};
use super::locality;
use super::proxy::Proxy;
use super::resolver::HostResolvers;
use crate::Configuration;

/// What holds for all sandboxes at one time.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) configuration: Configuration,
    pub(crate) proxy: Option<Proxy>,
    /// Nothing is dialled while what the operator wants cannot be read.
    is_readable: bool,
    trust: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl Settings {
    /// A configuration as JSON. The reason of a failure repeats nothing of the text, which may
    /// have passwords.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let configuration: Configuration = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("the network's configuration cannot be read at line {line}, column {column}")
        })?;
        let proxy = match &configuration.proxy {
            Some(text) => Some(Proxy::parse(text.expose())?),
            None => None,
        };
        if let Some(text) = &configuration.certificates {
            certificates::read_all(text)?;
        }
        Ok(Self { configuration, proxy, is_readable: true, trust: OnceLock::new() })
    }

    /// What holds until an operator says something.
    pub(crate) fn usual() -> Self {
        Self {
            configuration: Configuration::default(),
            proxy: None,
            is_readable: true,
            trust: OnceLock::new(),
        }
    }

    /// What holds when the operator said something that cannot be read: nothing is reached.
    pub(crate) fn unreadable() -> Self {
        Self { is_readable: false, ..Self::usual() }
    }

    /// Whether everything is dialled through somebody else.
    pub(crate) fn has_proxy(&self) -> bool {
        self.proxy.is_some()
    }

    /// Whom to ask for names.
    pub(crate) fn resolvers(&self, host: &HostResolvers) -> Vec<SocketAddr> {
        if self.configuration.resolvers.is_empty() {
            return host.servers();
        }
        self.configuration.resolvers.clone()
    }

    /// Whether a name may be reached at a port, or asked for when there is no port yet.
    pub(crate) fn name(&self, policy: &NetworkPolicy, name: &str, port: Option<u16>) -> Verdict {
        let verdict = judge::name(policy, name, port);
        if verdict.allowed && !self.is_readable { unreadable() } else { verdict }
    }

    /// Whether an address that an allowed name has may be dialled.
    pub(crate) fn check(&self, policy: &NetworkPolicy, address: IpAddr) -> Verdict {
        let verdict = judge::dialled(policy, &self.configuration, address);
        self.narrow(verdict, address)
    }

    /// Whether a connection to an address may be made.
    pub(crate) fn judge(&self, policy: &NetworkPolicy, address: IpAddr, port: u16) -> Verdict {
        let verdict = judge::address(policy, &self.configuration, address, port);
        self.narrow(verdict, address)
    }

    /// What is trusted when we speak TLS for a sandbox.
    pub(crate) fn trust(&self) -> Result<Arc<ClientConfig>, String> {
        let more = self.configuration.certificates.as_deref();
        self.trust.get_or_init(|| certificates::trust(more)).clone()
    }

    /// What is allowed by number may be refused for what it is on this machine.
    fn narrow(&self, verdict: Verdict, address: IpAddr) -> Verdict {
        if !verdict.allowed {
            return verdict;
        }
        if !self.is_readable {
            return unreadable();
        }
        // An address of the new kind may be one of the old kind in disguise, and is dialled as it.
        let ways = || [Some(address), judge::embedded(address)].into_iter().flatten();
        let is_granted = |way| self.configuration.grants.iter().any(|range| range.contains(way));
        if !ways().any(is_granted) && ways().any(locality::is_own) {
            return Verdict::refused(
                "host address",
                format!("{address} is this machine itself; its operator can grant it"),
            );
        }
        verdict
    }
}

fn unreadable() -> Verdict {
    Verdict::refused("configuration", "the operator's configuration of the network cannot be read")
}
