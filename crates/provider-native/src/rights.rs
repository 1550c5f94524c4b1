//! What the engine may do on this host, by who started it.
//!
//! Root may do everything. An ordinary user goes into a user namespace of its own first, where
//! it is root over its own id and its subordinate ids (`/etc/subuid`), and over nothing else:
//!
//! ```text
//! the host            1000 = alice          300000..365535 = alice's subordinate ids
//! engine's namespace     0                       1..65536
//! sandbox's                                      0..2046, 65534     (another part for each)
//! ```
//!
//! Every sandbox is a namespace within the engine's, so the rest of the engine is the same for
//! both. What is missing without root: block devices (the disk has no limit), id-mapped views
//! of the host's files (its `/usr` belongs to nobody inside), and often cgroups.
//!
//! Only processes of one namespace can reach each other. So an engine that finds a sandbox of
//! an earlier one goes into that one's namespace and makes none.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::process::{Pid, WaitOptions, getgid, getuid, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::command::command;
use sys_linux::namespace::{Namespaces, Side, fork, leave, separate};

use crate::failure::{Failure, Kind, Step};
use crate::home::Home;
use crate::ids::{IdRange, parse_promise};
use crate::manifest::Manifest;
use crate::missing;

/// What the engine may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything.
    Root,
    /// What a user may: with so many ids beside the user's own.
    User {
        /// How many.
        ids: u32,
    },
}

impl Rights {
    /// Root keeps what it has; a user is put into a namespace where it has what it can have.
    pub(crate) fn obtain(home: &Home) -> Result<Self, Failure> {
        let map = fs::read_to_string("/proc/self/uid_map").step("read this process's ids")?;
        let is_root = rustix::process::geteuid().is_root();
        if is_root && is_whole(&map) {
            return Ok(Self::Root);
        }
        // Root of a container's user namespace is an ordinary user who is in one already.
        if !is_root && !join_earlier(home)? {
            found(subordinate())?;
        }
        separate(Namespaces::SURROUNDINGS).map_err(missing::namespaces)?;
        let map = fs::read_to_string("/proc/self/uid_map").step("read this process's ids")?;
        let ids = ids_beside_root(&map);
        if ids > 0 {
            // Those of whoever started us would be every sandbox's too.
            rustix::thread::set_thread_groups(&[]).step("leave the user's other groups")?;
        }
        Ok(Self::User { ids })
    }

    /// Whether this is the host's own root.
    pub(crate) fn is_root(self) -> bool {
        self == Self::Root
    }
}

/// Goes into the namespace of a sandbox that still runs; false when there is none.
fn join_earlier(home: &Home) -> Result<bool, Failure> {
    let step = "go into the user namespace of the sandboxes that run";
    let folders = fs::read_dir(home.sandboxes()).into_iter().flatten().filter_map(Result::ok);
    let supervisor = folders
        .filter_map(|folder| Manifest::read(&folder.path()).ok())
        .find_map(|manifest| manifest.supervisor.find());
    let Some(supervisor) = supervisor else { return Ok(false) };
    let namespace = File::open(format!("/proc/{}/ns/user", supervisor.as_raw_pid())).step(step)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User)).step(step)?;
    Ok(true)
}

/// Makes a user namespace with these ids and goes into it.
fn found(subordinate: Option<Subordinate>) -> Result<(), Failure> {
    let step = "map this user's ids";
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let Some(Subordinate { users, groups }) = subordinate else {
        separate(Namespaces::USER).map_err(missing::namespaces)?;
        return map_one(uid, gid).step(step);
    };
    // The programs that may map more than one id have to be started from outside.
    let engine = rustix::process::getpid().as_raw_pid().to_string();
    let (mut gate, mut opened) = io::pipe().step(step)?;
    let mapper = match fork(Namespaces::NONE).step(step)? {
        Side::Child => {
            drop(opened);
            let ready = matches!(gate.read(&mut [0]), Ok(1));
            let mapped = ready
                && map_many("newuidmap", &engine, uid, users)
                && map_many("newgidmap", &engine, gid, groups);
            leave(i32::from(!mapped))
        }
        Side::Parent(mapper) => mapper,
    };
    drop(gate);
    separate(Namespaces::USER).map_err(missing::namespaces)?;
    opened.write_all(&[1]).step(step)?;
    if succeeded(mapper).step(step)? {
        return Ok(());
    }
    // One id is better than none, as long as neither program got anywhere.
    map_one(uid, gid).map_err(|_| {
        let cause = "newuidmap or newgidmap refused the ids that /etc/subuid and /etc/subgid \
                     promise to this user; see `soma doctor`";
        Failure::new(step, cause, Kind::Unsupported)
    })
}

fn succeeded(child: Pid) -> io::Result<bool> {
    let status = waitpid(Some(child), WaitOptions::empty())?;
    Ok(status.and_then(|(_, status)| status.exit_status()) == Some(0))
}

/// The user's own id alone, which everybody may map.
fn map_one(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

fn map_many(program: &str, process: &str, own: u32, more: IdRange) -> bool {
    let numbers = [0, own, 1, 1, more.base, more.count].map(|number| number.to_string());
    command(program).arg(process).args(numbers).status().is_ok_and(|status| status.success())
}

/// The ids that the host promises to this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Subordinate {
    users: IdRange,
    groups: IdRange,
}

/// Reads what is promised. None also when the programs that could map it are not there: then
/// sandboxes have one id, and `soma doctor` says why.
fn subordinate() -> Option<Subordinate> {
    let there = |program: &str| {
        let folders = sys_linux::command::SYSTEM_PATH.split(':');
        folders.into_iter().any(|folder| fs::exists(format!("{folder}/{program}")).unwrap_or(false))
    };
    if !there("newuidmap") || !there("newgidmap") {
        return None;
    }
    let uid = getuid().as_raw().to_string();
    let name = command("id").arg("-un").output().ok();
    let name = name.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let own = [name.as_deref().unwrap_or(&uid), &uid];
    let users = promised(&fs::read_to_string("/etc/subuid").ok()?, own)?;
    let groups = promised(&fs::read_to_string("/etc/subgid").ok()?, own)?;
    // One number means one user and one group, so both need as many.
    let count = users.count.min(groups.count);
    Some(Subordinate { users: IdRange { count, ..users }, groups: IdRange { count, ..groups } })
}

/// The largest range of whoever has one of these names.
fn promised(text: &str, names: [&str; 2]) -> Option<IdRange> {
    text.lines()
        .filter_map(parse_promise)
        .filter(|(whose, ..)| names.contains(whose))
        .map(|(_, base, count)| IdRange { base, count })
        .max_by_key(|range| range.count)
}

/// Whether a map is that of the host itself.
pub(crate) fn is_whole(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// How many ids follow without a gap behind id 0 of a map.
fn ids_beside_root(map: &str) -> u32 {
    let mut lines: Vec<(u32, u32)> = map
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().map(str::parse);
            let inside = fields.next()?.ok()?;
            Some((inside, fields.nth(1)?.ok()?))
        })
        .collect();
    lines.sort_unstable();
    let end =
        lines.iter().fold(
            0,
            |end, (inside, count)| {
                if *inside == end { inside.saturating_add(*count) } else { end }
            },
        );
    end.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_root_is_told_from_a_containers() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("0 100000 65536\n"));
        assert!(!is_whole(""));
    }

    #[test]
    fn the_largest_promise_to_this_user_counts() {
        let text = "bob:1:9\nalice:100000:1000\n54321:300000:65536\nalice:x:1\n";
        let range = promised(text, ["alice", "54321"]).unwrap();
        assert_eq!((range.base, range.count), (300_000, 65_536));
        assert_eq!(promised(text, ["carol", "7"]), None);
    }

    #[test]
    fn only_ids_without_a_gap_are_counted() {
        assert_eq!(ids_beside_root("0 1000 1\n1 300000 65536\n"), 65_536);
        assert_eq!(ids_beside_root("1 300000 65536\n0 1000 1\n"), 65_536);
        assert_eq!(ids_beside_root("0 1000 1\n"), 0);
        assert_eq!(ids_beside_root("0 1000 1\n5 300000 65536\n"), 0);
        assert_eq!(ids_beside_root("1000 0 1\n"), 0);
    }
}
