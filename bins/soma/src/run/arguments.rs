//! What can be typed after `soma run`, and what it means.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use domain::{Bytes, Language, Lifetime, Limits, MilliCpus, SandboxSpec, parse_environment};
use guest_proto::client::StartOptions;

use crate::failure::Failure;

/// How much longer than its command a sandbox may live, in case the guest does not end it.
const BACKSTOP: Duration = Duration::from_secs(5);

/// What is typed after `soma run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma run 'print(6*7)'
  soma run --lang bash 'echo $HOME'
  soma run - < script.py
  soma run --memory 512m --timeout 10s -- ls -l /

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
    /// Memory of everything in the sandbox, such as 512m or 2g [default: 2g].
    #[arg(long, short, value_name = "AMOUNT")]
    memory: Option<Bytes>,
    /// Processors, such as 2 or 0.5 [default: 2].
    #[arg(long, short, value_name = "NUMBER")]
    cpus: Option<MilliCpus>,
    /// Processes and threads at one time [default: 512].
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u32>,
    /// What can be written to the sandbox's disk, such as 1g [default: 10g].
    #[arg(long, value_name = "AMOUNT")]
    disk: Option<Bytes>,
    /// How long the command may take, such as 30s or 5m [default: 5m].
    #[arg(long, short, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
    /// A variable for the command; can be repeated.
    // Taken as it is and read later: clap would repeat a wrong one, and it may be a secret.
    #[arg(long, short, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// The folder in the sandbox to run in [default: the user's home].
    #[arg(long, short, value_name = "FOLDER")]
    workdir: Option<String>,
    /// Who runs it: user or root [default: user].
    #[arg(long, short, value_name = "NAME")]
    user: Option<String>,
    /// Run also where this host cannot hold the sandbox to all of these limits.
    #[arg(long, env = "SOMA_ALLOW_UNENFORCED", hide_env_values = true)]
    allow_unenforced: bool,
    /// Nobody in the sandbox becomes its root with sudo.
    #[arg(long)]
    no_sudo: bool,
    /// The network comes with a later release.
    #[arg(long, value_name = "NETWORK", num_args = 0..=1)]
    network: Option<Vec<OsString>>,
}

/// What was typed, as something that can be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The sandbox.
    pub(crate) spec: SandboxSpec,
    /// The command in it.
    pub(crate) start: StartOptions,
    /// The language, when what runs is code in one.
    pub(crate) language: Option<Language>,
    /// How long the command may take.
    pub(crate) timeout: Duration,
}

impl Plan {
    /// Refuses what makes no sense, before anything is made.
    pub(crate) fn new(arguments: RunArguments) -> Result<Self, Failure> {
        if arguments.network.is_some() {
            return Err(Failure::usage(
                "the network of a sandbox is loopback only for now; outside addresses come \
                 with the network's own release",
            ));
        }
        let mut limits = limits(&arguments)?;
        let timeout = limits.timeout.unwrap_or(Duration::MAX);
        limits.timeout = limits.timeout.map(|timeout| timeout.saturating_add(BACKSTOP));
        let mut env = environment(arguments.env)?;
        let (cmd, args, language) =
            what_to_start(arguments.code, arguments.command, arguments.lang)?;
        if language == Some(Language::Python) {
            // Python keeps what it prints back while its output is no terminal.
            env.entry("PYTHONUNBUFFERED".to_owned()).or_insert_with(|| "1".to_owned());
        }
        // Variables go with the command and not with the sandbox: they may be secrets, and
        // what belongs to a sandbox is written to disk.
        let start = StartOptions {
            cmd,
            args,
            env,
            cwd: arguments.workdir,
            user: arguments.user,
            stdin: true,
            timeout: Some(timeout),
            ..StartOptions::default()
        };
        let spec = SandboxSpec {
            limits,
            lifetime: Lifetime::WithCaller,
            allow_unenforced: arguments.allow_unenforced,
            sudo: !arguments.no_sudo,
            ..SandboxSpec::default()
        };
        Ok(Self { spec, start, language, timeout })
    }
}

fn limits(arguments: &RunArguments) -> Result<Limits, Failure> {
    let usual = Limits::default();
    let limits = Limits {
        memory: arguments.memory.unwrap_or(usual.memory),
        cpus: arguments.cpus.unwrap_or(usual.cpus),
        pids: arguments.pids.unwrap_or(usual.pids),
        disk: arguments.disk.unwrap_or(usual.disk),
        timeout: arguments.timeout.or(usual.timeout),
    };
    limits.check().map_err(|error| Failure::usage(error.to_string()))
}

fn environment(typed: Vec<OsString>) -> Result<BTreeMap<String, String>, Failure> {
    let read = |text: OsString| {
        let text = text.into_string().map_err(|_| Failure::usage("a variable is not UTF-8"))?;
        parse_environment(&text).map_err(|error| Failure::usage(error.to_string()))
    };
    typed.into_iter().map(read).collect()
}

/// The program, its arguments, and the language when it is an interpreter that we chose.
fn what_to_start(
    code: Option<OsString>,
    command: Vec<OsString>,
    language: Language,
) -> Result<(String, Vec<String>, Option<Language>), Failure> {
    let utf8 = |text: OsString, what: &str| {
        text.into_string().map_err(|_| Failure::usage(format!("{what} is not UTF-8")))
    };
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
