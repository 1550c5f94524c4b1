//! What `code-interpreter` is made of.

use std::time::Duration;

use domain::TemplateName;

use crate::ControlError;

/// What it is called.
pub(crate) const NAME: &str = "code-interpreter";

/// What the clients of others call it.
const ALIASES: [&str; 3] =
    ["code-interpreter-v1", "system/code-interpreter", "system/code-interpreter:v0.1.0"];

/// What is installed when the operator says nothing.
pub const PACKAGES: [&str; 15] = [
    "ipython",
    "numpy",
    "pandas",
    "matplotlib",
    "scipy",
    "scikit-learn",
    "seaborn",
    "plotly",
    "sympy",
    "pillow",
    "requests",
    "beautifulsoup4",
    "openpyxl",
    "tabulate",
    "pyyaml",
];

/// A build that takes longer than this will not come to its end.
pub(super) const LONGEST: Duration = Duration::from_mins(30);

/// Where it is installed, inside: what is below becomes the layer.
const TREE: &str = "/workspace/tree";

/// The name of the template that is meant.
pub(crate) fn resolve(template: &str) -> &str {
    if is_alias(template) { NAME } else { template }
}

/// Whether others know `code-interpreter` by this name.
pub(crate) fn is_alias(template: &str) -> bool {
    ALIASES.contains(&template)
}

pub(super) fn name() -> Result<TemplateName, ControlError> {
    NAME.parse().map_err(|error: domain::InvalidTemplateName| ControlError::Invalid {
        reason: error.to_string(),
    })
}

/// The packages of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages(Vec<String>);

/// Why a text is no package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no package: write a name such as `numpy`, or one version as `numpy==2.1.0`")]
pub struct InvalidPackage {
    text: String,
}

impl Default for Packages {
    fn default() -> Self {
        Self(PACKAGES.map(ToOwned::to_owned).to_vec())
    }
}

impl Packages {
    /// Those that the operator chose.
    pub fn chosen(words: Vec<String>) -> Result<Self, InvalidPackage> {
        let wrong = words.iter().find(|word| !is_package(word));
        match wrong {
            Some(word) => {
                let text = word.chars().filter(|c| !c.is_control()).take(64).collect();
                Err(InvalidPackage { text })
            }
            None => Ok(Self(words)),
        }
    }

    /// As they were chosen.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// What is done, one after the other.
    pub(super) fn steps(&self) -> [Step; 2] {
        // Whatever the host has of them: the layer must not depend on it. What would have to be
        // compiled from C takes longer than anybody waits, and needs more than a host may have.
        let install = [
            "python3",
            "-m",
            "pip",
            "install",
            "--no-input",
            "--no-cache-dir",
            "--progress-bar=off",
            "--retries=3",
            "--no-compile",
            "--ignore-installed",
            "--no-warn-script-location",
            "--only-binary=:all:",
            "--root",
            TREE,
        ];
        let install = install.into_iter().map(ToOwned::to_owned).chain(self.0.iter().cloned());
        // Without, every process would do it for itself. The tests of packages nobody imports, and
        // some packages have files that are no Python of this version.
        let compile =
            ["python3", "-m", "compileall", "-q", "-j", "0", "-x", "/tests/", "-s", TREE, TREE];
        [
            Step { what: "installing packages", words: install.collect(), may_fail: false },
            Step {
                what: "compiling packages",
                words: compile.map(ToOwned::to_owned).to_vec(),
                may_fail: true,
            },
        ]
    }
}

/// One command of a build.
#[derive(Debug)]
pub(super) struct Step {
    /// What it is for.
    pub(super) what: &'static str,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Whether the build goes on when it fails.
    pub(super) may_fail: bool,
}

/// Writes what was installed to standard output.
pub(super) fn archive() -> Vec<String> {
    let words = ["tar", "-C", TREE, "--owner=0", "--group=0", "--numeric-owner", "-cf", "-", "."];
    words.map(ToOwned::to_owned).to_vec()
}

/// A name, perhaps with extras and one version: nothing that pip takes for an option, a path or an
/// address.
fn is_package(word: &str) -> bool {
    let (name, version) = word.split_once("==").unwrap_or((word, "0"));
    let (name, extras) = match name.strip_suffix(']').map(|name| name.split_once('[')) {
        Some(Some((name, extras))) => (name, extras),
        Some(None) => return false,
        None => (name, "x"),
    };
    let is_word = |text: &str, more: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fits)
    };
    word.len() <= 128
        && is_word(name, "-_.")
        && is_word(extras, "-_.")
        && is_word(version, ".+!*-_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_a_name_and_perhaps_a_version() {
        for word in PACKAGES.into_iter().chain(["numpy==2.1.0", "a[b]", "a[b]==1!2.0+x"]) {
            assert!(is_package(word), "{word}");
        }
        for word in ["", "-r", "--pre", "a b", "./a", "a/b", "http://a", "a;b", "a]", "a[", "a=="] {
            let error = Packages::chosen(vec![word.to_owned()]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{word}` is no package")), "{error}");
        }
    }

    #[test]
    fn the_names_of_others_lead_to_the_same_template() {
        for name in ALIASES.into_iter().chain([NAME]) {
            assert_eq!(resolve(name), NAME);
        }
        assert_eq!(resolve("debian"), "debian");
    }
}
