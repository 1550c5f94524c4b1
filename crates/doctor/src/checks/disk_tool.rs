//! The program that formats the disk of a sandbox.

use std::fs::File;
use std::time::Duration;

use crate::attempt::{Refusal, Step};
use crate::finding::{Finding, Fix};
use crate::host::{Host, find_in_system};
use crate::program;
use crate::scratch::Scratch;

const NAME: &str = "disk-tool";
const PROGRAM: &str = "mkfs.ext4";

/// Formatting the small disk was seen to take 10 ms.
const LIMIT: Duration = Duration::from_secs(5);

/// The smallest disk that has room for a journal.
const SIZE: u64 = 8 << 20;

pub(crate) fn check(host: &Host) -> Finding {
    let finding = match find_in_system(PROGRAM) {
        None => {
            Finding::missing(NAME, format!("there is no {PROGRAM}")).fix(Fix::package("e2fsprogs"))
        }
        Some(path) => match format_one(host) {
            Ok(()) => Finding::works(NAME, format!("`{}` formatted a small disk", path.display())),
            Err(refusal) => Finding::missing(NAME, refusal.to_string()),
        },
    };
    let without = if host.is_root() {
        "cannot make root's sandboxes: each has a disk of its own"
    } else {
        "nothing is less: an ordinary user's sandboxes have no disk of their own"
    };
    finding.required(host.is_root()).without(without)
}

fn format_one(host: &Host) -> Result<(), Refusal> {
    let scratch = Scratch::make(host)?;
    let disk = scratch.path().join("disk");
    let file = File::create_new(&disk).step("make a file for a disk")?;
    file.set_len(SIZE).step("make a file for a disk")?;
    let mut command = sys_linux::command::command(PROGRAM);
    command.args(["-q", "-F", "-b", "4096"]).arg(&disk);
    program::run(&mut command, LIMIT)
        .output()
        .map(drop)
        .map_err(|words| Refusal::new(format!("format a disk with {PROGRAM}"), words))
}
