//! Which system calls a sandbox may make.
//!
//! The lists are data with reasons: `seccomp/x86_64.json`. They are compiled once, when the
//! engine starts, and put on every sandbox's first process before it executes anything.

use seccompiler::{BpfProgram, TargetArch, sock_filter};

use crate::failure::{Failure, Kind};

const LISTS: &str = include_str!("../seccomp/x86_64.json");

/// The compiled lists, in the order in which they are put on.
#[derive(Debug, Clone)]
pub(crate) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Compiles the lists for this machine.
    pub(crate) fn compile() -> Result<Self, Failure> {
        let step = "compile the list of system calls";
        let architecture = TargetArch::try_from(std::env::consts::ARCH)
            .map_err(|error| Failure::new(step, error, Kind::Unsupported))?;
        if architecture != TargetArch::x86_64 {
            let cause = "there is no list for this kind of processor yet, only for x86_64";
            return Err(Failure::new(step, cause, Kind::Unsupported));
        }
        let mut lists = seccompiler::compile_from_json(LISTS.as_bytes(), architecture)
            .map_err(|error| Failure::new(step, error, Kind::Broken))?;
        // The narrowing ones first: the last one refuses `seccomp` itself to nobody, but a
        // filter that is put on is judged by those before it.
        ["families", "requests", "refuse", "huge", "allow"]
            .into_iter()
            .map(|name| {
                lists.remove(name).ok_or_else(|| {
                    Failure::new(step, format!("the list `{name}` is missing"), Kind::Broken)
                })
            })
            .chain([Ok(no_foreign_entry())])
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Puts the lists on this process and all that it will start, for ever.
    pub(crate) fn put_on(&self) -> Result<(), Failure> {
        for filter in &self.0 {
            seccompiler::apply_filter(filter).map_err(|error| {
                Failure::new("put the list of system calls on", error, Kind::Unsupported)
            })?;
        }
        Ok(())
    }
}

/// Kills whoever enters the kernel by the door of the x32 interface, whose calls have numbers of
/// their own. The compiled lists kill those who come by the 32 bit one, because it is another
/// architecture to them; this one has the same name as ours.
fn no_foreign_entry() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // The number of the call is the first word of what a filter is shown.
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 0, 1, X32),
        instruction(RETURN, 0, 0, KILL_PROCESS),
        instruction(RETURN, 0, 0, ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lists_compile_and_allow_at_most_260_calls() {
        assert!(Filters::compile().is_ok());
        let lists: serde_json::Value = serde_json::from_str(LISTS).unwrap();
        let calls: BTreeSet<&str> = lists["allow"]["filter"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["syscall"].as_str().unwrap())
            .collect();
        assert!(calls.len() <= 260, "{} calls are allowed", calls.len());
        for dangerous in
            ["bpf", "mount", "ptrace", "io_uring_setup", "userfaultfd", "keyctl", "clone3"]
        {
            assert!(!calls.contains(dangerous), "{dangerous} is allowed");
        }
    }
}
