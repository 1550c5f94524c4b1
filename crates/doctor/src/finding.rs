//! What a check found.

use serde::Serialize;

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there and did what was asked of it.
    Works,
    /// It is there, but not all of it, or not as it should be.
    Limited,
    /// It is not there, or refused what was asked of it.
    Missing,
    /// It could not be found out.
    Unknown,
}

/// One thing that this host can or cannot do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is, in the same words for ever: scripts look for it.
    pub name: &'static str,
    /// How it stands.
    pub state: State,
    /// No sandbox can run without it, for whoever asked.
    pub required: bool,
    /// What is so, and why.
    pub says: String,
    /// What Soma does without it.
    pub without: String,
    /// What would cure it, where something is lacking and a command can.
    pub fix: Option<Fix>,
}

impl Finding {
    /// A finding about something that no sandbox depends on.
    pub(crate) fn new(name: &'static str, state: State, says: impl Into<String>) -> Self {
        let (without, fix) = (String::new(), None);
        Self { name, state, required: false, says: says.into(), without, fix }
    }

    pub(crate) fn works(name: &'static str, says: impl Into<String>) -> Self {
        Self::new(name, State::Works, says)
    }

    pub(crate) fn limited(name: &'static str, says: impl Into<String>) -> Self {
        Self::new(name, State::Limited, says)
    }

    pub(crate) fn missing(name: &'static str, says: impl Into<String>) -> Self {
        Self::new(name, State::Missing, says)
    }

    pub(crate) fn unknown(name: &'static str, says: impl Into<String>) -> Self {
        Self::new(name, State::Unknown, says)
    }

    /// What Soma does without it.
    pub(crate) fn without(mut self, words: impl Into<String>) -> Self {
        self.without = words.into();
        self
    }

    pub(crate) fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    /// What would cure it; kept only where something is lacking.
    pub(crate) fn fix(mut self, fix: impl Into<Option<Fix>>) -> Self {
        self.fix = fix.into().filter(|_| self.state != State::Works);
        self
    }

    /// Nothing can run because of this.
    pub fn forbids(&self) -> bool {
        self.required && self.state == State::Missing
    }
}

/// A command that would cure what is lacking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The command as one would type it.
    pub command: String,
    /// Soma may run it: it takes nothing away, and the next boot or one command undoes it.
    pub safe: bool,
    /// It needs root.
    pub needs_root: bool,
    /// The words of a safe command, none of which needs a shell.
    #[serde(skip)]
    words: Vec<String>,
}

impl Fix {
    /// One that may be run, for which root is needed.
    pub(crate) fn safe(words: &[&str]) -> Self {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Self { command: words.join(" "), safe: true, needs_root: true, words }
    }

    /// One that is for a person to decide, as root.
    pub(crate) fn shown(command: impl Into<String>) -> Self {
        Self { command: command.into(), safe: false, needs_root: true, words: Vec::new() }
    }

    /// One that is for a person to decide and to run without root.
    pub(crate) fn shown_to_anybody(command: impl Into<String>) -> Self {
        Self { needs_root: false, ..Self::shown(command) }
    }

    /// Installs a package of Debian or Ubuntu.
    pub(crate) fn package(name: &str) -> Self {
        Self::shown(format!("apt-get install -y {name}"))
    }

    /// Program and arguments of a safe command; none for one that is only shown.
    pub fn words(&self) -> Option<&[String]> {
        self.safe.then_some(self.words.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_needs_no_cure() {
        let fix = Fix::safe(&["modprobe", "loop"]);
        assert_eq!(Finding::works("loop-devices", "made one").fix(fix.clone()).fix, None);
        assert_eq!(Finding::missing("loop-devices", "none").fix(fix.clone()).fix, Some(fix));
    }

    #[test]
    fn only_a_safe_command_gives_words_to_run() {
        let words = ["modprobe".to_owned(), "loop".to_owned()];
        assert_eq!(Fix::safe(&["modprobe", "loop"]).words(), Some(&words[..]));
        assert_eq!(Fix::shown("rm -rf /").words(), None);
    }

    #[test]
    fn only_what_is_required_and_missing_forbids() {
        assert!(Finding::missing("a", "").required(true).forbids());
        assert!(!Finding::missing("a", "").forbids());
        assert!(!Finding::limited("a", "").required(true).forbids());
        assert!(!Finding::unknown("a", "").required(true).forbids());
    }
}
