//! Processes born into namespaces of their own.

use std::ffi::c_int;
use std::io;

use rustix::process::Pid;

/// The namespaces that a process can be born into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: an ordinary fork.
    pub const NONE: Self = Self(0);
    /// User ids and capabilities alone.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Mounts alone.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Process ids alone: the child is process 1, and all others in there end with it.
    pub const PROCESS: Self = Self(libc::CLONE_NEWPID as u64);
    /// The network alone.
    pub const NETWORK: Self = Self(libc::CLONE_NEWNET as u64);
    /// All that a sandbox has: user, mount, process, network, IPC, host name, cgroup.
    pub const ALL: Self = Self(
        (libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP) as u64,
    );
    /// Those of a sandbox that whoever restores it is in already: user, mount, host name, cgroup.
    pub const WAKING: Self = Self(
        (libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP)
            as u64,
    );
    /// What an ordinary user's engine needs of its own to go into a sandbox's and come back:
    /// mount, network, host name.
    pub const SURROUNDINGS: Self =
        Self((libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWUTS) as u64);

    /// These and others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Side {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(Pid),
}

/// Forks into the given namespaces.
///
/// It is a plain function and not `unsafe` because it must only be called by programs that
/// have a single thread: then the child is a whole copy, locks of the allocator included.
/// A process with more threads is refused.
pub fn fork(namespaces: Namespaces) -> io::Result<Side> {
    if !has_one_thread()? {
        return Err(io::Error::other("a process with several threads must not be forked"));
    }
    // The older of the two calls: filters can read its flags, so sandboxes may use it.
    let flags = namespaces.0 | libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM and without a new stack, clone acts as fork: the child goes on
    // here with a copy of all memory. The process has one thread, checked above, so no lock is
    // held by a thread that the child lacks. All pointers are null, and null is allowed.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .map(Side::Parent)
            .ok_or_else(|| io::Error::other("clone gave no process id")),
    }
}

/// Moves this process into a copy of its mount namespace.
pub fn leave_mounts() -> io::Result<()> {
    separate(Namespaces(libc::CLONE_NEWNS as u64))
}

/// Moves this process into new namespaces of the given kinds. It must have a single thread.
pub fn separate(namespaces: Namespaces) -> io::Result<()> {
    let flags = c_int::try_from(namespaces.0).map_err(io::Error::other)?;
    // SAFETY: the call is unsafe for flags that stop sharing memory or descriptors with other
    // threads, and no value of `Namespaces` has those.
    let result = unsafe { libc::unshare(flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ends this process at once, without running anything that its parent will also run.
pub fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

/// Gives the host name of this process's namespace.
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the pointer and the length describe the bytes of `name`, which outlives the call.
    let result = unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn has_one_thread() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.take(2).count() == 1)
}
