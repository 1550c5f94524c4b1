//! Rules for the network in E2B's words.
//!
//! Its words are others than ours: there, what is allowed wins over what is denied, and denying
//! everything is a range among others. What cannot be said in ours without letting more pass, or
//! less, is refused with the reason.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use bytes::Bytes;
use control::{Control, Reference};
use domain::{
    Cidr, DomainPattern, InvalidNetwork, NetworkMode, NetworkPolicy, SecretText, Transform,
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::sandboxes::{Asking, read, running};

/// What E2B's clients say about the network.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    #[serde(rename = "allowOut")]
    allow: Option<Vec<String>>,
    #[serde(rename = "denyOut")]
    deny: Option<Vec<String>>,
    rules: Option<BTreeMap<String, Vec<Rule>>>,
    #[serde(rename = "allowPublicTraffic")]
    public_traffic: Option<bool>,
    #[serde(rename = "dnsServers")]
    resolvers: Option<Vec<Value>>,
    #[serde(rename = "egressProxy")]
    proxy: Option<Value>,
    #[serde(rename = "maskRequestHost")]
    mask_host: Option<Value>,
    #[serde(rename = "httpsPorts")]
    https_ports: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    transform: Option<Headers>,
}

#[derive(Debug, Deserialize)]
struct Headers {
    headers: Option<BTreeMap<String, SecretText>>,
}

/// A replacement of all that was said before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Replacement {
    #[serde(flatten)]
    config: Config,
    allow_internet_access: Option<bool>,
}

pub(crate) async fn replace(
    State(control): State<Control>,
    Asking(caller): Asking,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    let wanted: Replacement = read(&body)?;
    let lease = running(&control, &caller, &id)?;
    let policy = policy(wanted.allow_internet_access, Some(wanted.config))?;
    // What is left out is cleared.
    let policy =
        policy.unwrap_or(NetworkPolicy { mode: NetworkMode::AllowAll, ..NetworkPolicy::default() });
    control.change_network(&caller, &Reference::from(&lease.id), policy.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is asked for in our words; `None` when nothing is said.
pub(crate) fn policy(
    internet: Option<bool>,
    config: Option<Config>,
) -> Result<Option<NetworkPolicy>, Failure> {
    let said = config.is_some() || internet.is_some();
    let config = config.unwrap_or_default();
    config.refuse_what_is_not_there()?;
    let (domains, ranges) = sort(config.allow.as_deref().unwrap_or_default())?;
    let denied = config.deny.as_deref().unwrap_or_default().iter();
    let denied: Vec<Cidr> = denied
        .map(|text| text.parse().map_err(|error: InvalidNetwork| wrong("denyOut", &error)))
        .collect::<Result<_, _>>()?;
    let all = |ranges: &[Cidr]| ranges.iter().any(|range| range.is_everything() && is_four(range));
    let denies_all = internet == Some(false) || all(&denied);
    let mut policy = NetworkPolicy { mode: NetworkMode::AllowAll, ..NetworkPolicy::default() };
    if denies_all && !all(&ranges) {
        let is_empty = domains.is_empty() && ranges.is_empty();
        policy.mode = if is_empty { NetworkMode::DenyAll } else { NetworkMode::Custom };
        (policy.allow_domains, policy.allow_cidrs) = (domains, ranges);
    } else if !denies_all {
        if let Some(domain) = domains.first() {
            return Err(Failure::invalid(format!(
                "`allowOut` names {domain}, which means something only where `denyOut` has \
                 0.0.0.0/0"
            )));
        }
        let both = denied.iter().find(|range| ranges.iter().any(|other| range.overlaps(other)));
        if let Some(range) = both {
            return Err(Failure::invalid(format!(
                "`allowOut` and `denyOut` share addresses of {range}, and here what is denied \
                 wins: deny 0.0.0.0/0 and list what is allowed"
            )));
        }
        policy.block_cidrs = denied;
    }
    policy.transforms = transforms(config.rules.unwrap_or_default(), &policy)?;
    policy.check().map_err(|error| Failure::invalid(format!("network: {error}")))?;
    Ok(said.then_some(policy))
}

/// The rules as they are shown: header values are not.
pub(crate) fn shown(policy: &NetworkPolicy) -> Value {
    let texts = |ranges: &[Cidr]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
    let domains = policy.allow_domains.iter().map(ToString::to_string);
    let allowed: Vec<String> = domains.chain(texts(&policy.allow_cidrs)).collect();
    let denied = match policy.mode {
        NetworkMode::AllowAll => texts(&policy.block_cidrs),
        NetworkMode::DenyAll | NetworkMode::Custom => vec!["0.0.0.0/0".to_owned()],
    };
    let rules = policy.redacted().transforms.into_iter().map(|transform| {
        let rule = json!([{ "transform": { "headers": transform.inject_headers } }]);
        (transform.domain.to_string(), rule)
    });
    let rules: serde_json::Map<String, Value> = rules.collect();
    json!({ "allowOut": allowed, "denyOut": denied, "rules": rules })
}

impl Config {
    /// Says what this release has not got, instead of giving less than was asked for.
    fn refuse_what_is_not_there(&self) -> Result<(), Failure> {
        let there = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
        let some = |values: &Option<Vec<Value>>| values.as_ref().is_some_and(|it| !it.is_empty());
        let (field, instead) = if self.public_traffic == Some(false) {
            ("allowPublicTraffic", "a sandbox's address asks for its token when it is `secure`")
        } else if some(&self.resolvers) {
            ("dnsServers", "whoever runs the machine chooses who is asked for names")
        } else if there(&self.proxy) {
            ("egressProxy", "whoever runs the machine chooses a proxy")
        } else if there(&self.mask_host) {
            ("maskRequestHost", "requests to a sandbox keep their host")
        } else if some(&self.https_ports) {
            ("httpsPorts", "TLS is found by what is sent, on every port")
        } else {
            return Ok(());
        };
        Err(Failure::invalid(format!("`{field}` is not there: {instead}")))
    }
}

/// Names and ranges of one list.
fn sort(texts: &[String]) -> Result<(Vec<DomainPattern>, Vec<Cidr>), Failure> {
    let (mut domains, mut ranges) = (Vec::new(), Vec::new());
    for text in texts {
        match text.parse::<Cidr>() {
            Ok(range) => ranges.push(range),
            Err(_) => domains
                .push(text.parse().map_err(|error: InvalidNetwork| wrong("allowOut", &error))?),
        }
    }
    Ok((domains, ranges))
}

/// A rule changes requests and allows nothing, so its host has to be allowed as well.
fn transforms(
    rules: BTreeMap<String, Vec<Rule>>,
    policy: &NetworkPolicy,
) -> Result<Vec<Transform>, Failure> {
    let mut transforms = Vec::new();
    for (host, rules) in rules {
        let domain: DomainPattern =
            host.parse().map_err(|error: InvalidNetwork| wrong("rules", &error))?;
        let is_allowed = policy.mode == NetworkMode::AllowAll
            || policy
                .allow_domains
                .iter()
                .any(|allowed| *allowed == domain || allowed.matches(&domain.to_string()));
        if !is_allowed {
            return Err(Failure::invalid(format!(
                "`rules` has {domain}, which `allowOut` does not name: name it there too"
            )));
        }
        let headers = rules.into_iter().filter_map(|rule| rule.transform?.headers);
        let inject_headers = headers.flatten().collect();
        transforms.push(Transform { domain, inject_headers, strip_headers: Vec::new() });
    }
    Ok(transforms)
}

fn is_four(range: &Cidr) -> bool {
    range.contains(std::net::Ipv4Addr::UNSPECIFIED.into())
}

fn wrong(field: &str, error: &InvalidNetwork) -> Failure {
    Failure::invalid(format!("`{field}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(internet: Option<bool>, json: &str) -> Result<Option<NetworkPolicy>, Failure> {
        policy(internet, Some(serde_json::from_str(json).unwrap()))
    }

    fn mode(internet: Option<bool>, json: &str) -> NetworkMode {
        read(internet, json).unwrap().unwrap().mode
    }

    #[test]
    fn no_internet_is_deny_all_and_nothing_said_is_nothing() {
        assert_eq!(policy(None, None).unwrap(), None);
        assert_eq!(policy(Some(false), None).unwrap().unwrap().mode, NetworkMode::DenyAll);
        assert_eq!(policy(Some(true), None).unwrap().unwrap().mode, NetworkMode::AllowAll);
        assert_eq!(mode(None, "{}"), NetworkMode::AllowAll);
        assert_eq!(mode(None, r#"{"denyOut": ["0.0.0.0/0"]}"#), NetworkMode::DenyAll);
    }

    #[test]
    fn what_is_allowed_of_nothing_is_a_list() {
        let text = r#"{"allowOut": ["*.example.com", "192.0.2.7"],
                       "denyOut": ["0.0.0.0/0", "192.0.2.0/24"]}"#;
        for (internet, text) in
            [(None, text), (Some(false), &text.replace("0.0.0.0/0", "198.51.100.1"))]
        {
            let policy = read(internet, text).unwrap().unwrap();
            assert_eq!(policy.mode, NetworkMode::Custom);
            assert_eq!(policy.allow_domains[0].to_string(), "*.example.com");
            assert_eq!(policy.allow_cidrs[0].to_string(), "192.0.2.7/32");
            // There what is allowed wins, so the rest of what is denied says nothing.
            assert!(policy.block_cidrs.is_empty());
            assert_eq!(shown(&policy)["denyOut"], json!(["0.0.0.0/0"]));
        }
    }

    #[test]
    fn what_is_denied_of_everything_is_blocked() {
        let policy = read(None, r#"{"denyOut": ["192.0.2.0/24"]}"#).unwrap().unwrap();
        assert_eq!((policy.mode, policy.block_cidrs.len()), (NetworkMode::AllowAll, 1));
    }

    #[test]
    fn rules_set_headers_of_hosts_that_are_allowed() {
        let text = r#"{"rules": {"api.example.com":
                       [{"transform": {"headers": {"Authorization": "swordfish"}}}]}}"#;
        let policy = read(None, text).unwrap().unwrap();
        let value = &policy.transforms[0].inject_headers["Authorization"];
        assert_eq!(value.expose(), "swordfish");
        assert!(!shown(&policy).to_string().contains("swordfish"));
        let error = read(Some(false), text).unwrap_err();
        assert!(format!("{error:?}").contains("allowOut"), "{error:?}");
    }

    #[test]
    fn what_cannot_be_said_here_is_refused_by_its_field() {
        for (text, word) in [
            (r#"{"allowOut": ["example.com"]}"#, "allowOut"),
            (r#"{"denyOut": ["example.com"]}"#, "denyOut"),
            (r#"{"allowOut": ["192.0.2.1"], "denyOut": ["192.0.2.0/24"]}"#, "denied wins"),
            (r#"{"dnsServers": ["192.0.2.1"]}"#, "dnsServers"),
            (r#"{"egressProxy": {"address": "a"}}"#, "egressProxy"),
            (r#"{"allowPublicTraffic": false}"#, "allowPublicTraffic"),
            (r#"{"maskRequestHost": "a"}"#, "maskRequestHost"),
            (r#"{"httpsPorts": [8443]}"#, "httpsPorts"),
        ] {
            let error = read(None, text).unwrap_err();
            assert!(format!("{error:?}").contains(word), "{text}: {error:?}");
        }
        let nothing = r#"{"allowPublicTraffic": null, "egressProxy": null, "dnsServers": []}"#;
        read(None, nothing).unwrap();
    }
}
