//! Real package managers inside a sandbox, from the registries that this machine reaches.

use std::net::{SocketAddr, ToSocketAddrs as _};

use serde_json::json;

use super::{log, sandbox};
use crate::daemon::Daemon;
use crate::support::{Home, needs_root, skip};

/// What each of them has to reach.
pub(crate) const PYTHON: [&str; 2] = ["pypi.org", "files.pythonhosted.org"];
pub(crate) const NODE: [&str; 1] = ["registry.npmjs.org"];
const DEBIAN: [&str; 1] = ["deb.debian.org"];

/// A daemon whose operator grants the addresses that these names have here: a machine may reach its
/// registries by addresses of its own network. What else the operator wants comes before.
pub(crate) fn daemon(test: &str, names: &[&str], settings: &str) -> Option<Daemon> {
    let mut grants = Vec::new();
    for name in names {
        let Ok(addresses) = (*name, 443).to_socket_addrs() else {
            skip(test, &format!("`{name}` has no address here"));
            return None;
        };
        grants.extend(addresses.filter(SocketAddr::is_ipv4).map(|it| format!("{}/32", it.ip())));
    }
    let home = Home::new();
    let wishes = format!("{settings}\n[network]\ngrants = {grants:?}\n");
    std::fs::write(home.path().join("config.toml"), wishes).unwrap();
    Some(Daemon::of(home))
}

/// Runs a command in a sandbox that may reach these names and nothing else, and shows what it said.
fn install(test: &str, names: &[&str], command: &str) {
    let Some(daemon) = daemon(test, names, "") else { return };
    let id = sandbox(&daemon, &json!({ "mode": "custom", "allow_domains": names }));
    let body = json!({ "command": command, "timeout": 150 }).to_string();
    let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/process/execute"), &body).json();
    assert_eq!(answer["exit_code"], 0, "{answer}\n{:#?}", log(&daemon, &id));
    daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "");
    daemon.close();
}

#[test]
fn pip_installs_a_package_that_can_be_used() {
    install(
        "pip_installs_a_package_that_can_be_used",
        &PYTHON,
        "python3 -m pip install -q six && python3 -c 'import six; print(six.__version__)'",
    );
}

#[test]
fn npm_installs_a_package_that_can_be_used() {
    install(
        "npm_installs_a_package_that_can_be_used",
        &NODE,
        "cd /workspace && npm install --silent is-odd && node -e 'process.exit(require(\"is-odd\")(3) ? 0 : 1)'",
    );
}

#[test]
fn apt_installs_a_package_that_can_be_used() {
    let test = "apt_installs_a_package_that_can_be_used";
    if needs_root(test, "ids for what packages own") {
        return;
    }
    install(
        test,
        &DEBIAN,
        "sudo apt-get -q update && sudo apt-get -q install -y --no-install-recommends hello && hello",
    );
}
