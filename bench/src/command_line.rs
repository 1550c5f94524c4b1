//! What `soma run` takes as a whole, the way a person uses it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use sys_linux::command::command;

use crate::contest::{Bound, Contest, Settings};
use crate::home::BenchHome;
use crate::{bubblewrap, output, time};

const GIGABYTE: u64 = 1_000_000_000;

/// `soma run -- true` beside bubblewrap, both from the start of the program to its exit.
pub(crate) fn whole_run(settings: &Settings) -> anyhow::Result<()> {
    let home = BenchHome::new()?;
    let mut contest = Contest::new("`true` in a sandbox, as a whole command");
    let bwrap = contest.row("bwrap --unshare-all", &[], || time(&mut bubblewrap()));
    let name = "soma run -- true";
    match works(settings, &home) {
        Ok(()) => contest.row(name, &[Bound { peer: bwrap, most: 4.0 }], || {
            time(home.soma(settings).args(["run", "--", "true"]))
        }),
        Err(error) => contest.absent(name, format!("{error:#}")),
    };
    contest.run(settings);
    Ok(())
}

/// A program that does nothing is fast; so it has to show that it does something.
fn works(settings: &Settings, home: &BenchHome) -> anyhow::Result<()> {
    let done = home.soma(settings).args(["run", "--", "echo", "it works"]).output()?;
    let words = String::from_utf8_lossy(&done.stderr);
    ensure!(done.stdout == b"it works\n", "soma does not run a command here: {}", words.trim());
    Ok(())
}

/// A gigabyte from a sandbox through a pipe: how fast, and whether memory stays flat.
pub(crate) fn a_gigabyte(settings: &Settings) -> anyhow::Result<()> {
    let home = BenchHome::new()?;
    output::line("\n1 GB of output, read from a pipe");
    let writer = ["head", "-c", &GIGABYTE.to_string(), "/dev/zero"];
    let mut bwrap = command("bwrap");
    bwrap.args(["--unshare-all", "--dev-bind", "/", "/"]).args(writer);
    let mut soma = home.soma(settings);
    soma.args(["run", "--"]).args(writer);
    for (name, command, wanted) in
        [("bwrap --unshare-all", &mut bwrap, None), ("soma run", &mut soma, Some(200))]
    {
        match flow(command) {
            Ok(flow) => flow.print(name, wanted),
            Err(error) => output::line(&format!("  {name:<44} not measured: {error:#}")),
        }
    }
    Ok(())
}

struct Flow {
    took: Duration,
    /// Resident kilobytes of each of our programs after a tenth of the bytes, and the peak.
    memory: BTreeMap<String, (u64, u64)>,
}

impl Flow {
    fn print(&self, name: &str, wanted: Option<u64>) {
        let rate = u128::from(GIGABYTE) / self.took.as_micros().max(1);
        let verdict = match wanted {
            None => String::new(),
            Some(wanted) if rate >= u128::from(wanted) => format!("wanted {wanted} MB/s: kept"),
            Some(wanted) => format!("wanted {wanted} MB/s: MISSED"),
        };
        output::line(format!("  {name:<44} {rate:>6} MB/s   {verdict}").trim_end());
        for (program, (early, peak)) in &self.memory {
            output::line(&format!(
                "    memory of {program:<32} {early:>6} KiB after 100 MB, {peak} KiB at its peak"
            ));
        }
    }
}

fn flow(command: &mut Command) -> anyhow::Result<Flow> {
    let begin = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut bytes = 0_u64;
    let mut memory = BTreeMap::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut piece = vec![0; 1 << 20];
        loop {
            let length = pipe.read(&mut piece)? as u64;
            if length == 0 {
                break;
            }
            // Looked at ten times on the way: often enough to see growth, too seldom to slow it.
            if bytes / (GIGABYTE / 10) != (bytes + length) / (GIGABYTE / 10) {
                note_memory(&mut memory);
            }
            bytes += length;
        }
    }
    let took = begin.elapsed();
    let done = child.wait_with_output()?;
    let words = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "it ended with {}: {}", done.status, words.trim());
    ensure!(bytes == GIGABYTE, "{bytes} bytes came out instead of {GIGABYTE}");
    Ok(Flow { took, memory })
}

/// Notes the resident memory of every process of ours: the command, the engine, the guest.
fn note_memory(memory: &mut BTreeMap<String, (u64, u64)>) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Ok(status) = std::fs::read_to_string(process.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        let (Some(name), Some(id)) = (field("Name:"), field("Pid:")) else { continue };
        let kilobytes = |name| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        if name.starts_with("soma") {
            let seen = memory.entry(format!("{name} ({id})")).or_insert((kilobytes("VmRSS:"), 0));
            seen.1 = kilobytes("VmHWM:");
        }
    }
}
