//! What the template `code-interpreter` is built with.

use std::fmt::Display;
use std::str::FromStr;

use control::Packages;

/// Packages with commas between; none at all are the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CodePackages(pub(crate) Packages);

impl FromStr for CodePackages {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(ToOwned::to_owned).collect();
        if words.is_empty() {
            return Ok(Self::default());
        }
        Packages::chosen(words).map(Self).map_err(|error| error.to_string())
    }
}

impl Display for CodePackages {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.words().join(","))
    }
}
