//! Runs the commands that help and take nothing away, after showing all and asking.

use std::io::IsTerminal;
use std::process::Stdio;

use doctor::{Fix, Report};

use crate::failure::{Failure, SOMA_FAILED};
use crate::output;

/// Shows what would help and runs what is safe; false when nothing was run.
pub(super) fn run(report: &Report, agreed: bool) -> Result<bool, Failure> {
    let (safe, others) = cures(report);
    if safe.is_empty() && others.is_empty() {
        output::talk("\nno command would help here\n");
        return Ok(false);
    }
    if !others.is_empty() {
        output::talk("\nfor you to decide, and never run by Soma:\n");
        list(&others);
    }
    if safe.is_empty() {
        output::talk("\nnothing among it is safe to run without you\n");
        return Ok(false);
    }
    output::talk("\nsafe to run:\n");
    list(&safe);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && safe.iter().any(|fix| fix.needs_root) {
        return Err(Failure::new(SOMA_FAILED, "these commands need root, and nothing was run")
            .hint("run them yourself, or `sudo soma doctor --fix`"));
    }
    if !agreed && !ask()? {
        output::talk("nothing was run\n");
        return Ok(false);
    }
    for fix in safe {
        start(fix);
    }
    Ok(true)
}

/// The commands, none twice: those that may be run, and those for a person.
fn cures(report: &Report) -> (Vec<&Fix>, Vec<&Fix>) {
    let mut cures: Vec<&Fix> = Vec::new();
    for fix in report.findings.iter().filter_map(|finding| finding.fix.as_ref()) {
        if !cures.contains(&fix) {
            cures.push(fix);
        }
    }
    cures.into_iter().partition(|fix| fix.safe)
}

fn list(fixes: &[&Fix]) {
    for fix in fixes {
        output::talk(&format!("  {}\n", output::one_line(&fix.command)));
    }
}

fn ask() -> Result<bool, Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(Failure::usage("there is no terminal to ask on, and nothing was run")
            .hint("say `--fix --yes` to run these commands without a question"));
    }
    output::talk("run these now? [y/N] ");
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(|error| Failure::own(&error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn start(fix: &Fix) {
    let Some([program, arguments @ ..]) = fix.words() else { return };
    output::talk(&format!("running: {}\n", output::one_line(&fix.command)));
    let mut command = sys_linux::command::command(program);
    // What it says goes where our own talk goes.
    command.args(arguments).stdin(Stdio::null()).stdout(std::io::stderr());
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => output::talk(&format!("  it failed: {status}\n")),
        Err(error) => output::talk(&format!("  `{program}` cannot be started: {error}\n")),
    }
}
