//! The judge against a plain reading of the same words, and against examples.

use std::net::IpAddr;

use domain::{Cidr, DomainPattern, NetworkMode, NetworkPolicy, SandboxId};
use proptest::prelude::*;

use super::{address, dialled, name, normal_name, special, spoken};
use crate::Configuration;

fn custom(text: &str) -> NetworkPolicy {
    serde_json::from_str(text).unwrap()
}

fn grants(ranges: &[&str]) -> Configuration {
    let grants = ranges.iter().map(|range| range.parse().unwrap()).collect();
    Configuration { grants, ..Configuration::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn nothing_special_is_public() {
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "100.96.0.96",
        "168.63.129.16",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:808:808::",
        "2001::1",
        "100::1",
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "5f00::1",
        "3fff::1",
    ] {
        assert!(special(ip(text)).is_some(), "{text}");
    }
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
    ] {
        assert_eq!(special(ip(text)), None, "{text}");
    }
}

#[test]
fn services_with_credentials_are_granted_by_themselves_only() {
    let policy = custom(r#"{"mode":"allow-all"}"#);
    for (text, wide) in [
        ("169.254.169.254", "169.254.0.0/16"),
        ("100.100.100.200", "100.64.0.0/10"),
        ("100.96.0.96", "0.0.0.0/0"),
        ("fd00:ec2::254", "fc00::/7"),
    ] {
        assert!(!dialled(&policy, &grants(&[wide]), ip(text)).allowed, "{text} by {wide}");
        assert!(dialled(&policy, &grants(&[text]), ip(text)).allowed, "{text} by itself");
    }
    assert!(dialled(&policy, &grants(&["10.0.0.0/8"]), ip("10.1.1.1")).allowed);
}

#[test]
fn what_is_blocked_stays_blocked() {
    let policy = custom(
        r#"{"mode":"custom","allow_domains":["*.example.com"],"block_domains":["bad.example.com"],
            "allow_cidrs":["1.0.0.0/8"],"block_cidrs":["1.1.0.0/16"],"allow_ports":["443"],
            "learn":true}"#,
    );
    let own = Configuration::default();
    assert_eq!(name(&policy, "bad.example.com", Some(443)).rule, "block_domains: bad.example.com");
    assert_eq!(name(&policy, "good.example.com", Some(443)).rule, "allow_domains: *.example.com");
    assert_eq!(name(&policy, "other.org", Some(443)).rule, "learn");
    assert_eq!(name(&policy, "good.example.com", Some(80)).rule, "allow_ports");
    assert_eq!(address(&policy, &own, ip("1.1.1.1"), 443).rule, "block_cidrs: 1.1.0.0/16");
    assert!(!address(&policy, &own, ip("::ffff:1.1.1.1"), 443).allowed);
    assert_eq!(address(&policy, &own, ip("1.2.3.4"), 443).rule, "allow_cidrs: 1.0.0.0/8");
    assert_eq!(address(&policy, &own, ip("2.2.3.4"), 443).rule, "learn");
    assert_eq!(address(&policy, &own, ip("10.0.0.1"), 443).rule, "private address");
}

#[test]
fn pairs_are_found_by_either_name_and_never_asked_of_the_world() {
    let id = SandboxId::from_random([7; 15]);
    let mut policy = custom(r#"{"mode":"custom"}"#);
    policy.sandboxes.insert("database".to_owned(), id);
    assert!(name(&policy, "database", Some(5432)).allowed);
    assert!(name(&policy, "database.sandbox.internal", Some(5432)).allowed);
    policy.mode = NetworkMode::AllowAll;
    assert_eq!(name(&policy, "other.sandbox.internal", None).rule, "sandboxes");
    policy.mode = NetworkMode::DenyAll;
    assert!(!name(&policy, "database", None).allowed);
}

#[test]
fn a_name_that_is_spoken_is_the_one_connected_to() {
    let policy = custom(r#"{"mode":"allow-all","block_domains":["*.evil.org"]}"#);
    assert!(spoken(&policy, Some("a.com"), "A.com.").allowed);
    assert!(!spoken(&policy, Some("a.com"), "b.com").allowed);
    assert!(!spoken(&policy, None, "x.evil.org").allowed);
    assert!(spoken(&policy, None, "b.com").allowed);
    assert!(!spoken(&policy, None, "b..com").allowed);
}

/// The rules again, in the plainest words.
fn naive(policy: &NetworkPolicy, name: &str, port: u16) -> bool {
    let matches = |pattern: &DomainPattern| {
        let text = pattern.to_string();
        match text.strip_prefix("*.") {
            Some(rest) => name.len() > rest.len() + 1 && name.ends_with(&format!(".{rest}")),
            None => text == name,
        }
    };
    if policy.block_domains.iter().any(matches) {
        return false;
    }
    let ports: Vec<String> = policy.allow_ports.iter().map(ToString::to_string).collect();
    if !ports.is_empty() && !ports.contains(&port.to_string()) {
        return false;
    }
    match policy.mode {
        _ if policy.learn => true,
        NetworkMode::AllowAll => true,
        NetworkMode::DenyAll => false,
        NetworkMode::Custom => policy.allow_domains.iter().any(matches),
    }
}

fn some_name() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["[ab]", "[ab]{2}"], 2..5)
        .prop_map(|labels| labels.join("."))
}

fn some_pattern() -> impl Strategy<Value = DomainPattern> {
    (any::<bool>(), some_name()).prop_map(|(wild, name)| {
        let star = if wild { "*." } else { "" };
        format!("{star}{name}").parse().unwrap()
    })
}

fn some_policy() -> impl Strategy<Value = NetworkPolicy> {
    let patterns = || proptest::collection::vec(some_pattern(), 0..4);
    let modes = prop_oneof![
        Just(NetworkMode::AllowAll),
        Just(NetworkMode::DenyAll),
        Just(NetworkMode::Custom)
    ];
    let ports = proptest::collection::vec(1..4_u16, 0..2);
    (modes, patterns(), patterns(), ports, any::<bool>()).prop_map(
        |(mode, allow_domains, block_domains, ports, learn)| NetworkPolicy {
            mode,
            allow_domains,
            block_domains,
            allow_ports: ports.iter().map(|port| port.to_string().parse().unwrap()).collect(),
            learn,
            ..NetworkPolicy::default()
        },
    )
}

proptest! {
    #[test]
    fn names_are_judged_as_plain_words_say(policy in some_policy(), host in some_name(), port in 1..4_u16) {
        let verdict = name(&policy, &host, Some(port));
        prop_assert_eq!(verdict.allowed, naive(&policy, &host, port), "{}", verdict.rule);
    }

    #[test]
    fn no_policy_reaches_what_is_special(address_bits in any::<u128>(), v4 in any::<bool>(), policy in some_policy()) {
        let at = if v4 {
            IpAddr::from(u32::try_from(address_bits >> 96).unwrap().to_be_bytes())
        } else {
            IpAddr::from(address_bits.to_be_bytes())
        };
        let verdict = address(&policy, &Configuration::default(), at, 1);
        prop_assert!(!(verdict.allowed && special(at).is_some()));
    }

    #[test]
    fn a_blocked_range_wins(bits in any::<u32>(), prefix in 0..=32_u8) {
        let at = IpAddr::from(bits.to_be_bytes());
        let cidr: Cidr = format!("{at}/{prefix}").parse().unwrap();
        let policy = NetworkPolicy {
            mode: NetworkMode::Custom,
            allow_cidrs: vec!["0.0.0.0/0".parse().unwrap()],
            block_cidrs: vec![cidr],
            learn: true,
            ..NetworkPolicy::default()
        };
        prop_assert!(!address(&policy, &grants(&["0.0.0.0/0"]), at, 1).allowed);
    }

    #[test]
    fn normal_names_stay_as_they_are(text in "\\PC{0,20}") {
        if let Some(normal) = normal_name(&text) {
            prop_assert_eq!(normal_name(&normal), Some(normal.clone()));
        }
    }
}
