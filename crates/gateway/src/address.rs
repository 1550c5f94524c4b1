//! The names under which the daemon and its sandboxes are reached.

use std::net::IpAddr;

use domain::SandboxId;

/// The port of a sandbox on which E2B's agent is expected.
pub(crate) const AGENT: u16 = 49983;

/// The port of a sandbox on which E2B's code interpreter is expected.
pub(crate) const INTERPRETER: u16 = 49999;

/// The names that are served.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The domain below which sandboxes have their names.
    pub domain: String,
    /// Other names of this machine.
    pub hosts: Vec<String>,
    /// Whole origins of pages that may call the API from a browser.
    pub origins: Vec<String>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { domain: "localhost".to_owned(), hosts: Vec::new(), origins: Vec::new() }
    }
}

/// What a host name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// The daemon itself, where headers may name a sandbox.
    Daemon,
    /// A port of a sandbox.
    Sandbox {
        id: SandboxId,
        /// Its default port when unset.
        port: Option<u16>,
    },
}

impl Addresses {
    /// What a `Host` header stands for; `None` when it is nobody's name here.
    pub(crate) fn find(&self, authority: &str) -> Option<Host> {
        let name = without_port(authority).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        // A page that was given a name for this address cannot have the address itself.
        if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return Some(Host::Daemon);
        }
        let is_own = |own: &String| own.eq_ignore_ascii_case(name);
        if name == "localhost" || is_own(&self.domain) || self.hosts.iter().any(is_own) {
            return Some(Host::Daemon);
        }
        let label = name.strip_suffix(&self.domain)?.strip_suffix('.')?;
        match label {
            "api" | "sandbox" => Some(Host::Daemon),
            _ => sandbox(label),
        }
    }

    /// Whether a page of this origin may call an API at this host.
    pub(crate) fn allows_origin(&self, origin: &str, authority: &str) -> bool {
        let own = ["http://", "https://"].iter().any(|scheme| {
            origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(authority))
        });
        own || self.origins.iter().any(|allowed| allowed == origin)
    }
}

/// `ID`, `ID-PORT` (Leap0) or `PORT-ID` (E2B).
fn sandbox(label: &str) -> Option<Host> {
    if let Ok(id) = label.parse() {
        return Some(Host::Sandbox { id, port: None });
    }
    let (left, right) = label.split_once('-')?;
    let (id, port) = match (left.parse(), right.parse()) {
        (Ok(id), _) => (id, right),
        (Err(_), Ok(id)) => (id, left),
        (Err(_), Err(_)) => return None,
    };
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some(Host::Sandbox { id, port: Some(port) })
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdefghjkmnpq";

    fn addresses() -> Addresses {
        Addresses {
            domain: "sbx.example".into(),
            hosts: vec!["box.lan".into()],
            origins: vec!["https://console.example".into()],
        }
    }

    #[test]
    fn own_names_and_bare_addresses_are_the_daemon() {
        for name in [
            "127.0.0.1:7070",
            "[::1]:7070",
            "localhost",
            "LOCALHOST:1",
            "sbx.example",
            "api.sbx.example:8443",
            "sandbox.sbx.example",
            "box.lan",
            "box.lan.",
        ] {
            assert_eq!(addresses().find(name), Some(Host::Daemon), "{name}");
        }
    }

    #[test]
    fn strangers_names_are_nobodys() {
        for name in [
            "evil.example",
            "sbx.example.evil.example",
            "evilsbx.example",
            "",
            "a b",
            "other.sbx.example",
            "localhost.evil.example",
        ] {
            assert_eq!(addresses().find(name), None, "{name}");
        }
    }

    #[test]
    fn a_sandbox_has_its_names_in_both_orders() {
        let id: SandboxId = ID.parse().unwrap();
        let named = |text: &str| addresses().find(&format!("{text}.sbx.example:8443"));
        assert_eq!(named(ID), Some(Host::Sandbox { id: id.clone(), port: None }));
        for text in [format!("{ID}-8080"), format!("8080-{ID}")] {
            assert_eq!(named(&text), Some(Host::Sandbox { id: id.clone(), port: Some(8080) }));
        }
        for text in [format!("{ID}-0"), format!("{ID}-99999"), format!("{ID}-x"), "80-x".into()] {
            assert_eq!(named(&text), None, "{text}");
        }
    }

    #[test]
    fn a_page_may_call_the_api_it_came_from_and_those_that_were_named() {
        let addresses = addresses();
        assert!(addresses.allows_origin("http://127.0.0.1:7070", "127.0.0.1:7070"));
        assert!(addresses.allows_origin("https://console.example", "127.0.0.1:7070"));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:7071", ""] {
            assert!(!addresses.allows_origin(origin, "127.0.0.1:7070"), "{origin}");
        }
    }
}
