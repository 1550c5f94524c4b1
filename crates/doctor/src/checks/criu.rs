//! CRIU, which writes running processes to disk and brings them back.
//!
//! `criu check` is not enough: versions that cannot dump any socket pass it. So a small tree of
//! processes (`criu_subject`) is dumped and restored, in namespaces of its own: when the first
//! process in there ends, nothing of it is left, whatever went wrong.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::process::{WaitOptions, wait};
use sys_linux::namespace::Namespaces;

use super::criu_subject::Subject;
use crate::attempt::{Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::program::{self, Ran, is_program};
use crate::scratch::Scratch;

const NAME: &str = "criu";

/// Older ones cannot dump any socket on kernels from 6.16 on.
const OLDEST: (u32, u32) = (4, 2);

/// One call of CRIU was seen to take at most 0.7 s.
const ONE_CALL: Duration = Duration::from_secs(10);
/// All of them and the small tree.
const ALL: Duration = Duration::from_secs(40);

pub(crate) fn check(host: &Host) -> Finding {
    let finding = match (&host.criu, host.find("criu")) {
        (Some(named), _) if is_program(named) => judge(host, named),
        (Some(named), _) => {
            let says = format!("SOMA_CRIU names `{}`, which is no program", named.display());
            Finding::missing(NAME, says)
        }
        (None, Some(found)) => judge(host, &found),
        (None, None) => {
            Finding::missing(NAME, "there is no `criu` in PATH, and SOMA_CRIU names none")
                .fix(install())
        }
    };
    finding
        .without("pauses sandboxes in memory, and cannot hibernate, snapshot or fork running ones")
}

fn install() -> Fix {
    let (major, minor) = OLDEST;
    Fix::shown(format!(
        "apt-get install -y criu  # {major}.{minor} or newer, or name one with SOMA_CRIU"
    ))
}

fn judge(host: &Host, criu: &Path) -> Finding {
    let mut ask = sys_linux::command::command(criu);
    let words = match program::run(ask.arg("--version"), ONE_CALL).output() {
        Ok(words) => words,
        Err(why) => {
            return Finding::missing(NAME, format!("`{}` does not work: {why}", criu.display()));
        }
    };
    let Some((shown, version)) = version(&words) else {
        return Finding::missing(NAME, format!("`{}` does not say its version", criu.display()));
    };
    if version < OLDEST {
        let (major, minor) = OLDEST;
        let says = format!("CRIU {shown} is older than {major}.{minor}, which newer kernels need");
        return Finding::missing(NAME, says).fix(install());
    }
    if !host.is_root() {
        let mut check = sys_linux::command::command(criu);
        let why = match program::run(check.arg("check"), ONE_CALL) {
            // It says the reason first, and what to do about it after.
            Ran::Ended { success: false, stdout, stderr } => {
                let words = format!("{stderr}\n{stdout}");
                words
                    .lines()
                    .find(|line| !line.trim().is_empty())
                    .map(|line| plain(line).to_owned())
            }
            other => other.output().err(),
        };
        let why = why.map(|why| format!(": {}", why.trim_end_matches(':'))).unwrap_or_default();
        let says = format!("CRIU {shown} is there, but needs root to bring processes back{why}");
        return Finding::missing(NAME, says);
    }
    match Scratch::make(host).and_then(|scratch| cycle(host, criu, scratch.path())) {
        Ok(()) => Finding::works(
            NAME,
            format!("CRIU {shown} dumped and restored two processes with sockets and a pipe"),
        ),
        Err(refusal) => Finding::missing(NAME, format!("CRIU {shown} {refusal}")),
    }
}

/// Dumps and restores a small tree, and asks it for what it had in memory.
fn cycle(host: &Host, criu: &Path, scratch: &Path) -> Result<(), Refusal> {
    let namespaces = Namespaces::PROCESS.and(Namespaces::MOUNT).and(Namespaces::NETWORK);
    attempt(ALL, || {
        within(namespaces, || {
            prepare(scratch)?;
            call(criu, scratch, "check", &[])?;
            let subject = Subject::start(&host.program)?;
            subject
                .ask()
                .map_err(|words| Refusal::new("reach a process before the dump", words))?;
            call(criu, scratch, "dump", &["--tree", &subject.number()])?;
            // The dead keep their numbers until somebody waits, and the restore needs those.
            while matches!(wait(WaitOptions::empty()), Ok(Some(_))) {}
            call(criu, scratch, "restore", &["--restore-detached"])?;
            subject.ask().map_err(|words| Refusal::new("reach the restored process", words))
        })
    })
}

/// A `/proc` for the new process numbers, a folder for the images that is gone with its mount,
/// and a `/run` in which CRIU can keep what it knows of the kernel.
fn prepare(scratch: &Path) -> Result<(), Refusal> {
    super::overlay::own_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let step = "make a place for the images";
    mount("soma", scratch, "tmpfs", flags, c"mode=700").step(step)?;
    mount("soma", "/proc", "proc", flags, None).step("mount a /proc of its own")?;
    // Without it CRIU only takes longer.
    let _ = mount("soma", "/run", "tmpfs", flags, c"mode=755");
    sys_linux::network::bring_loopback_up().step("switch the loopback on")
}

fn call(criu: &Path, images: &Path, verb: &str, options: &[&str]) -> Result<(), Refusal> {
    let log = format!("{verb}.log");
    let mut command = sys_linux::command::command(criu);
    command.arg(verb);
    if verb != "check" {
        command.arg("--images-dir").arg(images).args(["--log-file", &log, "-v2"]);
        command.args(["--tcp-established", "--network-lock", "skip", "--manage-cgroups=ignore"]);
    }
    program::run(command.args(options), ONE_CALL).output().map(drop).map_err(|words| {
        let log = fs::read_to_string(images.join(log)).unwrap_or_default();
        let why = cause(&log).unwrap_or(words);
        Refusal::new(format!("`{verb}`"), plain(&why))
    })
}

/// The line of a log that says what went wrong. Errors go upwards, so the first is the cause,
/// and later ones say what it made impossible; some of the first are harmless.
fn cause(log: &str) -> Option<String> {
    let is_cause = |line: &&str| line.contains("Error") && !line.contains("RLIMIT_NOFILE");
    log.lines().find(is_cause).map(ToOwned::to_owned)
}

/// A line without the time that CRIU puts before it.
fn plain(line: &str) -> &str {
    match line.split_once(") ") {
        Some((time, rest)) if time.starts_with('(') => rest,
        _ => line,
    }
    .trim()
}

fn version(words: &str) -> Option<(&str, (u32, u32))> {
    let shown = words.lines().find_map(|line| line.strip_prefix("Version:"))?.trim();
    let mut numbers = shown.split(|c: char| !c.is_ascii_digit());
    Some((shown, (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_a_third_number() {
        assert_eq!(version("Version: 4.2\n"), Some(("4.2", (4, 2))));
        assert_eq!(version("Version: 3.17.1\nGitID: v3.17.1\n"), Some(("3.17.1", (3, 17))));
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn the_cause_is_told_and_not_what_followed_from_it() {
        let log = "\
(00.01) Warn  (a.c:1): odd
(00.01) Error (util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted
(00.02) Error (sk-inet.c:9): Can't get 1:16 opt: Operation not supported
(00.03) Error (cr-dump.c:2): Dumping FAILED.
";
        let error = cause(log).unwrap();
        assert_eq!(
            plain(&error),
            "Error (sk-inet.c:9): Can't get 1:16 opt: Operation not supported"
        );
        assert_eq!(cause("fine\n"), None);
    }
}
