//! How much a policy may say, and which headers it may touch.

use std::collections::BTreeSet;

use super::{NetworkMode, NetworkPolicy, SecretText, Transform};

const MOST_ALLOWED_DOMAINS: usize = 50;
const MOST_BLOCKED_DOMAINS: usize = 50;
const MOST_ALLOWED_RANGES: usize = 10;
const MOST_BLOCKED_RANGES: usize = 10;
const MOST_PORTS: usize = 50;
const MOST_TRANSFORMS: usize = 20;
const MOST_SANDBOXES: usize = 16;
const MOST_HEADERS: usize = 20;
const LONGEST_NAME: usize = 128;
const LONGEST_VALUE: usize = 8 << 10;

/// All of it is written down in the sandbox's record, beside the labels and the variables.
const LARGEST: usize = 20 << 10;

/// Headers that say how a message is framed, where it goes and by which connection. Whoever sets
/// or removes one of them changes what the request is, and not only what it carries.
const OF_THE_MESSAGE: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Why a policy cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {reason}")]
pub struct InvalidPolicy {
    /// Which part of it, such as `transforms[2].inject_headers`.
    pub field: String,
    /// What is wrong with that. It repeats no value of a header.
    pub reason: String,
}

impl InvalidPolicy {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl NetworkPolicy {
    /// Refuses a policy that says more than there is room for, or that nobody could follow.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        let lists = [
            ("allow_domains", self.allow_domains.len(), MOST_ALLOWED_DOMAINS),
            ("block_domains", self.block_domains.len(), MOST_BLOCKED_DOMAINS),
            ("allow_cidrs", self.allow_cidrs.len(), MOST_ALLOWED_RANGES),
            ("block_cidrs", self.block_cidrs.len(), MOST_BLOCKED_RANGES),
            ("allow_ports", self.allow_ports.len(), MOST_PORTS),
            ("allow_sandboxes", self.sandboxes.len(), MOST_SANDBOXES),
            ("transforms", self.transforms.len(), MOST_TRANSFORMS),
        ];
        for (field, there, most) in lists {
            at_most(field, there, most)?;
        }
        if self.learn && self.mode == NetworkMode::DenyAll {
            let reason = "learning lets everything pass, and `deny-all` nothing: choose one";
            return Err(InvalidPolicy::new("learn", reason));
        }
        let mut domains = BTreeSet::new();
        for (number, transform) in self.transforms.iter().enumerate() {
            let field = format!("transforms[{number}]");
            if !domains.insert(&transform.domain) {
                let reason =
                    format!("there is another one for {}: make them one", transform.domain);
                return Err(InvalidPolicy::new(format!("{field}.domain"), reason));
            }
            transform.check(&field)?;
        }
        self.check_size()
    }

    fn check_size(&self) -> Result<(), InvalidPolicy> {
        // It is made of texts and numbers only, so it can be written.
        let bytes = serde_json::to_string(self).map_or(usize::MAX, |text| text.len());
        if bytes <= LARGEST {
            return Ok(());
        }
        let reason = format!("all of it takes {bytes} bytes, and {LARGEST} is the most: say less");
        Err(InvalidPolicy::new("transforms", reason))
    }
}

impl Transform {
    fn check(&self, field: &str) -> Result<(), InvalidPolicy> {
        let (inject, strip) = (format!("{field}.inject_headers"), format!("{field}.strip_headers"));
        at_most(&inject, self.inject_headers.len(), MOST_HEADERS)?;
        at_most(&strip, self.strip_headers.len(), MOST_HEADERS)?;
        let mut names = BTreeSet::new();
        for (name, value) in &self.inject_headers {
            check_name(&inject, name)?;
            if !names.insert(name.to_ascii_lowercase()) {
                let reason =
                    format!("`{name}` is there twice: letters of either case are the same");
                return Err(InvalidPolicy::new(inject, reason));
            }
            check_value(&format!("{inject}.{name}"), value)?;
        }
        self.strip_headers.iter().try_for_each(|name| check_name(&strip, name))
    }
}

fn at_most(field: &str, there: usize, most: usize) -> Result<(), InvalidPolicy> {
    if there <= most {
        return Ok(());
    }
    let reason = format!("there are {there} of them, and {most} is the most");
    Err(InvalidPolicy::new(field, reason))
}

fn check_name(field: &str, name: &str) -> Result<(), InvalidPolicy> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(is_token) {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let reason = format!(
            "`{shown}` is no name of a header: use up to {LONGEST_NAME} letters, digits and hyphens"
        );
        return Err(InvalidPolicy::new(field, reason));
    }
    if OF_THE_MESSAGE.contains(&name.to_ascii_lowercase().as_str()) {
        let reason = format!("`{name}` belongs to how a request is sent, and cannot be changed");
        return Err(InvalidPolicy::new(field, reason));
    }
    Ok(())
}

fn check_value(field: &str, value: &SecretText) -> Result<(), InvalidPolicy> {
    let text = value.expose();
    if text.len() > LONGEST_VALUE {
        let reason = format!("it has {} bytes, and {LONGEST_VALUE} is the most", text.len());
        return Err(InvalidPolicy::new(field, reason));
    }
    if !text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
        let reason = "its value has signs that no header can have, such as the end of a line";
        return Err(InvalidPolicy::new(field, reason));
    }
    Ok(())
}
