//! What a process does to itself before it becomes another program, and how it hears of its
//! children.
//!
//! Forking is in [`crate::namespace`]; waiting and sending signals are safe in rustix already.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Arguments or environment of a program, laid out as the kernel wants them.
#[derive(Debug)]
pub struct Strings {
    /// Never changed after `pointers` was filled: those point into it.
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    /// Lays the strings out.
    pub fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { strings, pointers }
    }

    /// The strings themselves.
    pub fn as_slice(&self) -> &[CString] {
        &self.strings
    }
}

/// Becomes another program. Returns only when that failed, with the reason.
pub fn execute(program: &CStr, arguments: &Strings, environment: &Strings) -> io::Error {
    // SAFETY: the program's name ends with a zero byte; both lists end with a null pointer, and
    // what they point to lives as long as the borrowed `Strings`.
    unsafe {
        libc::execve(program.as_ptr(), arguments.pointers.as_ptr(), environment.pointers.as_ptr());
    }
    io::Error::last_os_error()
}

/// Becomes another user for good: supplementary groups, then the group, then the user, because
/// after the last step the others are forbidden.
///
/// Where there is only one id, nobody may change the groups, and whoever is that user already is
/// left as it is.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length describe the slice, which outlives the call.
    let grouped = checked(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) });
    let is_already =
        rustix::process::geteuid().as_raw() == uid && rustix::process::getegid().as_raw() == gid;
    match grouped {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && is_already => return Ok(()),
        other => other?,
    }
    // SAFETY: takes plain numbers.
    checked(unsafe { libc::setgid(gid) })?;
    // SAFETY: takes plain numbers.
    checked(unsafe { libc::setuid(uid) })
}

/// Lets every signal do what it does by default, and blocks none.
pub fn reset_signals() -> io::Result<()> {
    // The kernel's own structure for a signal's action, all zeroes: the default, no flags. libc
    // would refuse the two signals that it keeps for threads, and those can be inherited ignored.
    let action = [0u64; 4];
    for number in 1..=64 {
        // SAFETY: the structure is as long as the kernel's and lives during the call; the default
        // action runs no code of ours. SIGKILL and SIGSTOP are refused, which is as it should be.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                action.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            );
        }
    }
    mask(libc::SIG_SETMASK, &[])
}

/// Ignores a signal.
pub fn ignore(signal: i32) {
    // SAFETY: SIG_IGN runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Lets children that end be waited for, also where whoever started us did not want that.
pub fn wait_for_children() {
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Lets the kernel forget children that ended, so that nobody need wait for them.
pub fn forget_children() {
    ignore(libc::SIGCHLD);
}

/// Blocks `SIGCHLD` and opens a descriptor that is readable when one has come.
///
/// The program that a child becomes must get a clean mask again: [`unblock_signals`].
pub fn children_descriptor() -> io::Result<OwnedFd> {
    wait_for_children();
    signals_descriptor(&[libc::SIGCHLD])
}

/// Blocks `SIGTERM` and `SIGINT` and opens a descriptor that is readable when one has come.
///
/// What a child becomes must get a clean mask again: [`unblock_signals`].
pub fn termination_descriptor() -> io::Result<OwnedFd> {
    signals_descriptor(&[libc::SIGTERM, libc::SIGINT])
}

/// Blocks the given signals and opens a descriptor that is readable when one of them has come.
///
/// What a child becomes must get a clean mask again: [`unblock_signals`].
pub fn signals_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    mask(libc::SIG_BLOCK, signals)?;
    let set = signal_set(signals);
    // SAFETY: the set lives during the call; -1 asks for a new descriptor.
    let number =
        unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    checked(number)?;
    // SAFETY: the kernel has just given us this descriptor, nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The next signal that came to a descriptor of [`signals_descriptor`]; none when all were read.
pub fn next_signal(descriptor: impl AsFd) -> io::Result<Option<i32>> {
    // The kernel writes whole records, each beginning with the signal's number.
    let mut record = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::read(descriptor, &mut record) {
        Ok(length) if length == record.len() => {
            let [a, b, c, d, ..] = record;
            Ok(Some(i32::from_ne_bytes([a, b, c, d])))
        }
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether this process ignores a signal, as one started by `nohup` ignores a hang-up.
pub fn ignores(signal: i32) -> bool {
    // SAFETY: `sigaction` is plain data, for which all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; the pointer is to a `sigaction` of ours.
    let known = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } == 0;
    known && action.sa_sigaction == libc::SIG_IGN
}

/// Blocks no signal any more.
pub fn unblock_signals() -> io::Result<()> {
    mask(libc::SIG_SETMASK, &[])
}

/// Lets every descriptor from the given number on be closed when another program is executed,
/// and not before: a failed execution can still be reported through one of them.
pub fn close_on_execute_from(first: RawFd) -> io::Result<()> {
    // SAFETY: sets a flag on descriptors, closes none.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, first, RawFd::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn mask(how: c_int, signals: &[c_int]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: the set lives during the call; no old mask is asked for.
    checked(unsafe { libc::sigprocmask(how, &raw const set, ptr::null_mut()) })
}

fn signal_set(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, for which all zeroes is a valid value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `sigset_t` of ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: as above; a number that is no signal is refused.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

fn checked(result: c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_gives_the_reason() {
        let none = Strings::new(Vec::new());
        let error = execute(c"/nowhere/at/all", &none, &none);
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn what_rust_ignores_is_known_as_ignored() {
        assert!(ignores(libc::SIGPIPE));
        assert!(!ignores(libc::SIGWINCH));
        assert!(!ignores(4000));
    }

    #[test]
    fn strings_end_with_a_null_pointer() {
        let strings = Strings::new(vec![c"one".into(), c"two".into()]);
        assert_eq!(strings.pointers.len(), 3);
        assert!(strings.pointers[2].is_null());
        assert_eq!(strings.as_slice()[1].as_c_str(), c"two");
    }
}
