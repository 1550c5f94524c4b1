//! What can be typed about what a fresh sandbox may reach.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;

use api_v1::network::{Network, NetworkMode, Rewrite};
use clap::{Args, ValueEnum};
use domain::{DomainPattern, SecretText};

use crate::failure::Failure;
use crate::net::item::Item;

/// The most that is read of a secret: more no header has.
const LARGEST_SECRET: u64 = 8 << 10;

/// What a fresh sandbox may reach.
#[derive(Debug, Default, Args)]
pub(crate) struct NetworkOptions {
    /// What it may reach: all that is public, nothing, or all with a note of it for `soma net
    /// learn` [default: all].
    #[arg(long, value_name = "NETWORK")]
    network: Option<Reach>,
    /// It may reach this and no more: a domain, a range of addresses, ports, or sandbox:NAME; can
    /// be repeated.
    #[arg(long, value_name = "WHAT")]
    allow: Vec<Item>,
    /// It may not reach this domain or range of addresses; can be repeated.
    #[arg(long, value_name = "WHAT")]
    block: Vec<Item>,
    /// Set a header in its requests to a domain, with a value that it never sees, as
    /// DOMAIN:HEADER=@FILE or 'DOMAIN:HEADER=$VARIABLE'; can be repeated.
    // Taken as it is and read later: clap would repeat a wrong one, and it may be a secret.
    #[arg(long, value_name = "RULE")]
    inject: Vec<OsString>,
}

/// What a sandbox may reach, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reach {
    All,
    None,
    Learn,
}

impl NetworkOptions {
    /// The first of them that was typed.
    pub(super) fn typed(&self) -> Option<&'static str> {
        let typed = [
            ("--network", self.network.is_some()),
            ("--allow", !self.allow.is_empty()),
            ("--block", !self.block.is_empty()),
            ("--inject", !self.inject.is_empty()),
        ];
        typed.into_iter().find_map(|(name, is_typed)| is_typed.then_some(name))
    }

    /// The policy that was typed; `None` when nothing was said.
    pub(crate) fn policy(&self) -> Result<Option<Network>, Failure> {
        let Some(first) = self.typed() else { return Ok(None) };
        let only_ports = self.allow.iter().all(|item| matches!(item, Item::Ports(_)));
        let mode = match self.network {
            Some(Reach::None) if first_besides_network(self).is_some() => {
                let other = first_besides_network(self).unwrap_or(first);
                return Err(Failure::usage(format!(
                    "`--network none` lets nothing pass, and {other} says something about what does"
                )));
            }
            Some(Reach::All | Reach::Learn) if !only_ports => {
                return Err(Failure::usage(
                    "--allow lists all that may be reached: leave `--network` out",
                ));
            }
            Some(Reach::None) => NetworkMode::DenyAll,
            Some(Reach::All | Reach::Learn) => NetworkMode::AllowAll,
            None if only_ports => NetworkMode::AllowAll,
            None => NetworkMode::Custom,
        };
        let mut network = Network::new(mode);
        network.learn = self.network == Some(Reach::Learn);
        self.allow.iter().for_each(|item| item.allow(&mut network));
        for item in &self.block {
            if let Item::Ports(_) | Item::Sandbox(_) = item {
                let message = "--block takes domains and ranges of addresses; ports and sandboxes \
                               are reached when they are listed with --allow";
                return Err(Failure::usage(message));
            }
            item.block(&mut network).map_err(Failure::usage)?;
        }
        network.transforms = self.transforms(|name| std::env::var(name).ok())?;
        Ok(Some(network))
    }

    fn transforms(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<Rewrite>, Failure> {
        let mut rewrites: BTreeMap<String, Rewrite> = BTreeMap::new();
        for typed in &self.inject {
            let (domain, header, value) = injected(typed, &variable)?;
            let rewrite = rewrites.entry(domain.clone()).or_insert_with(|| Rewrite {
                domain,
                inject_headers: BTreeMap::new(),
                strip_headers: Vec::new(),
            });
            if rewrite.inject_headers.insert(header.clone(), value).is_some() {
                return Err(Failure::usage(format!("--inject sets {header} twice")));
            }
        }
        Ok(rewrites.into_values().collect())
    }
}

fn first_besides_network(options: &NetworkOptions) -> Option<&'static str> {
    let rest = [
        ("--allow", !options.allow.is_empty()),
        ("--block", !options.block.is_empty()),
        ("--inject", !options.inject.is_empty()),
    ];
    rest.into_iter().find_map(|(name, is_typed)| is_typed.then_some(name))
}

/// A domain, a header and its value. What stands for the value is never repeated: somebody may
/// have written the secret itself.
fn injected(
    typed: &OsString,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(String, String, SecretText), Failure> {
    let shape = || {
        Failure::usage("--inject is DOMAIN:HEADER=@FILE or 'DOMAIN:HEADER=$VARIABLE'")
            .hint("a secret among the words of a command is seen by every user, so it is not taken")
    };
    let text = typed.to_str().ok_or_else(shape)?;
    let (domain, rest) = text.split_once(':').ok_or_else(shape)?;
    let (header, source) = rest.split_once('=').ok_or_else(shape)?;
    let domain: DomainPattern = domain.parse().map_err(|_| shape())?;
    let is_name = !header.is_empty()
        && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !is_name {
        return Err(shape());
    }
    // `Bearer $TOKEN`: a word of how it is sent is no secret.
    let (word, source) = match source.split_once(' ') {
        Some((word, rest)) if word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            (format!("{word} "), rest)
        }
        _ => (String::new(), source),
    };
    let secret = if let Some(path) = source.strip_prefix('@') {
        read(path)?
    } else if let Some(name) = source.strip_prefix('$') {
        variable(name).ok_or_else(|| {
            Failure::usage(format!(
                "there is no variable `{name}` for --inject, or it is not UTF-8"
            ))
        })?
    } else {
        return Err(shape());
    };
    Ok((domain.to_string(), header.to_owned(), SecretText::new(format!("{word}{secret}"))))
}

/// What a file has, without the end of its last line.
fn read(path: &str) -> Result<String, Failure> {
    let unread =
        |error: &dyn std::fmt::Display| Failure::usage(format!("`{path}` cannot be read: {error}"));
    let file = std::fs::File::open(path).map_err(|error| unread(&error))?;
    let mut text = String::new();
    file.take(LARGEST_SECRET + 1).read_to_string(&mut text).map_err(|error| unread(&error))?;
    if text.len() as u64 > LARGEST_SECRET {
        return Err(unread(&format!("it has more than the {LARGEST_SECRET} bytes of a header")));
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, Parsed, parse};

    fn policy(typed: &[&str]) -> Result<Option<Network>, Failure> {
        let words = ["soma", "new"].iter().chain(typed).map(OsString::from);
        let Parsed::Command { command: Command::New(arguments), .. } = parse(words)? else {
            panic!("{typed:?}");
        };
        arguments.limits().network()
    }

    #[test]
    fn nothing_typed_is_what_the_daemon_chooses() {
        assert_eq!(policy(&[]).unwrap(), None);
    }

    #[test]
    fn a_word_or_a_list_is_a_policy() {
        let mode = |typed: &[&str]| policy(typed).unwrap().unwrap().mode;
        assert_eq!(mode(&["--network", "all"]), NetworkMode::AllowAll);
        assert_eq!(mode(&["--network", "none"]), NetworkMode::DenyAll);
        assert_eq!(mode(&["--block", "a.com"]), NetworkMode::AllowAll);
        assert_eq!(mode(&["--allow", "443"]), NetworkMode::AllowAll);
        assert!(policy(&["--network", "learn"]).unwrap().unwrap().learn);
        let typed = ["--allow", "*.a.com", "--allow", "192.0.2.0/24", "--allow", "443"];
        let network = policy(&[&typed[..], &["--block", "b.a.com"]].concat()).unwrap().unwrap();
        assert_eq!(network.mode, NetworkMode::Custom);
        assert_eq!(network.allow_domains, ["*.a.com"]);
        assert_eq!(network.block_domains, ["b.a.com"]);
        assert_eq!((network.allow_cidrs.len(), network.allow_ports.len()), (1, 1));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for typed in [
            &["--network"][..],
            &["--network", "host"],
            &["--network", "none", "--allow", "a.com"],
            &["--network", "all", "--allow", "a.com"],
            &["--allow", "localhost"],
            &["--block", "443"],
        ] {
            assert_eq!(policy(typed).unwrap_err().code, 2, "{typed:?}");
        }
    }

    #[test]
    fn a_secret_comes_from_a_file_or_a_variable_and_is_never_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "swordfish\n").unwrap();
        let variable = |name: &str| (name == "TOKEN").then(|| "hunter2".to_owned());
        let read = |text: &str| injected(&OsString::from(text), variable);
        let (domain, header, value) =
            read(&format!("API.example.com:X-Key=@{}", path.display())).unwrap();
        assert_eq!((domain.as_str(), header.as_str()), ("api.example.com", "X-Key"));
        assert_eq!(value.expose(), "swordfish");
        let value = read("a.com:Authorization=Bearer $TOKEN").unwrap().2;
        assert_eq!(value.expose(), "Bearer hunter2");
        for wrong in [
            "a.com:X-Key=swordfish",
            "a.com:X-Key=Bearer swordfish",
            "a.com:X-Key",
            "swordfish",
            "a.com:swordfish swordfish=@x",
            "a.com:X-Key=$NOBODY",
        ] {
            let failure = read(wrong).unwrap_err();
            assert!(!format!("{failure:?}").contains("swordfish"), "{failure:?}");
        }
        std::fs::write(&path, "s".repeat(9000)).unwrap();
        assert!(read(&format!("a.com:X=@{}", path.display())).is_err());
    }
}
