//! What a sandbox may reach, decided: pure functions of a policy, a configuration and a question.
//!
//! The order is the same for names and for addresses, and the first that applies decides:
//!
//! ```text
//! block_domains, block_cidrs      refused, whatever else is said
//! allow_ports                     refused when there are some and the port is none of them
//! special ranges (addresses)      refused unless the operator's grants have them
//! mode deny-all                   refused
//! sandboxes, allow_*, transforms  allowed
//! mode allow-all                  allowed
//! learn                           allowed, and written down as `learn`
//! ```
//!
//! Every verdict names its rule, for the log and for whoever was refused. [`special`] has the
//! ranges as data.

mod special;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use domain::{NetworkMode, NetworkPolicy, SandboxId};

use crate::Configuration;
pub use special::{embedded, special};

/// What is granted pairs' own domain: `NAME.sandbox.internal` is the sandbox granted as `NAME`.
const SANDBOXES: &str = "sandbox.internal";

/// What was decided, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may pass.
    pub allowed: bool,
    /// Which rule decided: `allow_domains: *.example.com`, `mode: deny-all`, `private address`.
    pub rule: String,
    /// What to do about a refusal.
    pub detail: Option<String>,
}

impl Verdict {
    /// It may pass, by this rule.
    pub fn allowed(rule: impl Into<String>) -> Self {
        Self { allowed: true, rule: rule.into(), detail: None }
    }

    /// It may not pass, by this rule.
    pub fn refused(rule: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { allowed: false, rule: rule.into(), detail: Some(detail.into()) }
    }
}

/// A name in the form that everything here compares: lower case, no dot at its end. None when it
/// is no name of a host: too long, empty labels, other bytes than hosts' names have.
pub fn normal_name(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let good = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    (name.len() <= 253 && name.split('.').all(good)).then_some(name)
}

/// Whether a name may be reached at a port, or asked for when there is no port yet. The name is
/// a [`normal_name`].
pub fn name(policy: &NetworkPolicy, name: &str, port: Option<u16>) -> Verdict {
    if let Some(refused) = blocked_name(policy, name) {
        return refused;
    }
    if let Some(refused) = port.and_then(|port| wrong_port(policy, port)) {
        return refused;
    }
    if is_of_sandboxes(policy, name) {
        return match pair(policy, name) {
            _ if policy.mode == NetworkMode::DenyAll => denied(policy.mode, name),
            Some((granted, _)) => Verdict::allowed(format!("sandboxes: {granted}")),
            None => Verdict::refused("sandboxes", format!("`{name}` is no sandbox granted here")),
        };
    }
    let listed = || {
        let listed = policy.allow_domains.iter().find(|pattern| pattern.matches(name));
        let changed = || policy.transforms.iter().find(|transform| transform.domain.matches(name));
        listed
            .map(|pattern| format!("allow_domains: {pattern}"))
            .or_else(|| changed().map(|transform| format!("transforms: {}", transform.domain)))
    };
    by_mode(policy, name, listed)
}

/// Whether a connection to an address may be made, which names nothing else.
pub fn address(
    policy: &NetworkPolicy,
    configuration: &Configuration,
    address: IpAddr,
    port: u16,
) -> Verdict {
    if let Some(refused) = wrong_port(policy, port) {
        return refused;
    }
    let dialled = dialled(policy, configuration, address);
    if !dialled.allowed {
        return dialled;
    }
    let listed = || {
        let ways = [Some(address), embedded(address)];
        let holds = |cidr: &&domain::Cidr| ways.iter().flatten().any(|way| cidr.contains(*way));
        policy.allow_cidrs.iter().find(holds).map(|cidr| format!("allow_cidrs: {cidr}"))
    };
    by_mode(policy, &address.to_string(), listed)
}

/// Whether an address that an allowed name has may be dialled: what the operator granted or the
/// whole world has, and nobody blocked.
pub fn dialled(policy: &NetworkPolicy, configuration: &Configuration, address: IpAddr) -> Verdict {
    let ways = [Some(address), embedded(address)];
    let blocked = |cidr: &&domain::Cidr| ways.iter().flatten().any(|way| cidr.contains(*way));
    if let Some(cidr) = policy.block_cidrs.iter().find(blocked) {
        return Verdict::refused(
            format!("block_cidrs: {cidr}"),
            format!("the policy blocks {address}; take it out of block_cidrs"),
        );
    }
    let Some(range) = special(address) else { return Verdict::allowed("public address") };
    let granted = |cidr: &&domain::Cidr| {
        // Who answers with credentials is granted by itself, or not at all.
        let exactly = |way: &IpAddr| !range.is_exact || cidr.to_string() == exact(*way);
        ways.iter().flatten().any(|way| cidr.contains(*way) && exactly(way))
    };
    match configuration.grants.iter().find(granted) {
        Some(cidr) => Verdict::allowed(format!("grants: {cidr}")),
        None => Verdict::refused(
            range.what,
            format!("{address} is not public; the operator of this machine can grant it"),
        ),
    }
}

/// Whether a name that a client spoke, by SNI or Host, fits the connection on which it did.
///
/// A connection by name speaks of that name. One by address may speak of any that is not blocked.
pub fn spoken(policy: &NetworkPolicy, connected: Option<&str>, spoken: &str) -> Verdict {
    let Some(spoken) = normal_name(spoken) else {
        return Verdict::refused("no name", "what the client names as its host is no host's name");
    };
    if let Some(refused) = blocked_name(policy, &spoken) {
        return refused;
    }
    match connected {
        Some(connected) if connected != spoken => Verdict::refused(
            "other name",
            format!("the connection is to `{connected}` and asks for `{spoken}`"),
        ),
        _ => Verdict::allowed("same name"),
    }
}

/// Whether what a connection says must be looked at: where some names may not be reached.
pub fn is_strict(policy: &NetworkPolicy) -> bool {
    let lets_all_pass = policy.learn || policy.mode == NetworkMode::AllowAll;
    !lets_all_pass || !policy.block_domains.is_empty()
}

/// The sandbox that a name means, and the name that it was granted by.
pub fn pair<'a>(policy: &'a NetworkPolicy, name: &str) -> Option<(&'a str, &'a SandboxId)> {
    let short = name.strip_suffix(SANDBOXES).and_then(|rest| rest.strip_suffix('.'));
    let wanted = short.unwrap_or(name);
    let mut granted = policy.sandboxes.iter();
    granted
        .find(|(granted, _)| granted.eq_ignore_ascii_case(wanted))
        .map(|(granted, sandbox)| (granted.as_str(), sandbox))
}

fn is_of_sandboxes(policy: &NetworkPolicy, name: &str) -> bool {
    name == SANDBOXES
        || name.strip_suffix(SANDBOXES).is_some_and(|rest| rest.ends_with('.'))
        || pair(policy, name).is_some()
}

fn blocked_name(policy: &NetworkPolicy, name: &str) -> Option<Verdict> {
    let pattern = policy.block_domains.iter().find(|pattern| pattern.matches(name))?;
    let detail = format!("the policy blocks `{name}`; take it out of block_domains");
    Some(Verdict::refused(format!("block_domains: {pattern}"), detail))
}

fn wrong_port(policy: &NetworkPolicy, port: u16) -> Option<Verdict> {
    let ports = &policy.allow_ports;
    let is_wrong = !ports.is_empty() && !ports.iter().any(|ports| ports.contains(port));
    let detail = || format!("the policy allows other ports; add {port} to allow_ports");
    is_wrong.then(|| Verdict::refused("allow_ports", detail()))
}

fn by_mode(policy: &NetworkPolicy, what: &str, listed: impl FnOnce() -> Option<String>) -> Verdict {
    let listed = if policy.mode == NetworkMode::Custom { listed() } else { None };
    match (policy.mode, listed) {
        (_, Some(rule)) => Verdict::allowed(rule),
        _ if policy.learn => Verdict::allowed("learn"),
        (NetworkMode::AllowAll, None) => Verdict::allowed("mode: allow-all"),
        (mode, None) => denied(mode, what),
    }
}

fn denied(mode: NetworkMode, what: &str) -> Verdict {
    match mode {
        NetworkMode::DenyAll => Verdict::refused("mode: deny-all", "the policy lets nothing pass"),
        _ => Verdict::refused(
            "mode: custom",
            format!("the policy does not list `{what}`; `soma net allow` adds it"),
        ),
    }
}

/// How a range of one address alone is written.
fn exact(address: IpAddr) -> String {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{bits}")
}
