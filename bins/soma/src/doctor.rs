//! `soma doctor`: what this host can and cannot do for sandboxes, and how to change it.
//!
//! The checks are in the crate `doctor`; here they are shown ([`show`]) and, when asked for,
//! those cures are run that take nothing away ([`cure`]).

mod cure;
mod show;

use std::path::Path;

use ::doctor::{Host, Report, be_dumped, examine};
use clap::Args;

use crate::failure::Failure;
use crate::output;

/// What is typed after `soma doctor`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is typed or not")]
#[command(after_help = "\
What can be tried is tried: namespaces and mounts are made in processes that leave nothing
behind, and a small program is hibernated and woken. Nothing on this host is changed but with
--fix, and then only by commands that are shown first.

Marks: ok = works, part = works in part, no = missing, ? = could not be found out.

Exit codes: 0 when sandboxes can run here, 1 when not, 2 when this line makes no sense.")]
pub(crate) struct DoctorArguments {
    /// Write one JSON document instead of lines; its shape is in docs/doctor.md.
    #[arg(long, conflicts_with = "fix")]
    json: bool,
    /// Show the commands that would help, ask, run the safe ones, and look again.
    #[arg(long)]
    fix: bool,
    /// With --fix: do not ask.
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Be the process that CRIU is tried on: how the check starts this program.
    #[arg(long, hide = true, exclusive = true)]
    be_dumped: bool,
}

/// Looks, shows what was found, and perhaps cures some of it.
pub(crate) fn run(home: &Path, arguments: &DoctorArguments) -> Result<u8, Failure> {
    if arguments.be_dumped {
        return be_dumped().map(|()| 0).map_err(|error| Failure::own(&error));
    }
    let report = look(home);
    if arguments.json {
        let mut document =
            serde_json::to_string_pretty(&report).map_err(|error| Failure::own(&error))?;
        document.push('\n');
        output::words(&document)?;
        return Ok(code(&report));
    }
    output::words(&show::report(&report))?;
    if !arguments.fix {
        return Ok(code(&report));
    }
    if !cure::run(&report, arguments.yes)? {
        return Ok(code(&report));
    }
    let after = look(home);
    output::words(&show::changes(&report, &after))?;
    Ok(code(&after))
}

fn look(home: &Path) -> Report {
    examine(&Host::here(home))
}

fn code(report: &Report) -> u8 {
    u8::from(!report.verdict.runs)
}
