//! Acting as somebody else for a moment, on a thread of its own.
//!
//! The guest is root of its sandbox. What is done for a user with that user's permissions is
//! done by a thread that takes on the user's effective ids: the kernel then decides as it would
//! for a program of the user. Its real ids stay root's, so nobody may signal or trace it
//! meanwhile. The thread ends with the work, and the ids with it.

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::users::User;

/// Does the work with the permissions of `user`; or says why it cannot. Blocks.
pub(crate) fn as_user<T: Send>(user: &User, work: impl FnOnce() -> T + Send) -> Result<T, String> {
    if is_already(user) {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("as-user".to_owned());
        let working = thread.spawn_scoped(scope, || {
            take_on(user)?;
            Ok(work())
        });
        let working = working.map_err(|error| format!("no thread can be started: {error}"))?;
        working.join().unwrap_or_else(|_| Err("the work was cut short".to_owned()))
    })
}

/// Whether changes of ids leave this process's memory shut: where the kernel lets a program that
/// changed its ids be dumped by anybody, process 1 would lose its protection with one.
pub(crate) fn keeps_shut() -> bool {
    std::fs::read("/proc/sys/fs/suid_dumpable").is_ok_and(|value| !value.starts_with(b"1"))
}

fn is_already(user: &User) -> bool {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    (uid.as_raw(), gid.as_raw()) == (user.uid, user.gid)
}

/// Takes on the user's ids, for this thread alone. The user comes last: only root may do it.
fn take_on(user: &User) -> Result<(), String> {
    if !keeps_shut() {
        return Err("the host lets programs that change their user be dumped by anybody \
                    (fs.suid_dumpable is 1 or hidden): nothing can be done as another user"
            .to_owned());
    }
    let groups: Vec<_> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)
        .and_then(|()| set_thread_res_gid(None, Gid::from_raw(user.gid), None))
        .and_then(|()| set_thread_res_uid(None, Uid::from_raw(user.uid), None))
        .map_err(|errno| format!("cannot act as the user '{}': {errno}", user.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_are_the_users_and_only_for_the_work() {
        let Some(nobody) = crate::users::find("nobody") else { return };
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let ids = || (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(as_user(&nobody, ids).unwrap(), (nobody.uid, nobody.gid));
        let read = as_user(&nobody, || std::fs::read("/etc/shadow"));
        assert_eq!(read.unwrap().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(ids().0, 0);
    }
}
