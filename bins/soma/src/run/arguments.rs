//! What can be typed after `soma run`, and what it means.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use domain::{Language, Limits};

use crate::failure::Failure;
use crate::session::{Plan, SandboxOptions, utf8};

/// What is typed after `soma run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma run 'print(6*7)'
  soma run --lang bash 'echo $HOME'
  soma run - < script.py
  soma run --memory 512m --timeout 10s -- ls -l /
  soma run --allow '*.pypi.org' --lang bash 'pip download requests'

Exit codes: the command's own; 128+n when signal n ended it; 124 when its time was over;
125 when Soma failed; 126 or 127 when it could not be started; 2 when this line makes no sense.")]
pub(crate) struct RunArguments {
    /// Code to run, or `-` to read it from standard input.
    #[arg(value_name = "CODE", allow_hyphen_values = false)]
    code: Option<OsString>,
    /// A program and its arguments, to run instead of code.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["code", "lang"])]
    command: Vec<OsString>,
    /// What the code is written in: bash, python, node or r.
    #[arg(long, short, value_name = "LANGUAGE", default_value = "python")]
    lang: Language,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// How long the command may take, such as 30s or 5m [default: 5m].
    #[arg(long, short, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
}

impl RunArguments {
    /// Refuses what makes no sense, before anything is made.
    pub(super) fn plan(self) -> Result<Plan, Failure> {
        let (cmd, args, language) = what_to_start(self.code, self.command, self.lang)?;
        let timeout = self.timeout.or(Limits::default().timeout);
        let mut plan = self.sandbox.plan(cmd, args, timeout)?;
        plan.language = language;
        if language == Some(Language::Python) {
            // Python keeps what it prints back while its output is no terminal.
            let variables = &mut plan.start.env;
            variables.entry("PYTHONUNBUFFERED".to_owned()).or_insert_with(|| "1".to_owned());
        }
        Ok(plan)
    }
}

/// The program, its arguments, and the language when it is an interpreter that we chose.
fn what_to_start(
    code: Option<OsString>,
    command: Vec<OsString>,
    language: Language,
) -> Result<(String, Vec<String>, Option<Language>), Failure> {
    if let Some(code) = code {
        let code = utf8(code, "the code")?;
        let args = match code.as_str() {
            "-" => language.run_standard_input(),
            code => language.run_text(code),
        };
        return Ok((language.interpreter().to_owned(), args, Some(language)));
    }
    let mut words = command.into_iter().map(|word| utf8(word, "an argument of the command"));
    match words.next().transpose()? {
        Some(cmd) if cmd.is_empty() => Err(Failure::usage("the program to run has no name")),
        Some(cmd) => Ok((cmd, words.collect::<Result<_, _>>()?, None)),
        None => Err(Failure::usage("there is nothing to run")
            .hint("give code, `-` for code on standard input, or `-- program arguments`")),
    }
}
