//! `config.toml`, with the line of each value.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize as _;
use toml::Spanned;
use toml::Value;

use crate::failure::Failure;

/// Every key that may be in it.
pub(crate) const KEYS: [&str; 23] = [
    "listen",
    "domain",
    "hosts",
    "origins",
    "log_level",
    "log_format",
    "otlp_endpoint",
    "max_sandboxes",
    "max_memory",
    "max_cpus",
    "max_disk",
    "allow_unenforced",
    "retention",
    "pause_grace",
    "database",
    "reserve_disk",
    "reserve_memory",
    "code_packages",
    "network.grants",
    "network.resolvers",
    "network.proxy",
    "network.certificates",
    "network.default",
];

/// The one section that may be in it: what begins with this is written there.
const SECTION: &str = "network";

/// What the file says: each value as text, and its line.
#[derive(Debug, Default)]
pub(super) struct File {
    path: String,
    values: BTreeMap<String, (String, usize)>,
}

impl File {
    /// Reads the file of a home. One that is not there says nothing.
    pub(super) fn read(home: &Path) -> Result<Self, Failure> {
        let path = home.join("config.toml");
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => {
                Err(Failure::usage(format!("`{}` cannot be read: {error}", path.display())))
            }
        }
    }

    pub(super) fn parse(text: &str, path: &str) -> Result<Self, Failure> {
        let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let wrong = |place: usize, what: &str| {
            Failure::usage(format!("line {} of {path}: {what}", line(place)))
        };
        let reader = toml::Deserializer::parse(text)
            .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        let table: BTreeMap<Spanned<String>, Spanned<Value>> = BTreeMap::deserialize(reader)
            .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        let section =
            Section::deserialize(toml::Deserializer::parse(text).map_err(|error| {
                wrong(error.span().map_or(0, |span| span.start), error.message())
            })?)
            .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
        let dotted: Vec<String> =
            table.keys().map(|key| key.get_ref().clone()).filter(|key| key.contains('.')).collect();
        let outside = table
            .into_iter()
            .filter(|(key, _)| key.get_ref() != SECTION)
            .map(|(key, value)| (key.get_ref().clone(), key.span().start, value));
        let inside = section
            .network
            .into_iter()
            .map(|(key, value)| (format!("{SECTION}.{}", key.get_ref()), key.span().start, value));
        let mut values = BTreeMap::new();
        for (name, place, value) in outside.chain(inside) {
            // A dot in quotes is no section.
            let is_known = KEYS.contains(&name.as_str()) && !dotted.contains(&name);
            if !is_known {
                let what = format!("there is no setting `{name}`; there are {}", KEYS.join(", "));
                return Err(wrong(place, &what));
            }
            let Some(text) = plain(value.get_ref()) else {
                return Err(wrong(place, &format!("`{name}` is a table, and has to be a value")));
            };
            values.insert(name, (text, line(place)));
        }
        Ok(Self { path: path.to_owned(), values })
    }

    pub(super) fn value(&self, key: &str) -> Option<(&str, usize)> {
        self.values.get(key).map(|(text, line)| (text.as_str(), *line))
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// The section by itself, because only what is read as a section has places in the text.
#[derive(Debug, serde::Deserialize)]
struct Section {
    #[serde(default)]
    network: BTreeMap<Spanned<String>, Spanned<Value>>,
}

/// A value as it would be typed.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Array(values) => {
            let words: Option<Vec<String>> = values.iter().map(plain).collect();
            words.map(|words| words.join(","))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_line() {
        let error = File::parse("listen = \"off\"\nlisen = \"off\"\n", "c.toml").unwrap_err();
        assert!(
            error.message.starts_with("line 2 of c.toml: there is no setting `lisen`"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_toml_is_an_error_that_names_the_line() {
        for (text, line) in [("listen = ", 1), ("a\n", 1), ("listen = \"off\"\n= 3", 2)] {
            let error = File::parse(text, "c.toml").unwrap_err();
            assert!(error.message.starts_with(&format!("line {line} of c.toml: ")), "{error}");
        }
        let error = File::parse("\n[network]\ngrant = []\n", "c.toml").unwrap_err();
        assert!(
            error.message.starts_with("line 3 of c.toml: there is no setting `network.grant`"),
            "{error}"
        );
        let error = File::parse("\"network.grants\" = []\n", "c.toml").unwrap_err();
        assert!(error.message.starts_with("line 1 of c.toml: "), "{error}");
        let error = File::parse("network = 3\n", "c.toml").unwrap_err();
        assert!(error.message.starts_with("line 1 of c.toml: "), "{error}");
        let error = File::parse("[listen]\nx = 1\n", "c.toml").unwrap_err();
        assert!(error.message.contains("is a table"), "{error}");
    }
}
