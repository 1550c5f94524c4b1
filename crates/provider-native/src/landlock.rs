//! Landlock, a second opinion on what commands in a sandbox may do.
//!
//! Nothing rests on it alone: mounts, capabilities and the lists of system calls refuse the same
//! without it, and a sandbox that was hibernated wakes without it. It is for the day on which one
//! of those has a hole:
//!
//! - no device files are made, and requests to devices pass beneath `/dev` only;
//! - nothing is mounted, unmounted or made the root (a domain of Landlock forbids that by itself);
//! - nobody traces, or sends signals to, a process outside of the commands: not process 1.
//!
//! It is put on the spawners, whose children are all commands, and not on process 1. It is one
//! domain for both, so that commands can send signals to each other.

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};

use crate::failure::{Failure, Kind};

/// The version from which on files can be moved between folders of a restricted process.
const FIRST_USABLE: u32 = 2;

/// What this was written for. Later kernels forbid no more than these by it.
const KNOWN: ABI = ABI::V6;

/// Whether this kernel has it, in a version that does not get into anybody's way.
pub(crate) fn is_available() -> bool {
    sys_linux::landlock::version().is_ok_and(|version| version >= FIRST_USABLE)
}

/// Restricts this process and all that it will start, for ever; does nothing where the kernel
/// cannot, which the sandbox's record says.
pub(crate) fn put_on() -> Result<(), Failure> {
    if !is_available() {
        return Ok(());
    }
    restrict().map_err(|error| Failure::new("put Landlock on", error, Kind::Broken))
}

fn restrict() -> Result<(), Box<dyn std::error::Error>> {
    let of_devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let everywhere = AccessFs::from_all(KNOWN) & !of_devices;
    let ruleset = || -> Result<_, RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            .scope(Scope::Signal)?
            .create()
    };
    ruleset()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, everywhere))?
        .add_rule(PathBeneath::new(PathFd::new("/dev")?, AccessFs::IoctlDev))?
        .restrict_self()?;
    Ok(())
}
