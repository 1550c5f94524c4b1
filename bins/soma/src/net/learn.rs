//! `soma net learn`: the policy that a sandbox would need for what it reached.

use std::fmt::Write as _;
use std::path::Path;

use api_v1::network::{LearnedNetwork, Network};
use clap::Args;

use super::show;
use crate::failure::{Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma net learn`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma new --name trial --network learn
  soma exec trial -- pip install requests
  soma net learn trial
  soma net learn trial --apply

Written are the policy as TOML, and the options with which `soma new`, `soma run` and `soma shell`
make a sandbox that may reach the same and no more.")]
pub(super) struct LearnArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// Begin to learn: from now on everything passes that is public, and is written down.
    #[arg(long, conflicts_with_all = ["apply", "json"])]
    start: bool,
    /// Let the sandbox itself reach this and no more from now on.
    #[arg(long)]
    apply: bool,
    /// The policy as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(home: &Path, arguments: &LearnArguments) -> Result<u8, Failure> {
    let which = &arguments.which;
    if arguments.start {
        let network = daemon::ask(home, async |client| {
            let mut network = client.network(which).await.map_err(refused)?;
            network.learn = true;
            if network.mode == api_v1::network::NetworkMode::DenyAll {
                network.mode = api_v1::network::NetworkMode::Custom;
            }
            client.set_network(which, &network).await.map_err(refused)
        })?;
        return output::words(&show::words(&network));
    }
    let learned = daemon::ask(home, async |client| {
        let learned = client.learned_network(which).await.map_err(refused)?;
        if arguments.apply {
            client.set_network(which, &learned.policy).await.map_err(refused)?;
        }
        Ok(learned)
    })?;
    if !learned.left_out.is_empty() {
        let left = output::one_line(&learned.left_out.join(" "));
        output::talk(&format!("soma: a policy has no room for {left}\n"));
    }
    if arguments.json {
        return output::json(&learned.policy);
    }
    output::words(&words(&learned))
}

fn words(learned: &LearnedNetwork) -> String {
    let policy = &learned.policy;
    let mut text = "mode = \"custom\"\n".to_owned();
    for (key, items) in lists(policy) {
        if !items.is_empty() {
            let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
            let _ = writeln!(text, "{key} = [{}]", items.join(", "));
        }
    }
    let _ = writeln!(text, "\n# soma new{}", options(policy));
    for transform in &policy.transforms {
        for name in transform.inject_headers.keys() {
            let domain = output::one_line(&transform.domain);
            let _ = writeln!(text, "#   --inject '{domain}:{name}=$VARIABLE'");
        }
    }
    text
}

fn lists(policy: &Network) -> [(&'static str, &Vec<String>); 6] {
    [
        ("allow_domains", &policy.allow_domains),
        ("allow_cidrs", &policy.allow_cidrs),
        ("allow_ports", &policy.allow_ports),
        ("allow_sandboxes", &policy.allow_sandboxes),
        ("block_domains", &policy.block_domains),
        ("block_cidrs", &policy.block_cidrs),
    ]
}

/// What is typed for the same policy. Wildcards are quoted, for shells have a meaning for them.
fn options(policy: &Network) -> String {
    let mut text = String::new();
    let mut add = |option: &str, item: &str| {
        let item = output::one_line(item);
        let quote = if item.contains('*') { "'" } else { "" };
        let _ = write!(text, " {option} {quote}{item}{quote}");
    };
    let allowed = [&policy.allow_domains, &policy.allow_cidrs, &policy.allow_ports];
    allowed.into_iter().flatten().for_each(|item| add("--allow", item));
    policy.allow_sandboxes.iter().for_each(|name| add("--allow", &format!("sandbox:{name}")));
    let blocked = [&policy.block_domains, &policy.block_cidrs];
    blocked.into_iter().flatten().for_each(|item| add("--block", item));
    if text.is_empty() { " --network none".to_owned() } else { text }
}

/// None of them has quotes or control characters, but they come from a log.
fn quoted(item: &str) -> String {
    format!("\"{}\"", output::one_line(item).replace(['"', '\\'], ""))
}

#[cfg(test)]
mod tests {
    use api_v1::network::NetworkMode;

    use super::*;

    #[test]
    fn what_was_learned_can_be_read_back_and_typed() {
        let mut policy = Network::new(NetworkMode::Custom);
        policy.allow_domains = vec!["pypi.org".to_owned(), "*.cdn.example.com".to_owned()];
        policy.allow_ports = vec!["443".to_owned()];
        let learned = LearnedNetwork { left_out: Vec::new(), policy: policy.clone() };
        let text = words(&learned);
        let read: Network = toml::from_str(&text).unwrap();
        assert_eq!(read, policy);
        let last = text.lines().last().unwrap();
        let typed = "# soma new --allow pypi.org --allow '*.cdn.example.com' --allow 443";
        assert_eq!(last, typed);
    }
}
