//! Who the launcher is, and what the first process gives up.

use rustix::fs::{Gid, Uid};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::Order;
use crate::failure::{Failure, Kind, Step};
use crate::ids::IdRange;

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

/// How many threads and processes the guest and its kin may need beside the workload.
const GUESTS_PROCESSES: u64 = 64;

/// How many descriptors a program may have unless it asks for more.
const DESCRIPTORS: u64 = 1024;

/// How many it may ask for unless somebody allows it others. More than programs need, and few
/// enough that a sandbox full of processes does not use up the host's.
const MOST_DESCRIPTORS: u64 = 16_384;

/// What the kernel counts for a user and keeps in its own memory: signals that wait to be taken,
/// bytes in message queues, bytes that may not leave memory. The sandbox's base id is nobody
/// else's, so this is what all of the sandbox can have, and what each of its users can.
const KEPT_BY_THE_KERNEL: [(Resource, u64); 3] =
    [(Resource::Sigpending, 4096), (Resource::Msgqueue, 819_200), (Resource::Memlock, 8 << 20)];

/// Takes back the engine's own allowances, and forbids core dumps.
///
/// A limit of one, because of zero the kernel takes no notice where a program of the host's
/// collects the dumps.
pub(super) fn set_usual_limits(open_files: Option<u64>) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let usual = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    // Beyond what this process may have only a privileged one goes.
    let maximum = limit.maximum.map(|most| most.max(open_files.unwrap_or(usual)));
    if setrlimit(Resource::Nofile, Rlimit { current: Some(usual), maximum }).is_err() {
        let most = limit.maximum.unwrap_or_default();
        let cause = format!(
            "this host allows a process {most} open files: ask for no more, or raise its limit \
             (`LimitNOFILE` of the service, `ulimit -Hn`)"
        );
        return Err(Failure::new("limit the descriptors", cause, Kind::Unsupported));
    }
    for (resource, most) in KEPT_BY_THE_KERNEL {
        let most = getrlimit(resource).maximum.map_or(most, |allowed| allowed.min(most));
        let most = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, most).step("limit what the kernel keeps")?;
    }
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) })
        .step("forbid core dumps")
}

/// Becomes the sandbox's base id and keeps every capability for the time being.
pub(super) fn become_base(ids: IdRange) -> Result<(), Failure> {
    let step = "become the sandbox's base id";
    if ids.is_single() {
        // A user without subordinate ids: everybody is that user, and nobody may change groups.
        return Ok(());
    }
    let before = capabilities(None).step(step)?;
    set_keep_capabilities(true).step(step)?;
    take_ids(ids.base, step)?;
    set_capabilities(None, CapabilitySets { effective: before.permitted, ..before }).step(step)?;
    set_keep_capabilities(false).step(step)?;
    // Whoever changes its id belongs to the host's root for `/proc`, and an engine of a user's
    // is not that: it could not map the ids of the first process.
    set_dumpable_behavior(DumpableBehavior::Dumpable).step(step)
}

/// What CRIU may do outside a sandbox while it dumps it: see and hold its processes, and write their
/// images. Inside, it is the one who made the sandbox's namespaces, and may do everything.
const OF_DUMPER: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_CHROOT);

/// Becomes the sandbox's base id for the program that is executed next, with what it needs to dump.
pub(crate) fn become_dumper(ids: IdRange) -> Result<(), Failure> {
    let step = "become the sandbox's base id";
    become_base(ids)?;
    let own = capabilities(None).step(step)?.permitted & OF_DUMPER;
    set_capabilities(None, CapabilitySets { effective: own, permitted: own, inheritable: own })
        .step(step)?;
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if own.contains(capability) {
            configure_capability_in_ambient_set(capability, true).step(step)?;
        }
    }
    Ok(())
}

/// Limits the processes of all in the sandbox together, where no cgroup does.
///
/// The kernel holds all processes of a user namespace against the limit of whoever made it,
/// counted for the maker's id. That is the sandbox's own, so this comes before the namespace;
/// where there is a single id it is shared with other sandboxes, and [`limit_workload`] is all.
pub(super) fn limit_sandbox(order: &Order) -> Result<(), Failure> {
    match order.processes {
        Some(count) if !order.ids.is_single() => {
            limit_processes(u64::from(count) + GUESTS_PROCESSES)
        }
        _ => Ok(()),
    }
}

/// Limits for the spawner, and thus for every command: descriptors, and where no cgroup does so
/// the processes that each user of the sandbox has.
pub(super) fn limit_workload(order: &Order) -> Result<(), Failure> {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(MOST_DESCRIPTORS);
    let most = order.open_files.unwrap_or(MOST_DESCRIPTORS).min(allowed);
    let descriptors = Rlimit { current: Some(most.min(DESCRIPTORS)), maximum: Some(most) };
    setrlimit(Resource::Nofile, descriptors).step("limit the descriptors")?;
    order.processes.map_or(Ok(()), |count| limit_processes(u64::from(count)))
}

fn limit_processes(most: u64) -> Result<(), Failure> {
    let most = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Nproc, most).step("limit the processes")
}

/// Gives up every capability. There is no way back.
pub(super) fn give_up_everything() -> Result<(), Failure> {
    let step = "give up privileges";
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).step(step)?;
    set_no_new_privs(true).step(step)
}

/// Leaves the first process, and all that it starts, what a sandbox's root may do; nothing
/// where there is no root.
pub(super) fn become_sandbox_root(ids: IdRange) -> Result<(), Failure> {
    let step = "give up privileges";
    let own = if ids.is_single() { CapabilitySet::empty() } else { OF_SANDBOX_ROOT };
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if !own.contains(capability) {
            match remove_capability_from_bounding_set(capability) {
                // This kernel knows no more of them.
                Err(rustix::io::Errno::INVAL) => break,
                other => other.step(step)?,
            }
        }
    }
    clear_ambient_capability_set().step(step)?;
    let sets =
        CapabilitySets { effective: own, permitted: own, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).step(step)?;
    set_no_new_privs(true).step(step)
}

fn take_ids(id: u32, step: &str) -> Result<(), Failure> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    set_thread_groups(&[]).step(step)?;
    set_thread_res_gid(group, group, group).step(step)?;
    set_thread_res_uid(user, user, user).step(step)
}
