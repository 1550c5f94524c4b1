//! A policy as it is shown, and as it comes back from whoever was shown it.

use super::{NetworkPolicy, SecretText};

/// What stands in the place of every value that is set in requests.
const HIDDEN: &str = "(secret)";

/// A value came back that stands for a secret which is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: `{HIDDEN}` stands for a value that is kept, and there is none: send the value")]
pub struct NoSecret {
    /// Where it stands.
    pub field: String,
}

impl NetworkPolicy {
    /// The same without any value that is set in requests: what answers, events and logs have.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut shown = self.clone();
        let transforms = shown.transforms.iter_mut();
        for value in transforms.flat_map(|transform| transform.inject_headers.values_mut()) {
            *value = SecretText::new(HIDDEN);
        }
        shown
    }

    /// Everything but its mode in a line, without any value that is set in requests.
    pub fn summary(&self) -> String {
        fn texts<T: ToString>(items: &[T]) -> Vec<String> {
            items.iter().map(ToString::to_string).collect()
        }
        let allowed = [texts(&self.allow_domains), texts(&self.allow_cidrs)].concat();
        let blocked = [texts(&self.block_domains), texts(&self.block_cidrs)].concat();
        let changed = self.transforms.iter().map(|transform| transform.domain.to_string());
        let parts = [
            ("allowed", allowed),
            ("blocked", blocked),
            ("ports", texts(&self.allow_ports)),
            ("sandboxes", self.sandboxes.keys().cloned().collect()),
            ("requests changed", changed.collect()),
        ];
        let said = parts.iter().filter(|(_, items)| !items.is_empty());
        let mut said: Vec<String> =
            said.map(|(what, items)| format!("{what}: {}", items.join(" "))).collect();
        if self.learn {
            said.push("learning".to_owned());
        }
        said.join("; ")
    }

    /// Puts the values of an earlier policy where this one has what [`Self::redacted`] shows. Only
    /// the same header of the same domain gets one back: a secret never goes to another host.
    pub fn restore_from(&mut self, earlier: &Self) -> Result<(), NoSecret> {
        for (number, transform) in self.transforms.iter_mut().enumerate() {
            let same = earlier.transforms.iter().find(|known| known.domain == transform.domain);
            for (name, value) in &mut transform.inject_headers {
                if value.expose() != HIDDEN {
                    continue;
                }
                let mut kept = same.iter().flat_map(|known| &known.inject_headers);
                match kept.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                    Some((_, kept)) if kept.expose() != HIDDEN => value.clone_from(kept),
                    _ => {
                        let field = format!("transforms[{number}].inject_headers.{name}");
                        return Err(NoSecret { field });
                    }
                }
            }
        }
        Ok(())
    }
}
