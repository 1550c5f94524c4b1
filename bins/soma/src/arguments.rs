//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::config::ConfigArguments;
use crate::copies::{ForkArguments, RestoreArguments, RollbackArguments};
use crate::cp::CpArguments;
use crate::doctor::DoctorArguments;
use crate::down::DownArguments;
use crate::engine::EngineArguments;
use crate::events::EventsArguments;
use crate::exec::ExecArguments;
use crate::failure::Failure;
use crate::limit::LimitArguments;
use crate::logs::LogsArguments;
use crate::net::NetArguments;
use crate::new::NewArguments;
use crate::notebook::NotebookArguments;
use crate::pages::{CompletionsArguments, ManArguments};
use crate::pause::PauseArguments;
use crate::ps::PsArguments;
use crate::reconcile::ReconcileArguments;
use crate::repl::ReplArguments;
use crate::resume::ResumeArguments;
use crate::rm::RmArguments;
use crate::run::RunArguments;
use crate::serve::ServeArguments;
use crate::shell::ShellArguments;
use crate::snapshot::SnapshotArguments;
use crate::start::StartArguments;
use crate::stats::StatsArguments;
use crate::stop::StopArguments;
use crate::template::TemplateArguments;
use crate::timeout::TimeoutArguments;

/// Where root's Soma is unless somebody says otherwise.
pub(crate) const HOME_OF_ROOT: &str = "/var/lib/soma";

/// What was typed.
pub(crate) enum Parsed {
    /// Help or a version was asked for.
    Words(String),
    /// Something is to be done.
    Command { home: PathBuf, command: Command },
}

#[derive(Debug, Parser)]
#[command(name = "soma", version, about = "Gives every AI agent a body: an isolated computer.")]
struct Arguments {
    /// Where Soma keeps what is its own [default: /var/lib/soma for root, else ~/.soma].
    #[arg(long, env = "SOMA_HOME", global = true, value_name = "FOLDER", hide_env_values = true)]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run code or a program in a fresh sandbox that is gone afterwards.
    Run(Box<RunArguments>),
    /// Open a shell on this terminal in a fresh sandbox that is gone afterwards, or in one that is
    /// there.
    Shell(Box<ShellArguments>),
    /// Type cells of code that remember, in a fresh sandbox that is gone afterwards, or in one that
    /// is there.
    Repl(Box<ReplArguments>),
    /// Execute notebooks in a sandbox and write the outputs back.
    Notebook(Box<NotebookArguments>),
    /// Make a sandbox that is kept, and write its id.
    New(Box<NewArguments>),
    /// List sandboxes.
    Ps(PsArguments),
    /// Run a command in a sandbox that is there.
    Exec(ExecArguments),
    /// Copy files and folders into a sandbox or out of it.
    Cp(CpArguments),
    /// Remove sandboxes with all that is in them.
    Rm(RmArguments),
    /// End sandboxes and keep their files.
    Stop(StopArguments),
    /// Run sandboxes again that ended.
    Start(StartArguments),
    /// Let sandboxes stand still until somebody needs them.
    Pause(PauseArguments),
    /// Let paused sandboxes go on.
    Resume(ResumeArguments),
    /// Capture sandboxes, list and remove what was captured.
    Snapshot(SnapshotArguments),
    /// Make a sandbox from a snapshot, and write its id.
    Restore(RestoreArguments),
    /// Copy a sandbox with its processes, and write the ids of the copies.
    Fork(ForkArguments),
    /// Make a sandbox what it was in a snapshot.
    Rollback(RollbackArguments),
    /// Show what sandboxes use.
    Stats(StatsArguments),
    /// Show what happened to a sandbox, or what a process in it wrote.
    Logs(LogsArguments),
    /// Show what happened to sandboxes, also to those that are gone.
    Events(EventsArguments),
    /// Show and change what a sandbox may reach, and see what it tried to.
    Net(NetArguments),
    /// Change what a sandbox may use while it runs.
    Limit(LimitArguments),
    /// Set how long a sandbox has from now on.
    Timeout(TimeoutArguments),
    /// Import, list and remove what sandboxes can be made from.
    Template(TemplateArguments),
    /// Say what this host can and cannot do for sandboxes, and how to change it.
    Doctor(DoctorArguments),
    /// Run the daemon that owns the sandboxes of this machine.
    Serve(Box<ServeArguments>),
    /// End the daemon and the engine; sandboxes go on.
    Down(DownArguments),
    /// Compare what the daemon knows with what is there.
    Reconcile(ReconcileArguments),
    /// Show the daemon's settings, and where each comes from.
    Config(ConfigArguments),
    /// Serve sandboxes on this host; `run` starts one by itself.
    Engine(EngineArguments),
    /// Carry what sandboxes send to the network; the engine starts it.
    #[command(hide = true)]
    Egress,
    /// Write what a shell needs to complete these commands.
    Completions(CompletionsArguments),
    /// Write the manual pages.
    Man(ManArguments),
}

/// The one definition of all that can be typed.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// Reads what was typed.
pub(crate) fn parse(typed: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let arguments = match Arguments::try_parse_from(typed) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => return Ok(Parsed::Words(error.to_string())),
        Err(error) => return Err(in_one_line(&error)),
    };
    if matches!(arguments.command, Command::Completions(_) | Command::Man(_)) {
        return Ok(Parsed::Command { home: PathBuf::new(), command: arguments.command });
    }
    let home = match arguments.home {
        // The engine starts in another folder, where the same words mean another place.
        Some(home) => std::path::absolute(&home).map_err(|error| {
            Failure::usage(format!("`{}` is no place for a home: {error}", home.display()))
        })?,
        None => default_home()?,
    };
    Ok(Parsed::Command { home, command: arguments.command })
}

/// Where Soma is for whoever this is, unless they say otherwise.
pub(crate) fn default_home() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(HOME_OF_ROOT));
    }
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(".soma")),
        None => Err(Failure::usage("there is no home folder to keep sandboxes in")
            .hint("say where with SOMA_HOME or --home")),
    }
}

/// Clap explains over several lines; the first has what happened.
fn in_one_line(error: &clap::Error) -> Failure {
    let words = error.to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("no command was given").hint("see `soma --help`");
    }
    let first = words.lines().next().unwrap_or("that cannot be read");
    let message = first.strip_prefix("error: ").unwrap_or(first);
    let failure = Failure::usage(message);
    match error.get(ContextKind::SuggestedArg) {
        Some(similar) => failure.hint(format!("did you mean `{similar}`?")),
        None => failure.hint(format!("see `soma {}--help`", command_in(&words))),
    }
}

/// The command that was meant, with a space, where clap's words say how it is used.
fn command_in(words: &str) -> String {
    let usage = words.lines().find_map(|line| line.strip_prefix("Usage: soma "));
    let name = usage.and_then(|usage| usage.split(' ').next()).unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
    if is_name { format!("{name} ") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(typed: &[&str]) -> String {
        match parse(typed.iter().map(OsString::from)) {
            Err(failure) => {
                assert_eq!(failure.code, 2);
                failure.message
            }
            Ok(_) => panic!("{typed:?} was taken"),
        }
    }

    #[test]
    fn what_cannot_be_read_is_one_line() {
        for typed in [
            &["soma"][..],
            &["soma", "fly"],
            &["soma", "run", "--fly"],
            &["soma", "run", "--memory", "lots", "1"],
            &["soma", "run", "--cpus", "many", "1"],
            &["soma", "run", "--pids", "-3", "1"],
            &["soma", "run", "--lang", "bash", "--", "true"],
            &["soma", "run", "--user"],
        ] {
            let message = refused(typed);
            assert!(!message.is_empty() && !message.contains('\n'), "{typed:?}: {message}");
            assert!(!message.starts_with("error"), "{typed:?}: {message}");
        }
    }

    #[test]
    fn the_help_that_is_pointed_to_is_that_of_the_command() {
        for (typed, hint) in [
            (&["soma", "run", "--fly"][..], "see `soma run --help`"),
            (&["soma", "doctor", "--fly"], "see `soma doctor --help`"),
            (&["soma", "doctor", "--yes"], "see `soma doctor --help`"),
            (&["soma", "fly"], "see `soma --help`"),
        ] {
            let Err(failure) = parse(typed.iter().map(OsString::from)) else { panic!("{typed:?}") };
            assert_eq!(failure.hint.as_deref(), Some(hint), "{typed:?}");
        }
    }

    #[test]
    fn an_unknown_language_is_answered_with_the_known_ones() {
        let message = refused(&["soma", "run", "--lang", "cobol", "1"]);
        assert!(message.contains("bash, python, node and r"), "{message}");
    }

    #[test]
    fn help_is_no_failure() {
        let parsed = parse(["soma", "run", "--help"].map(OsString::from));
        assert!(matches!(parsed, Ok(Parsed::Words(words)) if words.contains("--timeout")));
    }
}
