//! Which process has a socket open.
//!
//! The kernel tells it only to those with the very ids of the process that is looked at, root
//! included, whose capability for more the sandbox does not have. So a thread of its own takes
//! on the effective ids of one owner after the other; its real ids stay root's, so nobody may
//! signal or trace it meanwhile. The thread ends with the look, and the ids with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::read_start;
use crate::identity::keeps_shut;

/// As many processes as are looked at for one answer.
const MOST_PROCESSES: usize = 8192;

/// As many open files as are looked at for one answer: about a tenth of a second.
const MOST_FILES: usize = 1 << 16;

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    /// Made by the process itself: text without promise, short.
    pub(super) name: String,
    /// When it began, in the kernel's ticks: another one with its id began later.
    begun: u64,
}

impl Holder {
    /// Whether it is still there.
    pub(super) fn lives(&self) -> bool {
        begun(self.pid) == Some(self.begun)
    }
}

/// Finds who holds these sockets. What nobody may know is left out.
pub(super) fn find(wanted: &HashSet<u64>) -> HashMap<u64, Holder> {
    if wanted.is_empty() {
        return HashMap::new();
    }
    std::thread::scope(|scope| {
        let search = std::thread::Builder::new().name("holders".to_owned());
        // Without a thread, at the limit of processes, nobody is known this time.
        let searching = search.spawn_scoped(scope, || search_all(wanted));
        searching.ok().and_then(|search| search.join().ok()).unwrap_or_default()
    })
}

fn search_all(wanted: &HashSet<u64>) -> HashMap<u64, Holder> {
    let mut found = HashMap::new();
    let mut files = MOST_FILES;
    for (owner, processes) in by_owner() {
        if !take_on(owner) {
            continue;
        }
        for pid in processes {
            if found.len() == wanted.len() || files == 0 {
                return found;
            }
            for inode in sockets_of(pid, &mut files) {
                if wanted.contains(&inode)
                    && !found.contains_key(&inode)
                    && let Some(holder) = describe(pid)
                {
                    found.insert(inode, holder);
                }
            }
        }
    }
    found
}

/// The ids of a process: user and group, where its real, effective and saved ones agree.
type Owner = (u32, u32);

fn by_owner() -> BTreeMap<Owner, Vec<u32>> {
    let mut owners: BTreeMap<Owner, Vec<u32>> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return owners };
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    for pid in pids.take(MOST_PROCESSES) {
        if let Some(owner) = owner_of(pid) {
            owners.entry(owner).or_default().push(pid);
        }
    }
    for processes in owners.values_mut() {
        processes.sort_unstable();
    }
    owners
}

fn owner_of(pid: u32) -> Option<Owner> {
    let status = read_start(&format!("/proc/{pid}/status"))?;
    let status = String::from_utf8_lossy(&status);
    let id = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let mut ids = line.split_ascii_whitespace().map_while(|id| id.parse::<u32>().ok());
        let (real, effective, saved) = (ids.next()?, ids.next()?, ids.next()?);
        (real == effective && effective == saved).then_some(real)
    };
    Some((id("Uid:")?, id("Gid:")?))
}

/// Takes on the owner's ids, for this thread alone.
fn take_on((uid, gid): Owner) -> bool {
    let root = rustix::process::getuid();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if (uid, gid) == (rustix::process::geteuid(), rustix::process::getegid()) {
        return true;
    }
    keeps_shut()
        // Back to root first: only it may become somebody else.
        && set_thread_res_uid(None, root, None).is_ok()
        && set_thread_res_gid(None, gid, None).is_ok()
        && set_thread_res_uid(None, uid, None).is_ok()
}

/// The sockets that a process has open.
fn sockets_of(pid: u32, files: &mut usize) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let mut sockets = Vec::new();
    for entry in entries.flatten().take(*files) {
        *files -= 1;
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let name = target.to_str().and_then(|name| name.strip_prefix("socket:["));
        if let Some(inode) = name.and_then(|name| name.strip_suffix(']')?.parse().ok()) {
            sockets.push(inode);
        }
    }
    sockets
}

fn describe(pid: u32) -> Option<Holder> {
    let name = read_start(&format!("/proc/{pid}/comm"))?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    // The kernel holds 15 bytes of it, whatever they are.
    let name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
    Some(Holder { pid, name, begun: begun(pid)? })
}

fn begun(pid: u32) -> Option<u64> {
    let stat = read_start(&format!("/proc/{pid}/stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    // The name of the program may hold blanks and brackets; the last bracket ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // One that ended and was not waited for holds nothing any more.
    let state = fields.next()?;
    let begun = fields.nth(18)?.parse().ok()?;
    (state != "Z").then_some(begun)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn this_process_holds_its_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = rustix::fs::fstat(listener.as_fd()).unwrap().st_ino;
        let found = find(&HashSet::from([inode, u64::MAX]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[&inode].pid, std::process::id());
        assert!(found[&inode].lives());
        assert!(!Holder { begun: 1, ..found[&inode].clone() }.lives());
    }
}
