//! `soma`: gives every AI agent a body.
//!
//! `main` turns the outcome of a command into an exit code, and nothing else here does. Each
//! command has a file of its own; only `output.rs` writes to the terminal.

mod arguments;
mod doctor;
mod engine;
mod failure;
mod native;
mod output;
mod run;
mod session;
mod shell;

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
            Command::Doctor(arguments) => doctor::run(&home, &arguments),
            Command::Engine(arguments) => engine::run(&home, &arguments),
        },
    }
}
