//! Sandboxes as E2B's clients know them.

use domain::{Lease, NetworkMode, OnTimeout, State};
use serde_json::{Value, json};

use crate::network;

/// The version of E2B's agent whose behaviour the guest has: clients choose what they send by it.
const AGENT_VERSION: &str = "0.6.13";

/// Legacy, but clients raise when it is missing.
const CLIENT: &str = "soma";

/// The answer to a create or a connect.
pub(crate) fn made(lease: &Lease) -> Value {
    let token = lease.spec.token.as_ref().filter(|_| lease.secure);
    json!({
        "templateID": lease.template,
        "sandboxID": lease.id,
        "clientID": CLIENT,
        "envdVersion": AGENT_VERSION,
        "envdAccessToken": token.map(domain::Token::reveal),
        "trafficAccessToken": null,
        "domain": null,
    })
}

/// One sandbox in a list.
pub(crate) fn listed(lease: &Lease) -> Value {
    let limits = &lease.spec.limits;
    // Clients want a time, and an unlimited sandbox has none: a year is as good as never.
    let never = lease.created_at.after(std::time::Duration::from_hours(24 * 366));
    let is_paused = matches!(lease.state, State::Paused(_) | State::Pausing(_));
    json!({
        "templateID": lease.template,
        "sandboxID": lease.id,
        "clientID": CLIENT,
        "startedAt": lease.created_at.to_string(),
        "endAt": lease.until.unwrap_or(never).to_string(),
        "cpuCount": limits.cpus.0.div_ceil(1000),
        "memoryMB": limits.memory.0 >> 20,
        "diskSizeMB": limits.disk.0 >> 20,
        "state": if is_paused { "paused" } else { "running" },
        "envdVersion": AGENT_VERSION,
        "metadata": lease.labels,
    })
}

/// One sandbox by itself.
pub(crate) fn detail(lease: &Lease) -> Value {
    let mut shown = listed(lease);
    let token = lease.spec.token.as_ref().filter(|_| lease.secure);
    shown["envdAccessToken"] = json!(token.map(domain::Token::reveal));
    let network = &lease.spec.network;
    shown["allowInternetAccess"] = json!(network.mode != NetworkMode::DenyAll);
    shown["network"] = network::shown(network);
    shown["domain"] = json!(null);
    let on_timeout = match lease.on_timeout {
        // Its files stay, but E2B's clients know no such state.
        OnTimeout::Stop | OnTimeout::Delete => "kill",
        OnTimeout::Pause => "pause",
    };
    shown["lifecycle"] = json!({ "autoResume": lease.auto_resume, "onTimeout": on_timeout });
    shown
}
