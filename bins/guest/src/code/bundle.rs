//! Values in their forms, as kernels send them: bounded, and with long texts cut.
//!
//! Forms are passed on as the text that they came as. Making values of them would take many times
//! their size, and what a cell sends is up to the cell.

use std::collections::BTreeMap;
use std::fmt;

use guest_proto::code::Failure;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::cut::cut_text;
use super::log::Value;

/// As many forms as a value has.
const MOST_FORMS: usize = 32;

/// The longest name of a form.
const LONGEST_NAME: usize = 128;

/// The forms that are cut when they are long.
const TEXTS: [&str; 3] = ["text/plain", "text/markdown", "text/latex"];

/// A value, or something that was shown.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    #[serde(default)]
    data: Forms,
    #[serde(default)]
    pub(super) metadata: Option<Value>,
    #[serde(default)]
    transient: Option<Transient>,
    #[serde(default)]
    pub(super) update: bool,
}

#[derive(Debug, Deserialize)]
struct Transient {
    #[serde(default)]
    display_id: Option<String>,
}

impl Shown {
    /// Reads what a kernel sent; none where it is not what it should be.
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(payload);
        serde_json::from_str(&text).ok()
    }

    /// The name by which it can be replaced.
    pub(super) fn display_id(&self) -> Option<String> {
        self.transient.as_ref()?.display_id.clone()
    }

    /// Its forms, with long texts cut.
    pub(super) fn bundle(self, limit: Option<u64>) -> (BTreeMap<String, Value>, Option<Value>) {
        let mut forms = self.data.0;
        for name in TEXTS {
            let Some(form) = forms.get_mut(name) else { continue };
            let is_long = limit.is_some_and(|limit| limit > 0 && form.get().len() as u64 > limit);
            if is_long && let Ok(text) = serde_json::from_str::<String>(form.get()) {
                *form = raw(&cut_text(text, limit));
            }
        }
        let metadata = self.metadata.filter(|metadata| !matches!(metadata.get(), "null" | "{}"));
        (forms, metadata)
    }
}

/// The forms of a value that is nothing but text.
pub(super) fn plain(payload: &[u8], limit: Option<u64>) -> BTreeMap<String, Value> {
    let text = cut_text(String::from_utf8_lossy(payload).into_owned(), limit);
    BTreeMap::from([("text/plain".to_owned(), raw(&text))])
}

/// An error, as a kernel sent it.
pub(super) fn failure(payload: &[u8], limit: Option<u64>) -> Failure {
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Sent {
        name: String,
        value: String,
        traceback: String,
    }
    let text = String::from_utf8_lossy(payload);
    let sent: Sent = serde_json::from_str(&text).unwrap_or_else(|_| Sent {
        name: "Error".to_owned(),
        value: "the kernel told an error that cannot be read".to_owned(),
        ..Sent::default()
    });
    Failure {
        name: cut_text(sent.name, Some(1000)),
        value: cut_text(sent.value, limit),
        traceback: cut_text(sent.traceback, limit),
    }
}

/// A value as JSON text.
pub(super) fn raw(value: &(impl Serialize + ?Sized)) -> Value {
    // Texts and maps of texts always become JSON.
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Forms by their names: not too many, and with names that are not too long.
#[derive(Debug, Default)]
struct Forms(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Forms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Gather;
        impl<'de> Visitor<'de> for Gather {
            type Value = Forms;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("forms by their MIME types")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Forms, A::Error> {
                let mut forms = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if forms.len() < MOST_FORMS && name.len() <= LONGEST_NAME {
                        forms.insert(name, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Forms(forms))
            }
        }
        deserializer.deserialize_map(Gather)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_everything_else_is_left() {
        let payload = br#"{"data": {"text/plain": "abcdef", "text/html": "abcdef",
            "application/json": {"a": [1, 2]}}, "metadata": {}}"#;
        let (forms, metadata) = Shown::parse(payload).unwrap().bundle(Some(3));
        assert_eq!(forms["text/plain"].get(), r#""abc\n[cut: 6 characters, 3 kept]""#);
        assert_eq!(forms["text/html"].get(), r#""abcdef""#);
        assert_eq!(forms["application/json"].get(), r#"{"a": [1, 2]}"#);
        assert!(metadata.is_none());
    }

    #[test]
    fn forms_without_number_and_nonsense_are_bounded() {
        let many: BTreeMap<_, _> = (0..1000).map(|number| (number.to_string(), 1)).collect();
        let payload = serde_json::json!({ "data": many }).to_string();
        let (forms, _) = Shown::parse(payload.as_bytes()).unwrap().bundle(None);
        assert_eq!(forms.len(), MOST_FORMS);
        assert!(Shown::parse(b"{\"data\": NaN}").is_none());
        assert!(Shown::parse(b"\xff").is_none());
        let failure = failure(b"[", Some(10));
        assert_eq!(failure.name, "Error");
    }
}
