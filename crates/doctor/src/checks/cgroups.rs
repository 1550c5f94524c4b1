//! Control groups: how limits are enforced.
//!
//! Version 2 is taken where it has the controllers, else version 1, as the engine does. That a
//! group can be made is tried; it is removed again at once. Nothing is switched on for others.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::attempt::{QUICK, Refusal, Step, attempt};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::mounts::{Mount, mounts};

const NAME: &str = "cgroups";
const DYNAMIC: &str = "favordynmods";

const OF_VERSION_ONE: [&str; 4] = ["memory", "cpu", "pids", "freezer"];
const OF_VERSION_TWO: [&str; 3] = ["memory", "cpu", "pids"];

/// The hierarchies that Soma would use.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    One(Vec<Mount>),
    Two(Mount),
}

/// How the cgroups stand, and whether processes can be moved between them quickly.
pub(crate) fn check(host: &Host) -> [Finding; 2] {
    let controllers = |mount: &Mount| {
        fs::read_to_string(mount.path.join("cgroup.controllers")).unwrap_or_default()
    };
    let found = choose(&mounts(), &controllers);
    [limits(host, &found), moves(&found)]
}

fn limits(host: &Host, found: &Result<Found, String>) -> Finding {
    let finding = match found {
        Err(why) => Finding::missing(NAME, why.clone())
            .fix(Fix::shown("mount -t cgroup2 none /sys/fs/cgroup")),
        Ok(found) if host.is_root() => of_root(found),
        Ok(Found::One(_)) => Finding::missing(
            NAME,
            "version 1, in which only root can make groups",
        )
        .fix(Fix::shown(
            "add `systemd.unified_cgroup_hierarchy=1` to the kernel's command line and boot again",
        )),
        Ok(Found::Two(mount)) => of_user(mount),
    };
    finding.without("refuses limits on memory and processors, unless `--allow-unenforced` is given")
}

fn of_root(found: &Found) -> Finding {
    let (says, roots): (String, Vec<&Path>) = match found {
        Found::One(mounts) => (
            format!("version 1 with {}", OF_VERSION_ONE.join(", ")),
            mounts.iter().map(|mount| mount.path.as_path()).collect(),
        ),
        Found::Two(mount) => {
            (format!("version 2 with {}", OF_VERSION_TWO.join(", ")), vec![mount.path.as_path()])
        }
    };
    match roots.into_iter().try_for_each(make_one) {
        Ok(()) => Finding::works(NAME, says),
        Err(refusal) => Finding::missing(NAME, format!("{says}, but {refusal}"))
            .fix(Fix::shown("mount -o remount,rw /sys/fs/cgroup")),
    }
}

/// An ordinary user can use the group that it is in, when that was given to it whole.
fn of_user(mount: &Mount) -> Finding {
    // The systemd of a user gives such a group to what it is asked to start.
    let fix =
        Fix::shown_to_anybody("systemd-run --user --scope --property=Delegate=yes -- soma engine");
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = own_folder(mount, &membership) else {
        return Finding::missing(NAME, "version 2, but this process is in no group of it").fix(fix);
    };
    let shown = own.display();
    let there = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    let lacking: Vec<&str> =
        OF_VERSION_TWO.into_iter().filter(|wanted| !has_word(&there, wanted)).collect();
    if !lacking.is_empty() {
        let says = format!("version 2, but the group `{shown}` has no {}", lacking.join(", "));
        return Finding::missing(NAME, says).fix(fix);
    }
    let writable = ["cgroup.procs", "cgroup.subtree_control"].into_iter().try_for_each(|file| {
        accessat(CWD, own.join(file), Access::WRITE_OK, AtFlags::EACCESS)
            .step(&format!("write `{}`", own.join(file).display()))
    });
    match writable.and_then(|()| make_one(&own)) {
        Ok(()) => {
            Finding::works(NAME, format!("version 2, and the group `{shown}` is this user's"))
        }
        Err(refusal) => {
            let says = format!("version 2, but the group `{shown}` is not this user's: {refusal}");
            Finding::missing(NAME, says).fix(fix)
        }
    }
}

/// Makes a group and removes it.
fn make_one(parent: &Path) -> Result<(), Refusal> {
    // Others may look at the same time, and their process numbers may be those of a container.
    let mut unique = [0; 8];
    let step = "think of a name for a group";
    rustix::rand::getrandom(&mut unique, rustix::rand::GetRandomFlags::empty()).step(step)?;
    let group = parent.join(format!("soma-doctor-{:016x}", u64::from_ne_bytes(unique)));
    let tried = attempt(QUICK, || {
        let made = fs::create_dir(&group).step(&format!("make a group in `{}`", parent.display()));
        made.and_then(|()| fs::remove_dir(&group).step("remove the group"))
    });
    // The child may have died between the two.
    let _ = fs::remove_dir(&group);
    tried
}

/// The folder of the group that this process is in, if the mount shows it.
fn own_folder(mount: &Mount, membership: &str) -> Option<PathBuf> {
    let group = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let below = Path::new(group).strip_prefix(&mount.root).ok()?;
    Some(mount.path.join(below))
}

fn moves(found: &Result<Found, String>) -> Finding {
    let finding = match found {
        Err(_) => Finding::missing(DYNAMIC, "there are no cgroups to set it on"),
        Ok(Found::Two(mount)) if mount.has_option(DYNAMIC) => {
            Finding::works(DYNAMIC, format!("set on `{}`", mount.path.display()))
        }
        Ok(Found::Two(mount)) => {
            let path = mount.path.display();
            Finding::limited(DYNAMIC, format!("not set on `{path}`"))
                .fix(Fix::shown(format!("mount -o remount,{DYNAMIC} {path}")))
        }
        Ok(Found::One(mounts)) if mounts.iter().all(|mount| mount.has_option(DYNAMIC)) => {
            Finding::works(DYNAMIC, "set on all groups of version 1")
        }
        Ok(Found::One(_)) => {
            Finding::limited(DYNAMIC, "not set, and version 1 does not take it later")
        }
    };
    finding.without(
        "waits some 15 ms whenever a process is moved between groups; sandboxes that are \
         prepared ahead hide it",
    )
}

/// Version 2 where it has the controllers, else version 1; or what is not there.
fn choose(mounts: &[Mount], controllers: &dyn Fn(&Mount) -> String) -> Result<Found, String> {
    let seconds: Vec<&Mount> = mounts.iter().filter(|mount| mount.kind == "cgroup2").collect();
    for mount in &seconds {
        let there = controllers(mount);
        if OF_VERSION_TWO.iter().all(|wanted| has_word(&there, wanted)) {
            return Ok(Found::Two((*mount).clone()));
        }
    }
    let mut firsts: Vec<Mount> = Vec::new();
    let mut lacking = Vec::new();
    for controller in OF_VERSION_ONE {
        let of = |mount: &&Mount| mount.kind == "cgroup" && mount.has_option(controller);
        match mounts.iter().find(of) {
            Some(mount) if firsts.contains(mount) => {}
            Some(mount) => firsts.push(mount.clone()),
            None => lacking.push(controller),
        }
    }
    if lacking.is_empty() {
        return Ok(Found::One(firsts));
    }
    Err(match seconds.first() {
        Some(mount) if firsts.is_empty() => {
            let there = controllers(mount);
            let lacking: Vec<&str> =
                OF_VERSION_TWO.into_iter().filter(|wanted| !has_word(&there, wanted)).collect();
            format!("version 2 on `{}` has no {}", mount.path.display(), lacking.join(", "))
        }
        None if firsts.is_empty() => "no cgroups are mounted".to_owned(),
        _ => format!("version 1 has no {}", lacking.join(", ")),
    })
}

fn has_word(text: &str, wanted: &str) -> bool {
    text.split_whitespace().any(|word| word == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::mounts::parse;

    const TWO: &str =
        "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate,favordynmods\n";
    const ONE: &str = "\
30 24 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /cg/memory rw - cgroup cgroup rw,memory
32 24 0:28 / /cg/pids rw - cgroup cgroup rw,pids
33 24 0:29 / /cg/freezer rw - cgroup cgroup rw,freezer
34 24 0:30 / /cg/unified rw - cgroup2 cgroup2 rw
";

    fn chosen(mounts: &str, controllers: &str) -> Result<Found, String> {
        choose(&parse(mounts), &|_| controllers.to_owned())
    }

    #[test]
    fn version_two_is_taken_where_it_has_the_controllers() {
        assert!(matches!(chosen(TWO, "cpu io memory pids"), Ok(Found::Two(_))));
        assert!(matches!(chosen(ONE, "cpu memory pids"), Ok(Found::Two(_))));
        assert!(matches!(chosen(ONE, "hugetlb"), Ok(Found::One(mounts)) if mounts.len() == 4));
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert_eq!(
            chosen(TWO, "cpu io").unwrap_err(),
            "version 2 on `/sys/fs/cgroup` has no memory, pids"
        );
        assert_eq!(chosen("", "").unwrap_err(), "no cgroups are mounted");
        let without_pids = ONE.replace("rw,pids", "rw,blkio");
        assert_eq!(chosen(&without_pids, "").unwrap_err(), "version 1 has no pids");
    }

    #[test]
    fn quick_moves_are_read_from_the_options() {
        assert_eq!(moves(&chosen(TWO, "cpu memory pids")).state, State::Works);
        let slow = moves(&chosen(&TWO.replace(",favordynmods", ""), "cpu memory pids"));
        assert_eq!(slow.state, State::Limited);
        assert_eq!(slow.fix.unwrap().command, "mount -o remount,favordynmods /sys/fs/cgroup");
        let first = moves(&chosen(ONE, ""));
        assert_eq!((first.state, first.fix), (State::Limited, None));
    }

    #[test]
    fn the_own_group_is_found_below_what_is_mounted() {
        let all = parse(TWO).remove(0);
        let own = own_folder(&all, "1:cpu:/x\n0::/user.slice/a.scope\n");
        assert_eq!(own.unwrap(), Path::new("/sys/fs/cgroup/user.slice/a.scope"));
        let part = Mount { root: "/user.slice".into(), ..all };
        let own = own_folder(&part, "0::/user.slice/a.scope\n");
        assert_eq!(own.unwrap(), Path::new("/sys/fs/cgroup/a.scope"));
        assert_eq!(own_folder(&part, "0::/system.slice\n"), None);
    }
}
