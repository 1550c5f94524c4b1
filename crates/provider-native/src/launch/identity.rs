//! Who the launcher is, and what the first process gives up.

use rustix::fs::{Gid, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::failure::{Failure, Step};

/// What the sandbox's root can do, in its own namespaces only: enough for package managers and
/// daemons that change their user.
const OF_SANDBOX_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// How many descriptors a program may have unless it asks for more.
const DESCRIPTORS: u64 = 1024;

/// Takes back the engine's own allowance of descriptors, and forbids core dumps.
///
/// A limit of one, because of zero the kernel takes no notice where a program of the host's
/// collects the dumps.
pub(super) fn set_usual_limits() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let usual = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(usual), ..limit })
        .step("limit the descriptors")?;
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })
        .step("forbid core dumps")
}

/// Becomes the sandbox's base id and keeps every capability for the time being.
pub(super) fn become_base(base_id: u32) -> Result<(), Failure> {
    let step = "become the sandbox's base id";
    let before = capabilities(None).step(step)?;
    set_keep_capabilities(true).step(step)?;
    take_ids(base_id, step)?;
    set_capabilities(None, CapabilitySets { effective: before.permitted, ..before }).step(step)?;
    set_keep_capabilities(false).step(step)
}

/// Gives up every capability. There is no way back.
pub(super) fn give_up_everything() -> Result<(), Failure> {
    let step = "give up privileges";
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).step(step)?;
    set_no_new_privs(true).step(step)
}

/// Leaves the first process, and all that it starts, what a sandbox's root may do.
pub(super) fn become_sandbox_root() -> Result<(), Failure> {
    let step = "give up privileges";
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if !OF_SANDBOX_ROOT.contains(capability) {
            match remove_capability_from_bounding_set(capability) {
                // This kernel knows no more of them.
                Err(rustix::io::Errno::INVAL) => break,
                other => other.step(step)?,
            }
        }
    }
    clear_ambient_capability_set().step(step)?;
    let sets = CapabilitySets {
        effective: OF_SANDBOX_ROOT,
        permitted: OF_SANDBOX_ROOT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).step(step)?;
    set_no_new_privs(true).step(step)
}

fn take_ids(id: u32, step: &str) -> Result<(), Failure> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[]).step(step)?;
    set_thread_res_gid(group, group, group).step(step)?;
    set_thread_res_uid(user, user, user).step(step)
}
