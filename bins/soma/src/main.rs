//! `soma`: gives every AI agent a body.
//!
//! `main` turns the outcome of a command into an exit code, and nothing else here does. Each
//! command has a file of its own; only `output.rs` writes to the terminal.

mod arguments;
mod cells;
mod config;
mod copies;
mod cp;
mod daemon;
mod doctor;
mod down;
mod egress;
mod engine;
mod events;
mod exec;
mod failure;
mod limit;
mod logs;
mod moment;
mod net;
mod new;
mod notebook;
mod output;
mod pages;
mod pause;
mod ps;
mod reconcile;
mod repl;
mod resume;
mod rm;
mod run;
mod serve;
mod session;
mod several;
mod shell;
mod snapshot;
mod start;
mod stats;
mod stop;
mod template;
mod timeout;

use std::process::ExitCode;

use arguments::{Command, Parsed};
use failure::Failure;

fn main() -> ExitCode {
    match dispatch() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::failure(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// Does what was typed and returns the exit code.
fn dispatch() -> Result<u8, Failure> {
    match arguments::parse(std::env::args_os())? {
        Parsed::Words(words) => output::words(&words),
        Parsed::Command { home, command } => match command {
            Command::Run(arguments) => run::run(&home, *arguments),
            Command::Shell(arguments) => shell::run(&home, *arguments),
            Command::Repl(arguments) => repl::run(&home, *arguments),
            Command::Notebook(arguments) => notebook::run(&home, *arguments),
            Command::New(arguments) => new::run(&home, *arguments),
            Command::Ps(arguments) => ps::run(&home, arguments),
            Command::Exec(arguments) => exec::run(&home, arguments),
            Command::Cp(arguments) => cp::run(&home, &arguments),
            Command::Rm(arguments) => rm::run(&home, &arguments),
            Command::Start(arguments) => start::run(&home, &arguments),
            Command::Stop(arguments) => stop::run(&home, &arguments),
            Command::Pause(arguments) => pause::run(&home, &arguments),
            Command::Resume(arguments) => resume::run(&home, &arguments),
            Command::Snapshot(arguments) => snapshot::run(&home, &arguments),
            Command::Restore(arguments) => copies::restore(&home, &arguments),
            Command::Fork(arguments) => copies::fork(&home, &arguments),
            Command::Rollback(arguments) => copies::roll_back(&home, &arguments),
            Command::Down(arguments) => down::run(&home, &arguments),
            Command::Reconcile(arguments) => reconcile::run(&home, &arguments),
            Command::Stats(arguments) => stats::run(&home, &arguments),
            Command::Logs(arguments) => logs::run(&home, &arguments),
            Command::Events(arguments) => events::run(&home, &arguments),
            Command::Net(arguments) => net::run(&home, &arguments),
            Command::Limit(arguments) => limit::run(&home, &arguments),
            Command::Template(arguments) => template::run(&home, arguments),
            Command::Timeout(arguments) => timeout::run(&home, &arguments),
            Command::Completions(arguments) => pages::completions(&arguments),
            Command::Man(arguments) => pages::man(&arguments),
            Command::Doctor(arguments) => doctor::run(&home, &arguments),
            Command::Serve(arguments) => serve::run(&home, &arguments),
            Command::Config(arguments) => config::run(&home, &arguments),
            Command::Engine(arguments) => engine::run(&home, &arguments),
            Command::Egress => egress::run(&home),
        },
    }
}
