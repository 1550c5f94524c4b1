//! The languages whose code can be handed to Soma as text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A language that a sandbox can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// GNU Bash.
    Bash,
    /// Python 3.
    #[default]
    Python,
    /// JavaScript in Node.
    Node,
    /// R.
    R,
}

impl Language {
    /// Every language, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Bash, Self::Python, Self::Node, Self::R];

    /// The name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python",
            Self::Node => "node",
            Self::R => "r",
        }
    }

    /// The program that must be in the sandbox.
    pub const fn interpreter(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python3",
            Self::Node => "node",
            Self::R => "Rscript",
        }
    }

    /// The Debian package that brings the interpreter.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Python => "python3",
            Self::Node => "nodejs",
            Self::R => "r-base-core",
        }
    }

    /// The arguments that run a piece of code.
    pub fn run_text(self, code: &str) -> Vec<String> {
        let flag = match self {
            Self::Bash | Self::Python => "-c",
            Self::Node | Self::R => "-e",
        };
        vec![flag.to_owned(), code.to_owned()]
    }

    /// The arguments that run what comes on standard input.
    pub fn run_standard_input(self) -> Vec<String> {
        match self {
            Self::Bash => vec!["-s".to_owned()],
            Self::Python | Self::Node | Self::R => vec!["-".to_owned()],
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why a text names no language.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no language `{text}`: Soma runs bash, python, node and r")]
pub struct UnknownLanguage {
    text: String,
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "bash" | "sh" => Ok(Self::Bash),
            "python" | "python3" | "py" => Ok(Self::Python),
            "node" | "javascript" | "js" => Ok(Self::Node),
            "r" => Ok(Self::R),
            _ => Err(UnknownLanguage { text: text.chars().take(40).collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_is_found_by_its_own_name() {
        for language in Language::ALL {
            assert_eq!(language.name().parse(), Ok(language));
        }
    }

    #[test]
    fn an_unknown_language_is_answered_with_the_known_ones() {
        assert_eq!(
            "cobol".parse::<Language>().unwrap_err().to_string(),
            "there is no language `cobol`: Soma runs bash, python, node and r"
        );
    }
}
