//! `soma net`: what sandboxes may reach, and what they tried to reach.
//!
//! A change asks for the policy, changes that, and sends it back: values that are set in requests
//! never come here, and stay as they are. One file for each of the commands.

mod allow;
mod deny;
pub(crate) mod item;
mod learn;
mod log;
mod show;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// What is typed after `soma net`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma net show my-box
  soma net allow my-box example.com '*.pypi.org' 203.0.113.0/24 443
  soma net deny my-box ads.example.com
  soma net log my-box --follow
  soma net learn my-box

Exit codes: 0; 1 when something was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct NetArguments {
    #[command(subcommand)]
    command: NetCommand,
}

#[derive(Debug, Subcommand)]
enum NetCommand {
    /// Show what a sandbox may reach.
    Show(show::ShowArguments),
    /// Let a sandbox reach more, also while it runs.
    Allow(allow::AllowArguments),
    /// Let a sandbox reach less, also while it runs.
    Deny(deny::DenyArguments),
    /// Show what a sandbox tried to reach, and which rule decided.
    Log(log::LogArguments),
    /// Show the policy that a sandbox would need for what it reached.
    Learn(learn::LearnArguments),
}

/// Does one of them.
pub(crate) fn run(home: &Path, arguments: &NetArguments) -> Result<u8, Failure> {
    match &arguments.command {
        NetCommand::Show(arguments) => show::run(home, arguments),
        NetCommand::Allow(arguments) => allow::run(home, arguments),
        NetCommand::Deny(arguments) => deny::run(home, arguments),
        NetCommand::Log(arguments) => log::run(home, arguments),
        NetCommand::Learn(arguments) => learn::run(home, arguments),
    }
}
