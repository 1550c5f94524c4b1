//! What transforms change in a request, and hide in its answer.

use std::sync::Arc;

use domain::{SecretText, Transform};
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, IF_RANGE, RANGE, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::redact::hide_in;

/// What is shorter is no secret, and would be found everywhere.
const SHORTEST_SECRET: usize = 6;
/// What says where a request goes and where it ends is nobody's to change.
const KEPT: [HeaderName; 5] = [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE];

/// What is changed in requests to one name.
#[derive(Debug, Default)]
pub(super) struct Change {
    stripped: Vec<String>,
    injected: Vec<(String, SecretText)>,
}

impl Change {
    /// What some transforms want for a name. Without TLS nothing is injected: a secret would be
    /// sent in clear.
    pub(super) fn of(transforms: &[Transform], name: &str, is_secure: bool) -> Self {
        let mut change = Self::default();
        for transform in transforms.iter().filter(|transform| transform.domain.matches(name)) {
            change.stripped.extend(transform.strip_headers.iter().cloned());
            if is_secure {
                let injected = transform.inject_headers.iter();
                change.injected.extend(injected.map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        change
    }

    /// Changes a request. What is injected takes the place of what the sandbox sent.
    pub(super) fn apply(&self, headers: &mut HeaderMap) -> Result<(), String> {
        for name in &self.stripped {
            if let Ok(name) = name.parse::<HeaderName>()
                && !KEPT.contains(&name)
            {
                headers.remove(name);
            }
        }
        for (name, value) in &self.injected {
            let wrong = || format!("the transform's header `{name}` cannot be sent");
            let name: HeaderName = name.parse().map_err(|_| wrong())?;
            if KEPT.contains(&name) {
                return Err(wrong());
            }
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        if !self.injected.is_empty() {
            // A secret that comes back is found in plain text only.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // And as a whole.
            for name in [RANGE, IF_RANGE, TE] {
                headers.remove(name);
            }
        }
        Ok(())
    }

    /// Hides what was injected where an answer repeats it in a header.
    pub(super) fn hide(&self, headers: &mut HeaderMap) {
        let secrets = self.secrets();
        if secrets.is_empty() {
            return;
        }
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            if hide_in(&mut bytes, &secrets)
                && let Ok(hidden) = HeaderValue::from_bytes(&bytes)
            {
                *value = hidden;
            }
        }
    }

    /// What is to be hidden in the body of an answer.
    pub(super) fn into_secrets(self) -> Arc<[Vec<u8>]> {
        self.secrets().into()
    }

    /// Each value, and each word of it: `Bearer TOKEN` is repeated as `TOKEN` too.
    fn secrets(&self) -> Vec<Vec<u8>> {
        let mut secrets = Vec::new();
        for (_, value) in &self.injected {
            let value = value.expose().trim();
            let words = value.split_whitespace().chain([value]);
            secrets.extend(words.filter(|word| word.len() >= SHORTEST_SECRET).map(Vec::from));
        }
        // Longer ones first, so that none is left in parts.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        // Names of schemes are no secrets.
        secrets.retain(|secret| {
            !["bearer", "digest"]
                .iter()
                .any(|scheme| scheme.as_bytes().eq_ignore_ascii_case(secret))
        });
        secrets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transforms() -> Vec<Transform> {
        serde_json::from_str(
            r#"[{"domain":"*.example.com","inject_headers":{"Authorization":"Bearer abcdefgh"},
                 "strip_headers":["Cookie","Host"]}]"#,
        )
        .unwrap()
    }

    #[test]
    fn headers_are_replaced_and_taken_out() {
        let change = Change::of(&transforms(), "api.example.com", true);
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("mine"));
        headers.append("authorization", HeaderValue::from_static("too"));
        headers.append("cookie", HeaderValue::from_static("a=b"));
        headers.append("host", HeaderValue::from_static("api.example.com"));
        change.apply(&mut headers).unwrap();
        let sent: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(sent, ["Bearer abcdefgh"]);
        assert!(!headers.contains_key("cookie"));
        assert!(headers.contains_key("host"));
    }

    #[test]
    fn nothing_is_injected_in_clear_or_elsewhere() {
        for (name, is_secure) in [("api.example.com", false), ("example.org", true)] {
            let change = Change::of(&transforms(), name, is_secure);
            let mut headers = HeaderMap::new();
            change.apply(&mut headers).unwrap();
            assert!(headers.is_empty(), "{name}");
        }
    }

    #[test]
    fn an_answer_that_repeats_it_is_made_harmless() {
        let change = Change::of(&transforms(), "api.example.com", true);
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("got abcdefgh and Bearer abcdefgh"));
        change.hide(&mut headers);
        let text = headers["x-echo"].to_str().unwrap();
        assert!(!text.contains("abcdefgh"), "{text}");
    }
}
