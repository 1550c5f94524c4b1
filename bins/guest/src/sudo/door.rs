//! Process 1's side: who may use `sudo`, and whose keeper runs it.
//!
//! Each message is complete in itself, so nobody can hold anybody up by sending half of one.
//! Whatever may take time happens on few threads of its own: reading `/etc/group` and `/proc`,
//! and above all closing the descriptors that came along, because a socket can be set to make
//! whoever closes it last wait for hours.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use sys_linux::sender::{self, Received, Sender};
use tokio::io::Interest;
use tokio::sync::Semaphore;

use super::request::{ASK, Parts, RUN, Reply};
use crate::state::State;
use crate::users;

/// Messages that are looked at at the same time.
const MOST_AT_ONCE: usize = 8;

/// How often a caller's keeper is looked for. The guest may hear of a keeper only a moment after
/// its command has begun.
const PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];

/// More ancestors than any process has that somebody started with reason.
const MOST_ANCESTORS: usize = 4096;

/// The socket that shims send to.
#[derive(Debug)]
pub(crate) struct Door(UnixDatagram);

impl Door {
    /// Opens it. Before anything else runs in the sandbox, so that nobody else can.
    pub(crate) fn open(outside: Option<&OsString>) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&super::address(outside)?)?;
        sender::ask_for_senders(&socket)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

/// Answers shims until the process ends.
pub(crate) async fn serve(door: Door, state: Arc<State>) -> io::Error {
    let socket = match tokio::net::UnixDatagram::from_std(door.0) {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    loop {
        let place = match Arc::clone(&places).acquire_owned().await {
            Ok(place) => place,
            Err(closed) => return io::Error::other(closed),
        };
        let mut word = [0; 16];
        let receive = || sender::receive(&socket, &mut word);
        match socket.async_io(Interest::READABLE, receive).await {
            Ok(received) => {
                let state = Arc::clone(&state);
                tokio::task::spawn_blocking(move || {
                    answer(&word, received, &state);
                    drop(place);
                });
            }
            // Out of memory, most likely.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Answers one message. One that is none of a shim's is not answered.
fn answer(word: &[u8], received: Received, state: &State) {
    let Received { length, descriptors, sender, cut } = received;
    for descriptor in &descriptors {
        // A socket can be set to make whoever closes it wait; what is none refuses this.
        let _ = rustix::net::sockopt::set_socket_linger(descriptor, None);
    }
    let Some(sender) = sender.filter(|_| !cut) else { return };
    let Some(conversation) = descriptors.first() else { return };
    let word = word.get(..length).unwrap_or_default();
    let reply = match judge(sender, state) {
        Err(why) => Some(Reply::refused(&why)),
        Ok(()) if word == ASK => Some(Reply::Allowed),
        Ok(()) if word == RUN => hand_over(sender, &descriptors, state).err(),
        Ok(()) => None,
    };
    if let Some(reply) = reply {
        reply.send(conversation);
    }
}

/// Whether this caller may use `sudo`, or why not.
fn judge(sender: Sender, state: &State) -> Result<(), String> {
    if !state.defaults().sudo {
        return Err("this sandbox does not allow it (it was made without sudo)".to_owned());
    }
    if sender.uid == 0 {
        return Ok(());
    }
    let user = users::find_by_id(sender.uid);
    let group = users::group_id("sudo");
    match (user, group) {
        (Some(user), Some(group)) if user.groups.contains(&group) => Ok(()),
        (user, _) => {
            let name = user.map_or_else(|| format!("user {}", sender.uid), |user| user.name);
            Err(format!("{name} is not in the sudoers file: it is not in the group `sudo`"))
        }
    }
}

/// Gives the request to the keeper of the command that it came from.
fn hand_over(sender: Sender, descriptors: &[OwnedFd], state: &State) -> Result<(), Reply> {
    if descriptors.len() != Parts::COUNT {
        return Err(Reply::refused("the request is not complete"));
    }
    let nobodys = || Reply::refused("it was not called by a command of this sandbox");
    let caller = sender.pid.ok_or_else(nobodys)?.as_raw_pid();
    let keepers = &state.processes.keepers;
    let keeper = PAUSES
        .iter()
        .find_map(|pause| {
            std::thread::sleep(*pause);
            ancestors(caller).find_map(|pid| keepers.find(pid))
        })
        .ok_or_else(nobodys)?;
    let along: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    keeper.pass_on(&along).map_err(|error| {
        Reply::refused(&format!("the command that called it cannot start another: {error}"))
    })
}

/// A process, its parent, and so on up to process 1.
///
/// A number can be given anew while this is looked at. Then something is kept by another command
/// of the same sandbox: a wrong place and no more than that, for whoever comes so far may use
/// `sudo`, and its root can end any keeper.
fn ancestors(pid: i32) -> impl Iterator<Item = i32> {
    std::iter::successors(Some(pid), |pid| parent(*pid)).take(MOST_ANCESTORS)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the parent is the second field behind it.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after..)?).ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().filter(|parent| *parent > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ancestors_of_a_process_begin_with_itself_and_end_with_the_first() {
        let own = i32::try_from(std::process::id()).unwrap();
        let all: Vec<i32> = ancestors(own).collect();
        let parent = rustix::process::getppid().unwrap().as_raw_pid();
        assert_eq!((all[0], all[1]), (own, parent));
        assert!(all.len() < 100, "{all:?}");
    }

    #[test]
    fn nobody_has_no_parent() {
        assert_eq!(parent(i32::MAX), None);
        assert_eq!(ancestors(i32::MAX).count(), 1);
    }
}
