//! What can be typed after `soma shell`, and what it means.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use guest_proto::client::{StartOptions, TerminalSize};

use crate::failure::Failure;
use crate::session::{Plan, SandboxOptions, utf8};

/// The shell, when no other program is named: one that is talked to, and reads what a login reads.
const SHELL: &[&str] = &["/bin/bash", "-i", "-l"];

/// What says how the caller's terminal shows colours and letters.
const PASSED_ON: &[&str] = &["COLORTERM", "LANG", "LC_ALL"];

/// The kind of terminal that stands for one that the sandbox does not know: most behave like it.
const USUAL_KIND: &str = "xterm-256color";

/// Where the kinds of terminals are described. The default template is the host's own `/usr`, so
/// what is here is there too.
const KINDS: &[&str] = &["/usr/share/terminfo", "/usr/lib/terminfo"];

/// What is typed after `soma shell`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma shell
  soma shell my-box
  soma shell --user root --memory 512m
  soma shell -- python3

All keys go to the shell, Ctrl-C and Ctrl-Z too. Leave with `exit` or Ctrl-D; if nothing answers
any more, with Enter, `~` and `.`, one after the other.

Exit codes: the shell's own; 128+n when signal n ended it; 124 when its time was over; 125 when
Soma failed; 126 or 127 when it could not be started; 2 when this line makes no sense.")]
pub(crate) struct ShellArguments {
    /// A sandbox that is there, by its id, its name or the beginning of either; it stays
    /// [default: a fresh one that is gone afterwards].
    #[arg(value_name = "SANDBOX")]
    which: Option<String>,
    /// A program and its arguments, to run instead of a login shell.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// How long the shell may live, such as 30m [default: as long as it likes].
    #[arg(long, short, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
}

impl ShellArguments {
    /// The sandbox that is meant, if not a fresh one. What is set when a sandbox is made cannot be
    /// asked of one that is there.
    pub(super) fn which(&self) -> Result<Option<String>, Failure> {
        if self.which.is_some() {
            self.sandbox.refuse_what_is_set_at_first()?;
        }
        Ok(self.which.clone())
    }

    /// Refuses what makes no sense, before anything is made. The caller's variables are looked up
    /// with `variable`; those that were typed win.
    pub(super) fn plan(
        self,
        size: TerminalSize,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Plan, Failure> {
        let mut words = self
            .command
            .into_iter()
            .map(|word| utf8(word, "an argument of the command"))
            .collect::<Result<Vec<_>, _>>()?;
        if words.is_empty() {
            words = SHELL.iter().map(ToString::to_string).collect();
        }
        let program = words.remove(0);
        if program.is_empty() {
            return Err(Failure::usage("the program to run has no name"));
        }
        let mut plan = self.sandbox.plan(program, words, self.timeout)?;
        on_a_terminal(&mut plan.start, size, variable);
        Ok(plan)
    }
}

/// Gives a program a terminal like the caller's. What was typed wins.
pub(super) fn on_a_terminal(
    start: &mut StartOptions,
    size: TerminalSize,
    variable: impl Fn(&str) -> Option<String>,
) {
    start.terminal = Some(size);
    let environment = &mut start.env;
    environment.entry("TERM".to_owned()).or_insert_with(|| kind(variable("TERM"), KINDS));
    for name in PASSED_ON {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            environment.entry((*name).to_owned()).or_insert(value);
        }
    }
}

/// The kind of the caller's terminal, if programs in the sandbox can look it up.
fn kind(callers: Option<String>, folders: &[&str]) -> String {
    let known = |name: &String| {
        let Some(first) = name.chars().next().filter(|_| !name.contains(['/', '.'])) else {
            return false;
        };
        folders.iter().any(|folder| Path::new(folder).join(first.to_string()).join(name).is_file())
    };
    callers.filter(known).unwrap_or_else(|| USUAL_KIND.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, Parsed, parse};

    const SIZE: TerminalSize = TerminalSize { columns: 100, rows: 30 };

    fn plan(typed: &[&str], variables: &[(&str, &str)]) -> Result<Plan, Failure> {
        let words = ["soma", "shell"].iter().chain(typed).map(OsString::from);
        let Parsed::Command { command: Command::Shell(arguments), .. } = parse(words)? else {
            panic!("{typed:?} is not a shell");
        };
        arguments.plan(SIZE, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_login_shell_on_a_terminal_without_a_time_limit_is_the_default() {
        let plan = plan(&[], &[]).unwrap();
        assert_eq!(plan.start.cmd, "/bin/bash");
        assert_eq!(plan.start.args, ["-i", "-l"]);
        assert_eq!(plan.start.terminal, Some(SIZE));
        assert_eq!((plan.start.timeout, plan.spec.limits.timeout), (None, None));
        assert_eq!(plan.spec.lifetime, domain::Lifetime::WithCaller);
    }

    #[test]
    fn another_program_and_a_time_limit_can_be_named() {
        let plan = plan(&["--timeout", "30m", "--", "top", "-d", "1"], &[]).unwrap();
        assert_eq!((plan.start.cmd.as_str(), plan.start.args.len()), ("top", 2));
        assert_eq!(plan.start.timeout, Some(Duration::from_mins(30)));
        assert!(plan.spec.limits.timeout > plan.start.timeout);
    }

    #[test]
    fn colours_and_letters_are_the_callers_unless_others_are_typed() {
        let callers = [("COLORTERM", "truecolor"), ("LANG", "C.UTF-8"), ("LC_ALL", ""), ("A", "b")];
        let typed = ["--env", "LANG=C", "--env", "TERM=dumb"];
        let environment = plan(&typed, &callers).unwrap().start.env;
        let expected = [("COLORTERM", "truecolor"), ("LANG", "C"), ("TERM", "dumb")];
        assert_eq!(environment, expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn a_kind_of_terminal_that_the_sandbox_does_not_know_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("k")).unwrap();
        std::fs::write(folder.path().join("k/known"), "").unwrap();
        let kind = |name: &str| kind(Some(name.to_owned()), &[folder.path().to_str().unwrap()]);
        assert_eq!(kind("known"), "known");
        for unknown in ["unknown", "", "k", ".", "../k/known", "k/known"] {
            assert_eq!(kind(unknown), USUAL_KIND, "{unknown}");
        }
    }

    #[test]
    fn a_sandbox_that_is_there_cannot_be_given_other_limits() {
        let which = |typed: &[&str]| {
            let words = ["soma", "shell"].iter().chain(typed).map(OsString::from);
            match parse(words)? {
                Parsed::Command { command: Command::Shell(arguments), .. } => arguments.which(),
                _ => panic!("{typed:?} is not a shell"),
            }
        };
        assert_eq!(which(&["box", "--", "top"]), Ok(Some("box".to_owned())));
        assert_eq!(which(&["--memory", "1g"]), Ok(None));
        let failure = which(&["box", "--memory", "1g"]).unwrap_err();
        assert_eq!(
            failure.message,
            "--memory is set when a sandbox is made, and the one that was named is there"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for typed in [&["--timeout", "0"][..], &["--memory", "1k"], &["--", ""], &["--network"]] {
            assert_eq!(plan(typed, &[]).unwrap_err().code, 2, "{typed:?}");
        }
    }
}
