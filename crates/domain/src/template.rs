//! What sandboxes are made from, beside the host's own system.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ImageReport, Owner, Timestamp};

/// Names that every Soma has for the host's own system.
const RESERVED: [&str; 2] = ["default", "base"];

/// Names stay as short as those of sandboxes.
const LONGEST: usize = 40;

/// The name of a template that somebody imported. It becomes the name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(String);

/// Why a text is no name of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no name for a template: use 1 to 40 lowercase letters, digits and hyphens, \
     beginning with a letter, and neither `default` nor `base`"
)]
pub struct InvalidTemplateName {
    text: String,
}

impl TemplateName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TemplateName {
    type Error = InvalidTemplateName;

    fn try_from(text: String) -> Result<Self, InvalidTemplateName> {
        let is_good = text.len() <= LONGEST
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.ends_with('-')
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !RESERVED.contains(&text.as_str());
        if is_good {
            Ok(Self(text))
        } else {
            let text = text.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
            Err(InvalidTemplateName { text })
        }
    }
}

impl std::str::FromStr for TemplateName {
    type Err = InvalidTemplateName;

    fn from_str(text: &str) -> Result<Self, InvalidTemplateName> {
        text.to_owned().try_into()
    }
}

impl From<TemplateName> for String {
    fn from(name: TemplateName) -> Self {
        name.0
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 3;

/// What is written down with a template, in its own folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    version: u32,
    /// What it is called.
    pub name: TemplateName,
    /// Whose it is. Version 1 knew none, nor any key of another owner than the usual.
    #[serde(default)]
    pub owner: Owner,
    /// When it was imported.
    pub created_at: Timestamp,
    /// What it was imported from, and what became of it.
    pub image: ImageReport,
    /// The packages that it was built with, where Soma built it. Version 2 knew none.
    #[serde(default)]
    pub packages: Vec<String>,
}

/// Why a text is no record of a template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTemplateRecord {
    /// It was written by a later Soma.
    #[error("it has version {found}, and this soma reads up to {VERSION}")]
    Later {
        /// Its version.
        found: u32,
    },
    /// It is damaged, or never was one.
    #[error("it cannot be read")]
    Damaged(#[from] serde_json::Error),
}

impl TemplateRecord {
    /// The record of a template that is about to be kept.
    pub fn new(
        name: TemplateName,
        owner: Owner,
        created_at: Timestamp,
        image: ImageReport,
    ) -> Self {
        Self { version: VERSION, name, owner, created_at, image, packages: Vec::new() }
    }

    /// The same of a template that was built with these packages.
    #[must_use]
    pub fn built_with(self, packages: &[String]) -> Self {
        Self { packages: packages.to_vec(), ..self }
    }

    /// As it is written down.
    pub fn to_text(&self) -> Result<String, InvalidTemplateRecord> {
        Ok(serde_json::to_string(self)?)
    }

    /// Reads what was written down.
    pub fn from_text(text: &str) -> Result<Self, InvalidTemplateRecord> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(InvalidTemplateRecord::Later { found: version });
        }
        Ok(serde_json::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_folder_and_nothing_else() {
        for name in ["debian", "d", "node-22", "a0"] {
            assert_eq!(name.parse::<TemplateName>().unwrap().as_str(), name);
        }
        let long = "x".repeat(41);
        for name in ["", "default", "base", "-a", "a-", "A", "a/b", "..", "a.b", "1a", &long] {
            assert!(name.parse::<TemplateName>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_record_comes_back_and_a_later_one_is_refused() {
        let name: TemplateName = "debian".parse().unwrap();
        let owner = Owner("acme".to_owned());
        let record = TemplateRecord::new(name, owner, Timestamp(7), ImageReport::default());
        let text = record.to_text().unwrap();
        assert_eq!(TemplateRecord::from_text(&text).unwrap(), record);
        let later = text.replace("\"version\":3", "\"version\":4");
        assert!(TemplateRecord::from_text(&later).unwrap_err().to_string().contains("version 4"));
        let first = text.replace("\"version\":3", "\"version\":1");
        let first = first.replace("\"owner\":\"acme\",", "").replace(",\"packages\":[]", "");
        assert_eq!(TemplateRecord::from_text(&first).unwrap().owner, Owner::default());
        assert!(TemplateRecord::from_text("{}").is_err());
    }
}
