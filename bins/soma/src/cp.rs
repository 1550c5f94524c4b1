//! `soma cp`: files and folders into a sandbox and out of it.
//!
//! The story, one file per part:
//!
//! 1. [`place`]: which of the two names is in a sandbox;
//! 2. [`into`]: from here into a sandbox, read from descriptors of the caller's folders;
//! 3. [`out`]: from a sandbox to here, written below a descriptor of the destination
//!    ([`folder`]), so that no name and no link from inside leads anywhere else;
//! 4. [`inside`]: what the sandbox's guest is asked for; an older one knows no links, which small
//!    programs inside read and make then.
//!
//! Bodies pass in pieces: nothing is held but a few of them, however large a file is.

mod folder;
mod inside;
mod into;
mod out;
mod place;

use std::path::Path;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};

use crate::daemon;
use crate::failure::{FAILED, Failure};
use crate::output::progress::Progress;
use crate::session::{Existing, Ground as _};
use inside::Inside;
use place::Place;

/// What is typed after `soma cp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma cp report.pdf my-box:/workspace/
  soma cp my-box:/workspace/results .
  soma cp src my-box:
  soma cp my-box:/etc/os-release - | grep NAME
  tar c src | soma cp - my-box:src.tar

A place in a sandbox is SANDBOX:PATH, where a path that does not begin with / is below the user's
home. Folders are copied with all in them. A destination that is a folder gets a file or folder of
the same name in it; FOLDER/. is what is in a folder. Modes stay; a link in a folder stays a link
and is never followed. A file here that has a colon in its name is written as ./a:b.

Exit codes: 0; 1 when something could not be copied; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct CpArguments {
    /// What to copy: a path here, SANDBOX:PATH, or `-` for standard input.
    #[arg(value_name = "FROM", value_parser = OsStringValueParser::new().try_map(Place::parse))]
    source: Place,
    /// Where to: a path here, SANDBOX:PATH, or `-` for standard output.
    #[arg(value_name = "TO", value_parser = OsStringValueParser::new().try_map(Place::parse))]
    destination: Place,
    /// As whom to read and write inside: user or root [default: user].
    #[arg(long, short, value_name = "NAME")]
    user: Option<String>,
}

/// Copies.
pub(crate) fn run(home: &Path, arguments: &CpArguments) -> Result<u8, Failure> {
    let (which, in_sandbox) = match (&arguments.source, &arguments.destination) {
        (Place::Sandbox { .. }, Place::Sandbox { .. }) => {
            return Err(Failure::usage("both places are in a sandbox, and one has to be here")
                .hint("copy to a file here first"));
        }
        (Place::Sandbox { which, path }, _) | (_, Place::Sandbox { which, path }) => (which, path),
        _ => {
            return Err(Failure::usage("neither place is in a sandbox")
                .hint("write one of them as SANDBOX:PATH"));
        }
    };
    // Whoever called owns the files here, so this stays whoever called.
    let client = daemon::privileged_client(home)?;
    daemon::block_on(async {
        let found = Existing::find(client, which).await;
        let (existing, _) = found.map_err(Failure::into_refusal)?;
        let guest = existing.enter(&domain::SandboxSpec::default()).await?.guest;
        let inside = Inside::new(guest, arguments.user.clone());
        let progress = Progress::begin();
        let copied = match (&arguments.source, &arguments.destination) {
            (Place::Stream, _) => into::stream(&inside, in_sandbox, &progress).await,
            (Place::Here(source), _) => into::copy(&inside, source, in_sandbox, &progress).await,
            (_, Place::Stream) => out::stream(&inside, in_sandbox, &progress).await,
            (_, Place::Here(path)) => out::copy(&inside, in_sandbox, path, &progress).await,
            // Refused above.
            (Place::Sandbox { .. }, Place::Sandbox { .. }) => Ok(()),
        };
        progress.end();
        copied.map(|()| 0)
    })
}

/// Whether what is in a folder is meant, and not the folder.
fn is_contents(source: &[u8]) -> bool {
    source == b"." || source.ends_with(b"/.")
}

/// That something here cannot be used.
fn here(path: &Path, what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(FAILED, format!("`{}` cannot be {what}: {error}", path.display()))
}

/// Fails when some of a tree could not be copied. Which were, was said.
fn all_or_said(left_out: u64) -> Result<(), Failure> {
    match left_out {
        0 => Ok(()),
        count => Err(Failure::new(FAILED, format!("{count} of the files could not be copied"))),
    }
}
