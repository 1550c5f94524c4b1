//! `soma net deny`: a sandbox may reach less.

use std::path::Path;

use api_v1::network::{Network, NetworkMode};
use clap::Args;

use super::item::Item;
use super::show;
use crate::failure::{Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma net deny`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma net deny my-box ads.example.com
  soma net deny my-box 203.0.113.0/24 25
  soma net deny my-box --all

What is denied stays so whatever else is allowed. Connections to it are cut.")]
pub(super) struct DenyArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// Domains such as example.com or *.example.com, ranges such as 203.0.113.0/24, ports such as
    /// 443 or 8000-8999, or sandbox:NAME.
    #[arg(value_name = "WHAT", required_unless_present = "all")]
    what: Vec<Item>,
    /// Everything: nothing is listed as allowed any more.
    #[arg(long, conflicts_with = "what")]
    all: bool,
}

pub(super) fn run(home: &Path, arguments: &DenyArguments) -> Result<u8, Failure> {
    let network = daemon::ask(home, async |client| {
        let mut network = client.network(&arguments.which).await.map_err(refused)?;
        if arguments.all {
            deny_all(&mut network);
        } else {
            deny(&mut network, &arguments.what).map_err(Failure::usage)?;
        }
        client.set_network(&arguments.which, &network).await.map_err(refused)
    })?;
    output::words(&show::words(&network))
}

fn deny_all(network: &mut Network) {
    network.mode = NetworkMode::DenyAll;
    network.learn = false;
    network.allow_domains.clear();
    network.allow_cidrs.clear();
    network.allow_ports.clear();
    network.allow_sandboxes.clear();
}

fn deny(network: &mut Network, what: &[Item]) -> Result<(), String> {
    for item in what {
        item.take_off_allowed(network);
        item.block(network)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_is_blocked_and_allowed_no_more() {
        let mut network = Network::new(NetworkMode::Custom);
        network.allow_domains = vec!["a.com".to_owned(), "b.com".to_owned()];
        network.allow_sandboxes = vec!["db".to_owned()];
        let what: Vec<Item> =
            ["a.com", "192.0.2.0/24", "sandbox:db"].iter().map(|it| it.parse().unwrap()).collect();
        deny(&mut network, &what).unwrap();
        assert_eq!((network.allow_domains.len(), network.allow_sandboxes.len()), (1, 0));
        assert_eq!(network.block_domains, ["a.com"]);
        assert_eq!(network.block_cidrs, ["192.0.2.0/24"]);
        deny_all(&mut network);
        assert_eq!(network.mode, NetworkMode::DenyAll);
        assert_eq!(network.block_domains, ["a.com"]);
    }
}
