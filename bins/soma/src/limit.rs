//! `soma limit`: what a sandbox may use from now on.

use std::path::Path;

use api_v1::sandboxes::Limits;
use clap::Args;
use domain::{Bytes, MilliCpus};

use crate::failure::{Failure, refused};
use crate::{daemon, output};

/// What is typed after `soma limit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma limit my-box --memory 4g
  soma limit x7k2 --cpus 0.5 --pids 100

What is not named stays. Memory that is in use is not taken away: then nothing changes, and how
much is used is said. A disk, inodes and open files are set when a sandbox is made.

Exit codes: 0 when it is set; 1 when it was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct LimitArguments {
    /// The sandbox: its id, its name, or the beginning of either.
    #[arg(value_name = "SANDBOX")]
    which: String,
    /// Memory of everything in the sandbox, such as 512m or 2g.
    #[arg(long, short, value_name = "AMOUNT")]
    memory: Option<Bytes>,
    /// Processors, such as 2 or 0.5.
    #[arg(long, short, value_name = "NUMBER")]
    cpus: Option<MilliCpus>,
    /// Processes and threads at one time.
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u32>,
    /// Write all about the sandbox as JSON.
    #[arg(long)]
    json: bool,
}

/// Sets them.
pub(crate) fn run(home: &Path, arguments: &LimitArguments) -> Result<u8, Failure> {
    let limits = Limits {
        memory: arguments.memory.map(|memory| memory.0.div_ceil(1 << 20)),
        vcpu: arguments.cpus.map(|cpus| f64::from(cpus.0) / 1000.0),
        pids: arguments.pids,
        ..Limits::default()
    };
    if limits.memory.is_none() && limits.vcpu.is_none() && limits.pids.is_none() {
        let message = "nothing is to be changed: name a limit with --memory, --cpus or --pids";
        return Err(Failure::usage(message));
    }
    let sandbox = daemon::ask(home, async |client| {
        client.set_limits(&arguments.which, &limits).await.map_err(refused)
    })?;
    if arguments.json { output::json(&sandbox) } else { Ok(0) }
}
