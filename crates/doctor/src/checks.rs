//! The checks, in the order in which they are shown.

mod apparmor;
mod cgroups;
mod container;
mod criu;
mod criu_subject;
mod devices;
mod disk;
mod disk_tool;
mod engines;
mod filters;
mod id_mapped;
mod ids;
mod kernel;
mod memory;
mod namespaces;
mod nftables;
mod overlay;

pub use criu_subject::{SUBJECT_WORDS, be_dumped};

use crate::host::Host;
use crate::verdict::Report;

/// Goes through all checks and says what came of them.
///
/// Must be called by a process with a single thread: what is tried is tried in forks of it.
/// Takes a second or two where CRIU is there, and never longer than the sum of the limits.
pub fn examine(host: &Host) -> Report {
    let mut findings = vec![
        kernel::check(),
        container::check(),
        namespaces::check(host),
        apparmor::check(host),
        ids::check(host),
    ];
    findings.extend(cgroups::check(host));
    findings.extend([
        overlay::check(host),
        id_mapped::check(host),
        filters::seccomp(),
        filters::landlock(),
        nftables::check(host),
        devices::fuse(host),
        devices::loops(host),
        disk_tool::check(host),
        devices::kvm(host),
        criu::check(host),
        engines::docker(host),
        engines::podman(host),
        engines::gvisor(host),
        disk::check(host),
        memory::check(),
    ]);
    Report::new(host, findings)
}
