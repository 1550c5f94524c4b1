//! Which system calls a sandbox may make.
//!
//! The lists are data with reasons: `seccomp/x86_64.json`. They are compiled once, when the
//! engine starts, and put on every sandbox's first process before it executes anything.

use seccompiler::{BpfProgram, TargetArch};

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
        ["families", "refuse", "allow"]
            .into_iter()
            .map(|name| {
                lists.remove(name).ok_or_else(|| {
                    Failure::new(step, format!("the list `{name}` is missing"), Kind::Broken)
                })
            })
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
