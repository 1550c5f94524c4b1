//! The languages that the guest has kernels for, by all the names that clients use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// A language of cells.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Python 3.
    Python,
    /// JavaScript, in Node.
    Javascript,
    /// TypeScript, in the same kernel as JavaScript.
    Typescript,
    /// R.
    R,
    /// Bash.
    Bash,
}

/// There is no kernel for a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownLanguage {
    asked: String,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Python, Self::Javascript, Self::Typescript, Self::R, Self::Bash];

    /// The name that is told.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Typescript => "typescript",
            Self::R => "r",
            Self::Bash => "bash",
        }
    }

    /// The language whose kernel runs it: TypeScript runs in that of JavaScript.
    #[must_use]
    pub fn kernel(self) -> Self {
        match self {
            Self::Typescript => Self::Javascript,
            other => other,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, UnknownLanguage> {
        match text.to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" | "ipython" => Ok(Self::Python),
            "javascript" | "js" | "node" | "nodejs" | "bun" => Ok(Self::Javascript),
            "typescript" | "ts" => Ok(Self::Typescript),
            "r" => Ok(Self::R),
            "bash" | "sh" | "shell" => Ok(Self::Bash),
            _ => Err(UnknownLanguage { asked: text.chars().take(40).collect() }),
        }
    }
}

impl<'de> Deserialize<'de> for Language {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for UnknownLanguage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Language::ALL.map(Language::name).join(", ");
        write!(formatter, "there is no kernel for '{}'; there are: {known}", self.asked)
    }
}

impl std::error::Error for UnknownLanguage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_and_aliases_are_known() {
        for language in Language::ALL {
            assert_eq!(language.name().parse(), Ok(language));
            assert_eq!(serde_json::to_value(language).unwrap(), language.name());
        }
        for (alias, language) in
            [("py", Language::Python), ("JS", Language::Javascript), ("ts", Language::Typescript)]
        {
            assert_eq!(alias.parse(), Ok(language));
        }
        let refused = "cobol".parse::<Language>().unwrap_err().to_string();
        assert_eq!(
            refused,
            "there is no kernel for 'cobol'; \
             there are: python, javascript, typescript, r, bash"
        );
    }
}
