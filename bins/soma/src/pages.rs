//! `soma completions` and `soma man`: what shells and `man` know of these commands, made from the
//! one definition of them.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::arguments::definition;
use crate::failure::{Failure, SOMA_FAILED};
use crate::output;

/// What is typed after `soma completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma completions bash > /etc/bash_completion.d/soma
  soma completions zsh > ~/.zfunc/_soma
  soma completions fish > ~/.config/fish/completions/soma.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// What is typed after `soma man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma man | man -l -
  soma man /usr/local/share/man/man1")]
pub(crate) struct ManArguments {
    /// A folder to write all pages to [default: soma(1) to standard output].
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Writes the completions of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "soma", &mut text);
    output::words(&String::from_utf8_lossy(&text))
}

/// Writes soma(1), or all pages.
pub(crate) fn man(arguments: &ManArguments) -> Result<u8, Failure> {
    let Some(folder) = &arguments.folder else {
        return output::words(&page(definition())?);
    };
    let mut whole = definition();
    // Pages of commands repeat what all commands have.
    whole.build();
    write(folder, "soma", &page(definition())?)?;
    for command in whole.get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() == "help" {
            continue;
        }
        let name = format!("soma-{}", command.get_name());
        // A page has to be called like its file.
        let command = command.clone().name(Box::leak(name.clone().into_boxed_str()) as &str);
        write(folder, &name, &page(command)?)?;
    }
    Ok(0)
}

fn page(command: clap::Command) -> Result<String, Failure> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text).map_err(|error| Failure::own(&error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, text).map_err(|error| {
        Failure::new(SOMA_FAILED, format!("`{}` cannot be written: {error}", path.display()))
    })
}
