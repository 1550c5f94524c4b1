//! `soma net allow`: a sandbox may reach more.

use std::path::Path;

use api_v1::network::{Network, NetworkMode};
use clap::Args;

use super::item::Item;
use super::show;
use crate::failure::{Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma net allow`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma net allow my-box example.com '*.pypi.org'
  soma net allow my-box 203.0.113.0/24 443
  soma net allow my-box sandbox:db
  soma net allow my-box --all

What is allowed is no longer blocked. With ports, only those that are listed can be reached.")]
pub(super) struct AllowArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// Domains such as example.com or *.example.com, ranges such as 203.0.113.0/24, ports such as
    /// 443 or 8000-8999, or sandbox:NAME.
    #[arg(value_name = "WHAT", required_unless_present = "all")]
    what: Vec<Item>,
    /// Everything that is public: nothing is listed or blocked any more.
    #[arg(long, conflicts_with = "what")]
    all: bool,
}

pub(super) fn run(home: &Path, arguments: &AllowArguments) -> Result<u8, Failure> {
    let network = daemon::ask(home, async |client| {
        let mut network = client.network(&arguments.which).await.map_err(refused)?;
        if arguments.all {
            allow_all(&mut network);
        } else {
            allow(&mut network, &arguments.what);
        }
        client.set_network(&arguments.which, &network).await.map_err(refused)
    })?;
    let lists = !network.allow_domains.is_empty() || !network.allow_cidrs.is_empty();
    if network.mode == NetworkMode::AllowAll && lists && !arguments.all {
        output::talk(
            "everything that is public is allowed anyway; `soma net deny --all` before this \
             leaves what is listed alone\n",
        );
    }
    output::words(&show::words(&network))
}

fn allow_all(network: &mut Network) {
    let (transforms, sandboxes) =
        (std::mem::take(&mut network.transforms), std::mem::take(&mut network.allow_sandboxes));
    *network = Network::new(NetworkMode::AllowAll);
    (network.transforms, network.allow_sandboxes) = (transforms, sandboxes);
}

fn allow(network: &mut Network, what: &[Item]) {
    if network.mode == NetworkMode::DenyAll {
        network.mode = NetworkMode::Custom;
    }
    for item in what {
        item.take_off_blocked(network);
        item.allow(network);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(texts: &[&str]) -> Vec<Item> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_allowed_is_listed_once_and_blocked_no_more() {
        let mut network = Network::new(NetworkMode::DenyAll);
        network.block_domains = vec!["example.com".to_owned(), "b.com".to_owned()];
        for _ in 0..2 {
            allow(&mut network, &items(&["Example.com", "192.0.2.1", "443", "sandbox:db"]));
        }
        assert_eq!(network.mode, NetworkMode::Custom);
        assert_eq!(network.allow_domains, ["example.com"]);
        assert_eq!(network.allow_cidrs, ["192.0.2.1/32"]);
        assert_eq!((network.allow_ports[0].as_str(), network.allow_ports.len()), ("443", 1));
        assert_eq!(network.allow_sandboxes, ["db"]);
        assert_eq!(network.block_domains, ["b.com"]);
    }

    #[test]
    fn everything_keeps_what_is_changed_in_requests() {
        let mut network = Network::new(NetworkMode::Custom);
        network.block_domains = vec!["b.com".to_owned()];
        network.allow_ports = vec!["443".to_owned()];
        network.transforms = vec![api_v1::network::Rewrite {
            domain: "api.example.com".to_owned(),
            inject_headers: std::collections::BTreeMap::new(),
            strip_headers: Vec::new(),
        }];
        allow_all(&mut network);
        assert_eq!((network.mode, network.transforms.len()), (NetworkMode::AllowAll, 1));
        assert!(network.block_domains.is_empty() && network.allow_ports.is_empty());
    }
}
