//! `soma notebook`: notebooks executed in a sandbox, with the outputs written back.
//!
//! The story of `soma notebook run`, one file per part:
//!
//! 1. [`file`]: the file is read, and written as a whole or not at all;
//! 2. [`document`]: what is in it; all that is not output stays as it is, to the letter
//!    ([`json`]);
//! 3. [`execute`]: its cells run in one context, one after the other;
//! 4. [`outputs`]: what happens becomes outputs as nbformat 4 has them.

mod document;
mod execute;
mod file;
mod json;
mod outputs;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use guest_proto::code::Language;

use crate::cells::{CellOptions, Workplace};
use crate::daemon;
use crate::failure::Failure;
use crate::session::Interrupts;
use document::Document;
use file::Destination;

/// What is typed after `soma notebook`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma notebook run report.ipynb
  soma notebook run report.ipynb --output done.ipynb --timeout 2m

Exit codes: 0; 1 when a cell failed; 2 when this line or the file makes no sense; 125 when Soma
failed.")]
pub(crate) struct NotebookArguments {
    #[command(subcommand)]
    command: NotebookCommand,
}

#[derive(Debug, Subcommand)]
enum NotebookCommand {
    /// Execute the cells of a notebook and write the outputs back.
    Run(RunArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma notebook run report.ipynb
  soma notebook run report.ipynb --output done.ipynb --timeout 2m
  soma notebook run report.ipynb --in my-box --allow-errors
  soma notebook run report.ipynb --output - | jupyter nbconvert --stdin --to html

The code cells run in order in one context. What is not output stays as it is, to the letter. At
the first error it stops, and what there is until then is written; `--allow-errors` goes on, and so
does a cell with the tag `raises-exception`. A cell with the tag `skip-execution` is left as it is.

Exit codes: 0; 1 when a cell failed; 128+n when signal n ended this; 2 when this line or the file
makes no sense; 125 when Soma failed.")]
struct RunArguments {
    /// The notebook, a file of nbformat 4.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to write it, or `-` for standard output [default: the same file].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A sandbox that is there, by its id, its name or the beginning of either; it stays
    /// [default: a fresh one that is gone afterwards].
    #[arg(long = "in", value_name = "SANDBOX")]
    which: Option<String>,
    /// How long each cell may take, such as 30s or 5m [default: as long as it likes].
    #[arg(long, short, value_name = "TIME", value_parser = domain::parse_duration)]
    timeout: Option<Duration>,
    /// Go on after a cell that failed, and exit with 0.
    #[arg(long)]
    allow_errors: bool,
    /// The language: python, node, typescript, r or bash [default: what the notebook says].
    #[arg(long, short, value_name = "LANGUAGE")]
    kernel: Option<Language>,
    #[command(flatten)]
    options: CellOptions,
}

/// Does one of them.
pub(crate) fn run(home: &Path, arguments: NotebookArguments) -> Result<u8, Failure> {
    match arguments.command {
        NotebookCommand::Run(arguments) => execute(home, arguments),
    }
}

fn execute(home: &Path, arguments: RunArguments) -> Result<u8, Failure> {
    if arguments.timeout == Some(Duration::ZERO) {
        return Err(Failure::usage("timeout of 0 ms is too little: the least is 1 ms"));
    }
    let wish = arguments.options.wish(arguments.which, None)?;
    let (text, destination) = file::read(&arguments.file)?;
    let mut document = Document::parse(&text, &arguments.file)?;
    drop(text);
    let language = match arguments.kernel {
        Some(language) => language,
        None => document.language()?,
    };
    let destination = match arguments.output {
        Some(path) => Destination::at(path),
        None => destination,
    };
    let rules = execute::Rules { timeout: arguments.timeout, allow_errors: arguments.allow_errors };
    // Whoever called owns the files here, so this stays whoever called.
    let client = daemon::privileged_client(home)?;
    daemon::block_on(async {
        let mut interrupts = Interrupts::listen().map_err(|error| Failure::own(&error))?;
        let workplace = tokio::select! {
            biased;
            interrupt = interrupts.next() => return Ok(interrupt.code()),
            opened = Workplace::open(client, wish, Some(language)) => opened?,
        };
        let over = execute::all(&workplace, &mut document, &rules, &mut interrupts).await;
        // The outputs until then are written, whatever happened.
        let written = document.text().and_then(|text| destination.write(&text));
        let left = tokio::select! {
            left = workplace.leave() => left,
            _ = interrupts.next() => Ok(()),
        };
        let code = over?;
        written?;
        left.map(|()| code)
    })
}
