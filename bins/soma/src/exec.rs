//! `soma exec`: a command in a sandbox that is there.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use domain::SandboxSpec;
use guest_proto::client::StartOptions;

use crate::daemon;
use crate::failure::Failure;
use crate::run::follow::follow;
use crate::run::input::Input;
use crate::session::{self, Existing, Live, Plan, environment, utf8};
use crate::shell;

/// What is typed after `soma exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma exec my-box -- ls -l /
  echo 'print(6*7)' | soma exec -i my-box -- python3
  soma exec -t my-box -- top
  soma exec -u root -w /etc -e EDITOR=vi my-box -- cat hostname

Ctrl-C is passed on to the command; after two seconds, or with a second one, it is killed. The
sandbox stays.

Exit codes: the command's own; 128+n when signal n ended it; 124 when its time was over;
125 when Soma failed; 126 or 127 when it could not be started; 2 when this line makes no sense.")]
pub(crate) struct ExecArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// The program and its arguments.
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
    /// Pass standard input on to the command.
    #[arg(long, short)]
    interactive: bool,
    /// Give the command this terminal, keys included.
    #[arg(long, short)]
    tty: bool,
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
    /// How long it may take, such as 30s [default: as long as the sandbox].
    #[arg(long, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(home: &Path, arguments: ExecArguments) -> Result<u8, Failure> {
    let ExecArguments { which, command, interactive, tty, env, workdir, user, timeout } = arguments;
    let mut words = command.into_iter().map(|word| utf8(word, "an argument of the command"));
    let cmd = words.next().transpose()?.unwrap_or_default();
    if cmd.is_empty() {
        return Err(Failure::usage("the program to run has no name"));
    }
    if timeout == Some(Duration::ZERO) {
        return Err(Failure::usage("timeout of 0 ms is too little: the least is 1 ms"));
    }
    let mut start = StartOptions {
        cmd,
        args: words.collect::<Result<_, _>>()?,
        env: environment(env)?,
        cwd: workdir,
        user,
        timeout,
        ..StartOptions::default()
    };
    let size = tty.then(shell::terminal_size);
    if size == Some(None) {
        return Err(Failure::usage("--tty needs a terminal, and standard input is none")
            .hint("`soma exec -i` passes a file or a pipe on"));
    }
    let size = size.flatten();
    if let Some(size) = size {
        shell::on_a_terminal(&mut start, size);
    }
    let input = if interactive && size.is_none() { Input::standard() } else { Input::none() };
    start.stdin = input.is_open();
    let mut plan = Plan {
        spec: SandboxSpec::default(),
        network: None,
        start,
        language: None,
        is_fresh: false,
    };
    daemon::ask(home, async |client| {
        let (existing, sandbox) = Existing::find(client, &which).await?;
        plan.be_in(&sandbox);
        let attend = async |live: Live<'_>| match size {
            Some(size) => shell::attend(live, size).await,
            None => Ok(follow(live, input).await),
        };
        session::run(existing, plan, attend).await
    })
}
