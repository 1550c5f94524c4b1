//! Starts the egress program, on the host and without privileges.
//!
//! An ordinary user's engine lives in namespaces of its own, network included, and has no way
//! back. What is to reach the network must therefore be started by a process that never left the
//! host: one that is forked when the engine begins, and does nothing else. It ends with the engine.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::net::{RecvFlags, SendFlags};
use sys_linux::command::command;
use sys_linux::descriptors::close_all_but;
use sys_linux::namespace::{Namespaces, Side, fork, leave};

use crate::home::{Home, open_own};
use crate::ids::EGRESS_ID;

pub(super) struct Nursery {
    socket: OwnedFd,
}

impl Nursery {
    /// Forks it. Nothing is started yet.
    pub(super) fn open() -> io::Result<Self> {
        let (near, far) = link::pair()?;
        if let Side::Child = fork(Namespaces::NONE)? {
            drop(near);
            // One that is forked later must not hold what the engine has.
            if close_all_but(&[far.as_raw_fd()]).is_ok() {
                serve(&far);
            }
            leave(0);
        }
        Ok(Self { socket: near })
    }

    /// Starts the egress program of a home, which listens at its socket from now on.
    pub(super) fn start(&self, home: &Home) -> io::Result<()> {
        make_folder(home)?;
        match fs::remove_file(home.path().join(Home::EGRESS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = link::listen_at(home.path(), Home::EGRESS)?;
        let log = open_own(&home.egress_log())?;
        log.set_len(0)?;
        let descriptors: [BorrowedFd<'_>; 2] = [listener.as_fd(), log.as_fd()];
        link::send(&self.socket, &home.path(), &descriptors, SendFlags::DONTWAIT)
    }
}

/// The egress program's own folder. Whatever is in it is not the engine's affair.
fn make_folder(home: &Home) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(home.egress()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if rustix::process::geteuid().is_root() && is_host() {
        chown(home.egress(), Some(EGRESS_ID), Some(EGRESS_ID))?;
    }
    Ok(())
}

/// Whether there are other ids than one's own to be had.
fn is_host() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| crate::rights::is_whole(&map))
}

/// The nursery's life: starts what it is told to until nobody is left to tell it.
fn serve(engine: &OwnedFd) {
    let _ = rustix::thread::set_name(c"soma-nursery");
    // Nobody asks how they ended.
    sys_linux::process::forget_children();
    let next = || link::receive::<PathBuf>(engine, RecvFlags::empty());
    while let Ok(Some((home, descriptors))) = next() {
        let Ok([listener, log]) = <[OwnedFd; 2]>::try_from(descriptors) else { continue };
        // The program that this process runs, also when another lies in its place by now.
        let mut program = command("/proc/self/exe");
        let mut named = OsString::from("--home=");
        named.push(home);
        program.arg("egress").arg(named);
        program.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(Stdio::from(log));
        // Away from the terminal of whoever started the engine.
        program.process_group(0);
        if rustix::process::geteuid().is_root() && is_host() {
            program.uid(EGRESS_ID).gid(EGRESS_ID);
        }
        let _ = program.spawn();
    }
}
