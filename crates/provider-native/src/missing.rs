//! What this host lacks, in words that say how to give it.
//!
//! The kernel answers with a number that means many things: `no space left on device` is also
//! its word for namespaces that are forbidden. Here those numbers become sentences, for the
//! things that a host's owner can switch off or leave out. Any other number stays what it is.

use std::fs;
use std::io;
use std::path::Path;

use domain::Limit;
use rustix::io::Errno;

use crate::failure::{Failure, Kind};
use crate::rights::Rights;

/// The namespaces that a sandbox has, as the kernel's settings name them.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Settings of some distributions that forbid user namespaces, and the value that does not.
const PERMISSIONS: [(&str, &str); 2] = [
    ("kernel.unprivileged_userns_clone", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "0"),
];

/// Why the namespaces of a sandbox could not be made.
pub(crate) fn namespaces(error: io::Error) -> Failure {
    explain_namespaces(error, &|setting| {
        let file = format!("/proc/sys/{}", setting.replace('.', "/"));
        fs::read_to_string(file).ok().map(|value| value.trim().to_owned())
    })
}

/// Why a sandbox can reach nothing but itself.
pub(crate) fn wires(reason: &str) -> Failure {
    let cause = format!(
        "this host's kernel cannot lead its connections out ({reason}): `soma doctor` says what is \
         missing; ask for a sandbox without a network, which is the policy `deny-all`"
    );
    Failure::new("give the sandbox a network", cause, Kind::Unsupported)
}

/// `setting` reads one of the kernel's settings; some kernels do not have it.
fn explain_namespaces(error: io::Error, setting: &dyn Fn(&str) -> Option<String>) -> Failure {
    let step = "make the namespaces";
    let (forbidding, otherwise) = match Errno::from_io_error(&error) {
        // The kernel's word for an allowance that is used up, and one of zero always is.
        Some(Errno::NOSPC | Errno::USERS) => {
            let cause = "this host's allowance of namespaces is used up (see `sysctl user`)";
            (allowances_of_none(setting), Failure::new(step, cause, Kind::NoCapacity))
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            let cause = "user namespaces are forbidden to this process; \
                         in a container, run it with more privileges";
            (refused_permissions(setting), Failure::new(step, cause, Kind::Unsupported))
        }
        _ => return Failure::of(step, error),
    };
    if forbidding.is_empty() {
        return otherwise;
    }
    let names: Vec<String> = forbidding.iter().map(|(name, _)| format!("`{name}`")).collect();
    let cure: Vec<String> =
        forbidding.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (names, cure) = (names.join(" and "), cure.join(" "));
    let cause = format!("this host forbids them by {names}; allow them with `sysctl -w {cure}`");
    Failure::new(step, cause, Kind::Unsupported)
}

fn allowances_of_none(setting: &dyn Fn(&str) -> Option<String>) -> Vec<(String, &'static str)> {
    NAMESPACES
        .iter()
        .map(|kind| (format!("user.max_{kind}_namespaces"), "15000"))
        .filter(|(name, _)| setting(name).as_deref() == Some("0"))
        .collect()
}

fn refused_permissions(setting: &dyn Fn(&str) -> Option<String>) -> Vec<(String, &'static str)> {
    PERMISSIONS
        .iter()
        .filter(|(name, wanted)| setting(name).is_some_and(|value| value != *wanted))
        .map(|(name, wanted)| ((*name).to_owned(), *wanted))
        .collect()
}

/// What would let this host hold sandboxes to these limits.
pub(crate) fn enforcement(limits: &[Limit], rights: Rights) -> String {
    let by_cgroup: Vec<Limit> =
        limits.iter().copied().filter(|limit| *limit != Limit::Disk).collect();
    if rights.is_root() {
        let names = Limit::list(&by_cgroup);
        return format!(
            "mount the cgroup controllers for {names}, for example with \
             `mount -t cgroup2 none /sys/fs/cgroup`"
        );
    }
    if by_cgroup.is_empty() {
        return "run Soma as root, which alone can limit a disk".to_owned();
    }
    let names = Limit::list(&by_cgroup);
    format!(
        "run Soma as root; or, for {names} alone, start its engine in a cgroup (version 2) of its \
         own with `systemd-run --user --scope -p Delegate=yes soma engine`"
    )
}

/// Why a kind of file system could not be used.
pub(crate) fn file_system(kind: &str, error: Errno) -> Failure {
    let step = format!("use the file system {kind}");
    if error == Errno::NODEV {
        let cause = format!("this kernel does not have it; load it with `modprobe {kind}`");
        return Failure::new(step, cause, Kind::Unsupported);
    }
    Failure::of(step, error)
}

/// Why a file could not be made a block device.
pub(crate) fn loop_device(error: io::Error) -> Failure {
    explain_loop_device(error, Path::new("/dev/loop-control").exists())
}

fn explain_loop_device(error: io::Error, has_control: bool) -> Failure {
    let step = "make a block device of the disk";
    let cause = match Errno::from_io_error(&error) {
        // A control file can be there before its module is: opening it is what loads it.
        Some(Errno::NODEV | Errno::NXIO) => NO_LOOP,
        Some(Errno::NOENT) if !has_control => NO_LOOP,
        // In a container, whose `/dev` does not follow the kernel's.
        Some(Errno::NOENT) => "its device file is not there; mount a devtmpfs on `/dev`",
        _ => return Failure::of(step, error),
    };
    Failure::new(step, cause, Kind::Unsupported)
}

const NO_LOOP: &str = "this kernel has no loop devices; load them with `modprobe loop`";

/// Why the ids of a folder's files could not be mapped.
pub(crate) fn mapped_ids(folder: &Path, error: io::Error) -> Failure {
    let step = format!("map the ids of `{}`", folder.display());
    if Errno::from_io_error(&error) == Some(Errno::INVAL) {
        let cause = "its file system cannot do that on this kernel; ext4, xfs and btrfs can";
        return Failure::new(step, cause, Kind::Unsupported);
    }
    Failure::of(step, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(errno: Errno, settings: &[(&str, &str)]) -> Failure {
        explain_namespaces(errno.into(), &|name| {
            settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_allowance_of_no_user_namespaces_is_named_with_its_remedy() {
        let settings = [("user.max_user_namespaces", "0"), ("user.max_net_namespaces", "9")];
        for errno in [Errno::NOSPC, Errno::USERS] {
            let failure = explained(errno, &settings);
            assert_eq!(
                failure.to_string(),
                "could not make the namespaces: this host forbids them by \
                 `user.max_user_namespaces`; allow them with \
                 `sysctl -w user.max_user_namespaces=15000`"
            );
            assert_eq!(failure.kind, Kind::Unsupported);
        }
    }

    #[test]
    fn all_that_forbid_are_named_at_once() {
        let settings = [("user.max_user_namespaces", "0"), ("user.max_net_namespaces", "0")];
        let cause = explained(Errno::NOSPC, &settings).cause;
        assert!(cause.contains("`user.max_user_namespaces` and `user.max_net_namespaces`"));
        assert!(cause.ends_with("user.max_user_namespaces=15000 user.max_net_namespaces=15000`"));
    }

    #[test]
    fn an_allowance_that_is_used_up_is_not_called_a_full_disk() {
        let failure = explained(Errno::NOSPC, &[("user.max_user_namespaces", "9")]);
        assert!(failure.cause.contains("allowance of namespaces is used up"));
        assert_eq!(failure.kind, Kind::NoCapacity);
    }

    #[test]
    fn the_settings_of_distributions_are_named_where_they_forbid() {
        for (name, forbids, allows) in [
            ("kernel.unprivileged_userns_clone", "0", "1"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ] {
            let failure = explained(Errno::PERM, &[(name, forbids)]);
            assert!(failure.cause.contains(&format!("`sysctl -w {name}={allows}`")), "{failure}");
            assert_eq!(failure.kind, Kind::Unsupported);
            let failure = explained(Errno::PERM, &[(name, allows)]);
            assert!(failure.cause.contains("container"), "{failure}");
        }
    }

    #[test]
    fn what_no_setting_explains_stays_the_kernels_word() {
        let failure = explained(Errno::NOMEM, &[("user.max_user_namespaces", "0")]);
        assert_eq!(failure.cause, "cannot allocate memory");
    }

    #[test]
    fn a_missing_module_is_named_with_its_remedy() {
        let overlay = file_system("overlay", Errno::NODEV);
        assert!(overlay.cause.ends_with("`modprobe overlay`"), "{overlay}");
        for (errno, has_control) in [(Errno::NOENT, false), (Errno::NODEV, true)] {
            let device = explain_loop_device(errno.into(), has_control);
            assert!(device.cause.ends_with("`modprobe loop`"), "{device}");
            assert_eq!(device.kind, Kind::Unsupported);
        }
    }

    #[test]
    fn a_container_without_its_kernels_device_files_is_told_so() {
        let device = explain_loop_device(Errno::NOENT.into(), true);
        assert!(device.cause.contains("devtmpfs"), "{device}");
    }

    #[test]
    fn a_file_system_that_cannot_map_ids_is_told_from_those_that_can() {
        let failure = mapped_ids(Path::new("/usr"), Errno::INVAL.into());
        assert_eq!(failure.kind, Kind::Unsupported);
        assert!(failure.cause.contains("ext4"), "{failure}");
    }
}
