//! Finds and kills everything below a process.
//!
//! The kernel has no call for "this process and its descendants", so `/proc` is walked. Killing
//! while walking would race with forks; so every process found is first stopped, until a walk
//! finds nobody new. The kernel starts no child for a process with a pending signal, so a set of
//! stopped processes does not grow, however many times it wanted to fork.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::io;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// More rounds than any tree needs: even a fork bomb stands still once its members are stopped.
const MOST_ROUNDS: usize = 200;

/// Kills all that is below a process, and returns whether there was anybody. The dead still have
/// to be reaped.
pub(crate) fn kill(root: Pid) -> bool {
    kill_all(|| below(root))
}

/// The same for a session below a process: its leader, all that is in it, and all that is below
/// the leader. What is not below `root` is left alone, whatever its number.
pub(crate) fn kill_session(root: Pid, leader: Pid) -> bool {
    kill_all(|| {
        let mut found = below(root)?;
        let of_leader: HashSet<_> = below(leader)?.into_iter().map(|entry| entry.pid).collect();
        found
            .retain(|entry| entry.session == leader.as_raw_pid() || of_leader.contains(&entry.pid));
        Ok(found)
    })
}

/// Sends a signal to a process group that is led by a process below `root`.
pub(crate) fn signal_led(root: Pid, leader: Pid, signal: Signal) {
    let is_leader = |entry: &Entry| entry.pid == leader && entry.group == leader.as_raw_pid();
    if below(root).is_ok_and(|found| found.iter().any(is_leader)) {
        let _ = kill_process_group(leader, signal);
    }
}

/// Kills all that is found, until nobody new is.
fn kill_all(find: impl Fn() -> io::Result<Vec<Entry>>) -> bool {
    let mut stopped = HashSet::new();
    for _ in 0..MOST_ROUNDS {
        let Ok(found) = find() else { break };
        let new: Vec<Pid> =
            found.into_iter().map(|entry| entry.pid).filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            // One that ended in between is no loss.
            let _ = kill_process(pid, Signal::STOP);
            stopped.insert(pid);
        }
    }
    for pid in &stopped {
        let _ = kill_process(*pid, Signal::KILL);
    }
    !stopped.is_empty()
}

/// Sends a signal to all below this process that are in the given process group.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    for entry in below(getpid()).unwrap_or_default() {
        if entry.group == group.as_raw_pid() {
            let _ = kill_process(entry.pid, signal);
        }
    }
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pid: Pid,
    parent: i32,
    group: i32,
    session: i32,
    dead: bool,
}

/// All living processes below `root`.
fn below(root: Pid) -> io::Result<Vec<Entry>> {
    let mut children: HashMap<i32, Vec<Entry>> = HashMap::new();
    for entry in all()? {
        children.entry(entry.parent).or_default().push(entry);
    }
    let mut found = Vec::new();
    let mut parents = vec![root.as_raw_pid()];
    while let Some(parent) = parents.pop() {
        // Removed, so that a pid that was given anew during the walk cannot lead in circles.
        for entry in children.remove(&parent).unwrap_or_default() {
            parents.push(entry.pid.as_raw_pid());
            if !entry.dead {
                found.push(entry);
            }
        }
    }
    Ok(found)
}

/// All processes, the dead included.
fn all() -> io::Result<Vec<Entry>> {
    let proc =
        openat(CWD, "/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = [0; 512];
    let mut found = Vec::new();
    for entry in Dir::read_from(&proc)? {
        let entry = entry?;
        if !entry.file_name().to_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // A process that is gone by now is none of ours to find.
        found.extend(look(&proc, entry.file_name(), &mut text));
    }
    Ok(found)
}

fn look(proc: impl std::os::fd::AsFd, pid: &CStr, text: &mut [u8]) -> Option<Entry> {
    let path = [pid.to_bytes(), b"/stat"].concat();
    let file =
        openat(proc, path.as_slice(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (read, _) =
        rustix::io::read(file, &mut text[..]).ok().map(|length| text.split_at(length))?;
    parse(read)
}

/// Reads `pid (name) state parent group session ...`, where the name may hold anything.
fn parse(stat: &[u8]) -> Option<Entry> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    let pid = Pid::from_raw(pid)?;
    Some(Entry { pid, parent, group, session, dead: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse() {
        let entry = parse(b"42 (a) Z 1 (b) S 7 8 9 0 -1").unwrap();
        assert_eq!(entry.pid.as_raw_pid(), 42);
        assert_eq!((entry.parent, entry.group, entry.dead), (7, 8, false));
        assert!(parse(b"42 (x) Z 7 8 9").unwrap().dead);
    }

    #[test]
    fn half_a_line_is_nobody() {
        assert_eq!(parse(b"42 (a"), None);
        assert_eq!(parse(b"42 (a) S"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_child_is_found_below_its_parent() {
        let mut child = sys_linux::command::command("sleep").arg("30").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = below(getpid()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().any(|entry| entry.pid.as_raw_pid() == pid));
    }
}
