//! Namespaces: all seven that a sandbox has, made at once, and used.

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use sys_linux::namespace::{Namespaces, set_host_name};

use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::settings::setting;

const NAME: &str = "user-namespaces";

/// The kinds, as the kernel's settings name them.
const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// An allowance for them that is usual and enough.
const ALLOWANCE: &str = "15000";

pub(crate) fn check(host: &Host) -> Finding {
    let finding = match try_them(host) {
        Ok(_) => Finding::works(NAME, "made, with mounts, processes, network and the rest in it"),
        Err(refusal) => explain(&refusal, &setting),
    };
    finding.required(true).without("cannot make sandboxes: they are what a sandbox is")
}

/// Makes all namespaces, and does in them what only one with capabilities there can do.
pub(crate) fn try_them(host: &Host) -> Result<String, Refusal> {
    attempt(QUICK, || {
        within(Namespaces::ALL, || {
            map_own_id(host)?;
            set_host_name("soma").step("name the host in them")?;
            let step = "mount in them";
            let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step(step)?;
            fsconfig_create(&context).step(step)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).step(step)?;
            Ok(String::new())
        })
    })
}

/// Becomes the root of the user namespace that this process was born into.
pub(crate) fn map_own_id(host: &Host) -> Result<(), Refusal> {
    let step = "map an id in them";
    let write = |file: &str, text: String| std::fs::write(format!("/proc/self/{file}"), text);
    write("setgroups", "deny".to_owned()).step(step)?;
    write("gid_map", format!("0 {} 1", host.group_id)).step(step)?;
    write("uid_map", format!("0 {} 1", host.user_id)).step(step)
}

/// Which of the kernel's settings forbids them, and what would allow them.
fn explain(refusal: &Refusal, setting: &dyn Fn(&str) -> Option<String>) -> Finding {
    match refusal.errno() {
        // The kernel's word for an allowance that is used up, and one of zero always is.
        Some(Errno::NOSPC | Errno::USERS) => {
            let none: Vec<String> = KINDS
                .iter()
                .map(|kind| format!("user.max_{kind}_namespaces"))
                .filter(|name| setting(name).as_deref() == Some("0"))
                .collect();
            if none.is_empty() {
                let says =
                    "the allowance of namespaces is used up, here or above: see `sysctl user`";
                return Finding::missing(NAME, says);
            }
            let says = format!("none are allowed: {} is 0", none.join(" and "));
            let raised: Vec<String> =
                none.iter().map(|name| format!("{name}={ALLOWANCE}")).collect();
            let mut words = vec!["sysctl", "-w"];
            words.extend(raised.iter().map(String::as_str));
            Finding::missing(NAME, says).fix(Fix::safe(&words))
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            let name = "kernel.unprivileged_userns_clone";
            if setting(name).as_deref() == Some("0") {
                let says = format!("ordinary users may not make them: {name} is 0");
                return Finding::missing(NAME, says).fix(Fix::shown(format!("sysctl -w {name}=1")));
            }
            if setting(super::apparmor::SETTING).as_deref() == Some("1") {
                let says = format!("{refusal}; AppArmor restricts them, see the next line");
                return Finding::missing(NAME, says);
            }
            let says = format!(
                "{refusal}: a container's list of system calls, or a security module, forbids it"
            );
            Finding::missing(NAME, says)
        }
        _ => Finding::missing(NAME, refusal.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(errno: Errno, settings: &[(&str, &str)]) -> Finding {
        let refused: Result<(), Refusal> = Err(errno).step("make the namespaces");
        explain(&refused.unwrap_err(), &|name| {
            settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_allowance_of_none_is_raised_by_a_safe_command() {
        let settings = [("user.max_user_namespaces", "0"), ("user.max_net_namespaces", "0")];
        let finding = explained(Errno::NOSPC, &settings);
        assert!(finding.says.contains("user.max_user_namespaces and user.max_net_namespaces is 0"));
        let fix = finding.fix.unwrap();
        assert_eq!(
            fix.command,
            "sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000"
        );
        assert!(fix.safe && fix.needs_root);
    }

    #[test]
    fn debians_own_setting_is_shown_and_not_run() {
        let finding = explained(Errno::PERM, &[("kernel.unprivileged_userns_clone", "0")]);
        let fix = finding.fix.unwrap();
        assert_eq!(fix.command, "sysctl -w kernel.unprivileged_userns_clone=1");
        assert!(!fix.safe);
    }

    #[test]
    fn ubuntus_restriction_points_to_its_own_line() {
        let finding = explained(Errno::ACCESS, &[(super::super::apparmor::SETTING, "1")]);
        assert!(finding.says.contains("AppArmor"), "{}", finding.says);
        assert_eq!(finding.fix, None);
    }
}
