//! `soma net show`: what a sandbox may reach.

use std::fmt::Write as _;
use std::path::Path;

use api_v1::network::{Network, NetworkMode, Rewrite};
use clap::Args;

use crate::failure::{Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma net show`.
#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(home: &Path, arguments: &ShowArguments) -> Result<u8, Failure> {
    let asked =
        async |client: client::Client| client.network(&arguments.which).await.map_err(refused);
    let network = daemon::ask(home, asked)?;
    if arguments.json { output::json(&network) } else { output::words(&words(&network)) }
}

/// A policy, one rule to a line. Values of headers are not shown, and are not known here.
pub(super) fn words(network: &Network) -> String {
    let mode = match (network.mode, network.learn) {
        (_, true) => "learn: everything that is public, written down",
        (NetworkMode::AllowAll, _) => "allow-all: everything that is public",
        (NetworkMode::DenyAll, _) => "deny-all: nothing",
        (NetworkMode::Custom, _) => "custom: what is listed",
    };
    let mut text = format!("mode       {mode}\n");
    let mut list = |what: &str, items: &[String]| {
        for item in items {
            let _ = writeln!(text, "{what:<10} {}", output::one_line(item));
        }
    };
    list("allow", &network.allow_domains);
    list("allow", &network.allow_cidrs);
    list("port", &network.allow_ports);
    list("sandbox", &network.allow_sandboxes);
    list("block", &network.block_domains);
    list("block", &network.block_cidrs);
    let transforms: Vec<String> = network.transforms.iter().map(rewrite).collect();
    list("transform", &transforms);
    text
}

fn rewrite(rewrite: &Rewrite) -> String {
    let set = rewrite.inject_headers.keys().map(|name| format!("sets {name}"));
    let taken = rewrite.strip_headers.iter().map(|name| format!("takes out {name}"));
    let all: Vec<String> = set.chain(taken).collect();
    format!("{}: {}", rewrite.domain, all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_rule_by_rule() {
        let mut network = Network::new(NetworkMode::Custom);
        network.allow_domains = vec!["*.pypi.org".to_owned()];
        network.allow_ports = vec!["443".to_owned()];
        network.block_cidrs = vec!["192.0.2.0/24".to_owned()];
        network.transforms = vec![Rewrite {
            domain: "api.example.com".to_owned(),
            inject_headers: [("Authorization".to_owned(), domain::SecretText::new("x"))].into(),
            strip_headers: vec!["Cookie".to_owned()],
        }];
        let shown = "mode       custom: what is listed\nallow      *.pypi.org\nport       443\n\
                     block      192.0.2.0/24\n\
                     transform  api.example.com: sets Authorization, takes out Cookie\n";
        assert_eq!(words(&network), shown);
    }
}
