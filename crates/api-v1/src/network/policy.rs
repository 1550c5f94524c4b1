//! What a sandbox may reach, as JSON.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use control::NetworkWish;
use domain::{NetworkPolicy, SecretText, Transform};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::ApiError;

/// What a sandbox may reach. What is blocked stays so whatever else is allowed, and addresses that
/// are not public are reached only where whoever runs the machine granted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Network {
    /// What holds where the rest says no more.
    pub mode: NetworkMode,
    /// Names that may be reached with `custom`: `host.tld`, or `*.host.tld` for all below it.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 50)]
    pub allow_domains: Vec<String>,
    /// Ranges of addresses that may be reached with `custom`.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub allow_cidrs: Vec<String>,
    /// Ports that may be reached, such as `443` or `8000-8999`; all of them when there is none.
    #[serde(default, deserialize_with = "ports", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 50)]
    pub allow_ports: Vec<String>,
    /// Other sandboxes of the same owner that may be reached, by their names or ids.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub allow_sandboxes: Vec<String>,
    /// Names that may not be reached.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 50)]
    pub block_domains: Vec<String>,
    /// Ranges of addresses that may not be reached.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub block_cidrs: Vec<String>,
    /// What is changed in requests on their way out. With `custom` their domains may be reached.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 20)]
    pub transforms: Vec<Rewrite>,
    /// Let everything pass that `allow-all` would, and write down what it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learn: bool,
    /// A rule that was misspelt is no rule, and must not be taken for one that was followed.
    #[serde(flatten, skip_serializing)]
    #[schema(ignore)]
    unknown: BTreeMap<String, serde_json::Value>,
}

/// What a sandbox may reach in general.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Every public address.
    AllowAll,
    /// Nothing but itself.
    DenyAll,
    /// What is listed, and what has a transform.
    Custom,
}

/// What is changed in requests to one domain. TLS is ended for it, with a certificate authority
/// that only this sandbox trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rewrite {
    /// Whose requests: `host.tld` or `*.host.tld`.
    pub domain: String,
    /// Headers that are set, in the place of those that the sandbox sent. Answers have `(secret)`
    /// in the place of every value.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub inject_headers: BTreeMap<String, SecretText>,
    /// Headers that are taken out.
    #[serde(default, deserialize_with = "or_none", skip_serializing_if = "Vec::is_empty")]
    pub strip_headers: Vec<String>,
}

impl From<NetworkMode> for domain::NetworkMode {
    fn from(mode: NetworkMode) -> Self {
        match mode {
            NetworkMode::AllowAll => Self::AllowAll,
            NetworkMode::DenyAll => Self::DenyAll,
            NetworkMode::Custom => Self::Custom,
        }
    }
}

impl From<domain::NetworkMode> for NetworkMode {
    fn from(mode: domain::NetworkMode) -> Self {
        match mode {
            domain::NetworkMode::AllowAll => Self::AllowAll,
            domain::NetworkMode::DenyAll => Self::DenyAll,
            domain::NetworkMode::Custom => Self::Custom,
        }
    }
}

impl Network {
    /// One that says no more than this.
    pub fn new(mode: NetworkMode) -> Self {
        Self {
            mode,
            allow_domains: Vec::new(),
            allow_cidrs: Vec::new(),
            allow_ports: Vec::new(),
            allow_sandboxes: Vec::new(),
            block_domains: Vec::new(),
            block_cidrs: Vec::new(),
            transforms: Vec::new(),
            learn: false,
            unknown: BTreeMap::new(),
        }
    }

    /// The wish in the words of `control`, or what is wrong with which field. `above` is where in
    /// the request this is.
    pub(crate) fn into_wish(self, above: &str) -> Result<NetworkWish, ApiError> {
        if let Some(name) = self.unknown.keys().next() {
            let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            let error = "there is no such rule, and what is misspelt would not hold";
            return Err(ApiError::wrong(format!("{above}{name}"), error));
        }
        let mut transforms = Vec::new();
        for (number, rewrite) in self.transforms.into_iter().enumerate() {
            let domain = rewrite.domain.parse().map_err(|error: domain::InvalidNetwork| {
                ApiError::wrong(format!("{above}transforms[{number}].domain"), error.to_string())
            })?;
            let Rewrite { inject_headers, strip_headers, .. } = rewrite;
            transforms.push(Transform { domain, inject_headers, strip_headers });
        }
        let policy = NetworkPolicy {
            mode: self.mode.into(),
            allow_domains: parsed(above, "allow_domains", &self.allow_domains)?,
            block_domains: parsed(above, "block_domains", &self.block_domains)?,
            allow_cidrs: parsed(above, "allow_cidrs", &self.allow_cidrs)?,
            block_cidrs: parsed(above, "block_cidrs", &self.block_cidrs)?,
            allow_ports: parsed(above, "allow_ports", &self.allow_ports)?,
            transforms,
            sandboxes: BTreeMap::new(),
            learn: self.learn,
        };
        policy
            .check()
            .map_err(|error| ApiError::wrong(format!("{above}{}", error.field), error.reason))?;
        Ok(NetworkWish { policy, sandboxes: self.allow_sandboxes })
    }
}

impl From<&NetworkPolicy> for Network {
    /// Without any value that is set in requests.
    fn from(policy: &NetworkPolicy) -> Self {
        fn texts<T: ToString>(items: &[T]) -> Vec<String> {
            items.iter().map(ToString::to_string).collect()
        }
        let policy = policy.redacted();
        let rewrite = |transform: Transform| Rewrite {
            domain: transform.domain.to_string(),
            inject_headers: transform.inject_headers,
            strip_headers: transform.strip_headers,
        };
        Self {
            allow_domains: texts(&policy.allow_domains),
            allow_cidrs: texts(&policy.allow_cidrs),
            allow_ports: texts(&policy.allow_ports),
            allow_sandboxes: policy.sandboxes.into_keys().collect(),
            block_domains: texts(&policy.block_domains),
            block_cidrs: texts(&policy.block_cidrs),
            transforms: policy.transforms.into_iter().map(rewrite).collect(),
            learn: policy.learn,
            ..Self::new(policy.mode.into())
        }
    }
}

fn parsed<T>(above: &str, field: &str, texts: &[String]) -> Result<Vec<T>, ApiError>
where
    T: FromStr,
    T::Err: Display,
{
    let parse = |(number, text): (usize, &String)| {
        text.parse().map_err(|error: T::Err| {
            ApiError::wrong(format!("{above}{field}[{number}]"), error.to_string())
        })
    };
    texts.iter().enumerate().map(parse).collect()
}

/// Some clients send `null` for what they leave out.
fn or_none<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A port is a number to most, and a range a text.
fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Port {
        Number(u16),
        Text(String),
    }
    let ports: Vec<Port> = or_none(deserializer)?;
    let text = |port| match port {
        Port::Number(number) => number.to_string(),
        Port::Text(text) => text,
    };
    Ok(ports.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Network {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_leap0s_client_sends_is_taken() {
        let text = r#"{"mode": "custom", "allow_domains": ["a.com", "*.b.com"],
                       "allow_cidrs": ["192.0.2.7/24"], "transforms": [{"domain": "api.c.com",
                       "inject_headers": {"Authorization": "swordfish"},
                       "strip_headers": ["Cookie"]}]}"#;
        let wish = read(text).into_wish("").unwrap();
        assert_eq!(wish.policy.allow_domains.len(), 2);
        let value = &wish.policy.transforms[0].inject_headers["Authorization"];
        assert_eq!(value.expose(), "swordfish");
        let shown = Network::from(&wish.policy);
        let text = serde_json::to_string(&shown).unwrap();
        assert!(!text.contains("swordfish") && text.contains("192.0.2.0/24"), "{text}");
        assert_eq!(read(&text), shown);
    }

    #[test]
    fn nothing_and_null_are_the_same_and_ports_may_be_numbers() {
        let plain = read(r#"{"mode": "deny-all", "allow_domains": null, "transforms": null}"#);
        assert_eq!(plain, Network::new(NetworkMode::DenyAll));
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"mode":"deny-all"}"#);
        let ports = read(r#"{"mode": "allow-all", "allow_ports": [443, "8000-8999"]}"#);
        assert_eq!(ports.into_wish("").unwrap().policy.allow_ports.len(), 2);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_field() {
        for (json, field) in [
            (r#"{"mode": "custom", "allow_domains": ["a.com", "b"]}"#, "allow_domains[1]"),
            (r#"{"mode": "custom", "block_domains": ["http://a.com"]}"#, "block_domains[0]"),
            (r#"{"mode": "custom", "allow_cidrs": ["192.0.2.0/40"]}"#, "allow_cidrs[0]"),
            (r#"{"mode": "custom", "block_cidrs": ["here"]}"#, "block_cidrs[0]"),
            (r#"{"mode": "custom", "allow_ports": [0]}"#, "allow_ports[0]"),
            (r#"{"mode": "custom", "transforms": [{"domain": "x"}]}"#, "transforms[0].domain"),
            (r#"{"mode": "deny-all", "learn": true}"#, "learn"),
            (r#"{"mode": "allow-all", "block_domain": ["a.com"]}"#, "block_domain"),
        ] {
            let error = read(json).into_wish("network_policy.").unwrap_err();
            let begins = format!("`network_policy.{field}`: ");
            assert!(error.message().starts_with(&begins), "{json}: {error:?}");
        }
        assert!(serde_json::from_str::<Network>("{}").is_err());
    }
}
