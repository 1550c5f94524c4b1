//! Measures Soma beside its peers and prints tables; `make bench` runs it.
//!
//! ```text
//! bench SOMA [--rounds N] [--only TABLE,TABLE]      SOMA is the built program
//! ```
//!
//! Contenders of one table take turns within one run, with a pause between calls, so that what
//! else the machine does hits them all alike ([`contest`]). A bound that is missed is marked, not
//! punished: this is a benchmark, and no test depends on it. A row that cannot be measured here
//! says why and what to do.
//!
//! Start at [`run`]; each table is a function of its own module.

mod budget;
mod code;
mod command_line;
mod contest;
mod crowd;
mod daemon;
mod docker;
mod engine;
mod files;
mod home;
mod lasting;
mod network;
mod output;
mod pause;
mod processes;
mod samples;
mod terminal;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use sys_linux::command::command;

use crate::contest::Settings;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let settings = settings()?;
    ensure!(
        PathBuf::from("/usr/bin/bwrap").exists(),
        "bwrap is missing: `make bench` installs it, or the package bubblewrap"
    );
    output::line(&machine(&settings));
    for (name, table) in TABLES {
        if settings.tables.is_empty() || settings.tables.iter().any(|wanted| wanted == name) {
            table(&settings)?;
        }
    }
    Ok(())
}

type Table = fn(&Settings) -> anyhow::Result<()>;

/// Each by the name that `--only` takes.
const TABLES: [(&str, Table); 13] = [
    ("create", |settings| {
        engine::sandbox_and_true(settings);
        Ok(())
    }),
    ("run", command_line::whole_run),
    ("exec", |settings| {
        engine::exec(settings);
        Ok(())
    }),
    ("daemon", |settings| {
        daemon::print(settings);
        Ok(())
    }),
    ("terminal", |settings| {
        terminal::key_to_echo(settings);
        Ok(())
    }),
    ("output", command_line::a_gigabyte),
    ("files", |settings| {
        files::print(settings);
        Ok(())
    }),
    ("crowd", crowd::print),
    ("lasting", lasting::print),
    ("code", |settings| {
        code::print(settings);
        Ok(())
    }),
    ("pause", |settings| {
        pause::print(settings);
        Ok(())
    }),
    ("network", network::print),
    ("budget", |settings| {
        budget::print(settings);
        Ok(())
    }),
];

fn settings() -> anyhow::Result<Settings> {
    let mut words = std::env::args_os().skip(1);
    let soma = words.next().context("name the built program: bench SOMA [--rounds N]")?;
    let mut rounds = 100;
    let mut tables = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--rounds") => {
                let number = words.next().context("--rounds needs a number")?;
                rounds = number
                    .to_str()
                    .and_then(|text| text.parse().ok())
                    .with_context(|| format!("`{}` is no number of rounds", number.display()))?;
            }
            Some("--only") => {
                let names = words.next().context("--only needs names of tables")?;
                tables.extend(names.to_string_lossy().split(',').map(str::to_owned));
                let known = TABLES.map(|(name, _)| name);
                if let Some(unknown) = tables.iter().find(|name| !known.contains(&name.as_str())) {
                    bail!("there is no table `{unknown}`, only {}", known.join(", "));
                }
            }
            _ => bail!("`{}` is not known: bench SOMA [--rounds N] [--only TABLE]", word.display()),
        }
    }
    ensure!(rounds > 0, "at least one round is needed");
    let soma = std::path::absolute(soma)?;
    ensure!(soma.is_file(), "there is no program `{}`", soma.display());
    Ok(Settings { soma, rounds, tables, pause: Duration::from_millis(100) })
}

fn machine(settings: &Settings) -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "Linux {}, {} processors, load {}; {} rounds, {} ms between calls",
        release.trim(),
        std::thread::available_parallelism().map_or(1, usize::from),
        load.split(' ').next().unwrap_or("unknown"),
        settings.rounds,
        settings.pause.as_millis(),
    )
}

/// The peer of most tables, with `true` in it.
fn bubblewrap() -> Command {
    let mut bwrap = command("bwrap");
    bwrap.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
    bwrap
}

/// How long a program takes from start to exit. One that fails has no time.
fn time(command: &mut Command) -> anyhow::Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begin = Instant::now();
    let done = command.spawn().and_then(std::process::Child::wait_with_output);
    let took = begin.elapsed();
    let done =
        done.with_context(|| format!("could not start {}", command.get_program().display()))?;
    ensure!(
        done.status.success(),
        "{} ended with {}: {}",
        command.get_program().display(),
        done.status,
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(took)
}
