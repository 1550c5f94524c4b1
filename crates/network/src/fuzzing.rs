//! Doors for `fuzz/`: what reads bytes that a sandbox, or somebody outside, has made.

use crate::egress::first::{First, classify};
use crate::egress::hello::{self, Hello};
use crate::egress::{judge, read_dns};
use crate::{Configuration, Rules};

/// A question to the resolver, and the same bytes as an answer to one.
pub fn dns(bytes: &[u8]) {
    read_dns(bytes);
}

/// What a TLS client says first: whole or in part, it is read the same.
pub fn hello(bytes: &[u8]) {
    let whole = hello::read(bytes);
    for length in [bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match hello::read(&bytes[..length]) {
            Hello::Part => {}
            Hello::Wrong => assert_eq!(whole, Hello::Wrong),
            Hello::Whole(_) if length == bytes.len() => {}
            // What follows a hello may be anything, and is not looked at.
            known @ Hello::Whole(_) => assert_eq!(whole, known),
        }
    }
    if let Hello::Whole(hello) = whole
        && let Some(name) = hello.server_name
    {
        assert!(name.is_ascii());
    }
}

/// What a client says first: once it is decided, nothing that follows changes it.
pub fn http_head(bytes: &[u8]) {
    let mut decided = First::Undecided;
    for length in 0..=bytes.len().min(256) {
        let first = classify(&bytes[..length]);
        assert!(decided == First::Undecided || decided == first);
        decided = first;
    }
    classify(bytes);
}

/// Rules as text, and what they say of some names and addresses. Where it is judged what a line
/// after them names, what is blocked is not allowed.
pub fn policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (text, name) = text.split_once('\n').unwrap_or((&text, "a.example"));
    let configuration = serde_json::from_str(text).unwrap_or_else(|_| Configuration::default());
    let Ok(rules) = Rules::read(text) else { return };
    let policy = &rules.policy;
    if let Some(name) = judge::normal_name(name) {
        let verdict = judge::name(policy, &name, Some(443));
        let is_blocked = policy.block_domains.iter().any(|pattern| pattern.matches(&name));
        assert!(!(is_blocked && verdict.allowed));
    }
    if let Ok(address) = name.trim().parse() {
        let verdict = judge::address(policy, &configuration, address, 443);
        let is_blocked = policy.block_cidrs.iter().any(|range| range.contains(address));
        assert!(!(is_blocked && verdict.allowed));
        if configuration.grants.is_empty() && judge::special(address).is_some() {
            assert!(!verdict.allowed);
        }
    }
}
