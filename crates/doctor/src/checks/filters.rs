//! Rules that a process puts on itself: which system calls it may make, and which files it may
//! reach.

use std::collections::BTreeMap;
use std::fs;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::attempt::{QUICK, Refusal, Step, attempt};
use crate::finding::{Finding, Fix};

/// Puts a filter that allows everything on a child, and looks whether it is there.
pub(crate) fn seccomp() -> Finding {
    const NAME: &str = "seccomp";
    let finding = match attempt(QUICK, put_filter_on) {
        Ok(()) => Finding::works(NAME, "put a filter of system calls on a process"),
        Err(refusal) => Finding::missing(NAME, refusal.to_string()),
    };
    finding
        .required(true)
        .without("cannot make sandboxes: the list of system calls is part of their wall")
}

fn put_filter_on() -> Result<(), Refusal> {
    let step = "put a filter of system calls on a process";
    let failed = |error: &dyn std::error::Error| Refusal::new(step, error.to_string());
    let architecture =
        TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(1));
    let filter = SeccompFilter::new(BTreeMap::new(), allow, refuse, architecture)
        .map_err(|error| failed(&error))?;
    let program = BpfProgram::try_from(filter).map_err(|error| failed(&error))?;
    rustix::thread::set_no_new_privs(true).step(step)?;
    apply_filter(&program).map_err(|error| match error {
        seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error) => {
            Err::<(), _>(error).step(step).err().unwrap_or_else(|| Refusal::new(step, "refused"))
        }
        error => failed(&error),
    })?;
    // Two is the kernel's word for a process that has a filter.
    let status = fs::read_to_string("/proc/self/status").step("read what the process has")?;
    let has = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    if has { Ok(()) } else { Err(Refusal::new(step, "the kernel took it and did not apply it")) }
}

/// Asks for the version of the rules for files.
pub(crate) fn landlock() -> Finding {
    judge_landlock(sys_linux::landlock::version().map_err(|error| Errno::from_io_error(&error)))
}

fn judge_landlock(version: Result<u32, Option<Errno>>) -> Finding {
    const NAME: &str = "landlock";
    let finding = match version {
        Ok(version) => Finding::works(NAME, format!("version {version}")),
        Err(Some(Errno::OPNOTSUPP)) => Finding::missing(
            NAME,
            "this kernel has it, but was booted without it",
        )
        .fix(Fix::shown(
            "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,lockdown,yama,integrity,apparmor /' \
                 /etc/default/grub && update-grub && reboot",
        )),
        Err(Some(Errno::NOSYS)) => Finding::missing(NAME, "this kernel was built without it"),
        Err(error) => {
            let words = error.map_or("no reason".to_owned(), crate::attempt::in_words);
            Finding::missing(NAME, format!("could not ask for it: {words}"))
        }
    };
    finding.without("relies on namespaces and the list of system calls alone: it is an extra wall")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;

    #[test]
    fn a_kernel_booted_without_landlock_is_told_from_one_built_without() {
        let booted = judge_landlock(Err(Some(Errno::OPNOTSUPP)));
        assert!(booted.fix.unwrap().command.contains("lsm=landlock"));
        let built = judge_landlock(Err(Some(Errno::NOSYS)));
        assert_eq!((built.state, built.fix), (State::Missing, None));
        assert_eq!(judge_landlock(Ok(4)).says, "version 4");
    }
}
