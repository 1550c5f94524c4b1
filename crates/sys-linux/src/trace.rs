//! Following another program's system calls, for tests that make one fail or end there.
//!
//! The kernel answers about a traced thread only to the thread that traces it, and lets go of all
//! of them when that one ends. Registers are those of `x86_64`; elsewhere nothing can be traced.

use std::io;
use std::ptr;

/// What is told about traced threads beside their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The program's new threads are traced too.
    Threads,
    /// The processes that it forks are traced too.
    Children,
    /// Nobody else is, and it is told when it is about to end.
    Nobody,
}

impl Followed {
    fn options(self) -> libc::c_int {
        libc::PTRACE_O_TRACESYSGOOD
            | match self {
                Self::Threads => libc::PTRACE_O_TRACECLONE,
                Self::Children => libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK,
                Self::Nobody => libc::PTRACE_O_TRACEEXIT,
            }
    }
}

/// What happened to a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// It stands at a system call, before or after it.
    Call(i32),
    /// It stands because it was told to, or because it has just come to be traced.
    Stopped(i32),
    /// It stands because somebody whom it made is traced now.
    Made(i32),
    /// It stands at a signal that it is to get.
    Signal(i32, i32),
    /// It stands because it is about to end.
    Ending(i32),
    /// It is gone.
    Gone(i32),
}

/// Traces a thread, which goes on until it is [interrupted](interrupt).
pub fn seize(thread: i32, followed: Followed) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, thread, 0, data(followed.options()))
}

/// Lets a traced thread stop.
pub fn interrupt(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, thread, 0, 0)
}

/// Changes what is told about a thread that stands.
pub fn follow(thread: i32, followed: Followed) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, thread, 0, data(followed.options()))
}

/// Lets a thread that stands go on to its next call, or as far as it likes, with a signal or zero.
pub fn go_on(thread: i32, to_next_call: bool, signal: i32) -> io::Result<()> {
    let how = if to_next_call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
    request(how, thread, 0, data(signal))
}

/// Lets a thread that stands go on, and traces it no more.
pub fn let_go(thread: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, thread, 0, 0)
}

/// What happened to some thread that this one traces; `None` when nothing did.
pub fn news() -> io::Result<Option<News>> {
    let mut status = 0;
    // Of all kinds of threads, but none that another thread of ours started or traces.
    let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    // SAFETY: the status is ours to write to during the call.
    let thread = unsafe { libc::waitpid(-1, &raw mut status, options) };
    if thread < 0 {
        return Err(io::Error::last_os_error());
    }
    if thread == 0 {
        return Ok(None);
    }
    if !libc::WIFSTOPPED(status) {
        return Ok(Some(News::Gone(thread)));
    }
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    Ok(Some(match (event, signal) {
        (0, signal) if signal == libc::SIGTRAP | 0x80 => News::Call(thread),
        (0, signal) => News::Signal(thread, signal),
        (libc::PTRACE_EVENT_STOP, _) => News::Stopped(thread),
        (libc::PTRACE_EVENT_EXIT, _) => News::Ending(thread),
        _ => News::Made(thread),
    }))
}

/// The registers of a thread that stands at a system call.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// Reads them.
    pub fn read(thread: i32) -> io::Result<Self> {
        // SAFETY: the structure is plain numbers, for which all zeroes are fine.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one such structure, which is ours, during the call.
        checked(unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                thread,
                ptr::null_mut::<libc::c_void>(),
                &raw mut registers,
            )
        })?;
        Ok(Self(registers))
    }

    /// Whether the call is about to begin: the kernel puts "no such call" where the result goes,
    /// until there is one.
    pub fn is_beginning(&self) -> bool {
        self.0.rax == (-i64::from(libc::ENOSYS)).cast_unsigned()
    }

    /// Which call it is.
    pub fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    /// Its first four arguments.
    pub fn arguments(&self) -> [u64; 4] {
        [self.0.rdi, self.0.rsi, self.0.rdx, self.0.r10]
    }

    /// Lets a call that is about to begin fail with this error instead of being made.
    pub fn fail(mut self, thread: i32, error: i32) -> io::Result<()> {
        self.0.orig_rax = u64::MAX;
        self.0.rax = (-i64::from(error)).cast_unsigned();
        // SAFETY: the kernel reads one such structure, which is ours, during the call.
        checked(unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGS,
                thread,
                ptr::null_mut::<libc::c_void>(),
                &raw const self.0,
            )
        })
    }
}

/// Nobody's: elsewhere nothing can be traced.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
pub struct Registers(());

#[cfg(not(target_arch = "x86_64"))]
impl Registers {
    /// Says that there are none.
    pub fn read(_: i32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the call is about to begin.
    pub fn is_beginning(&self) -> bool {
        false
    }

    /// Which call it is.
    pub fn number(&self) -> i64 {
        -1
    }

    /// Its first four arguments.
    pub fn arguments(&self) -> [u64; 4] {
        [0; 4]
    }

    /// Says that it cannot be done.
    pub fn fail(self, _: i32, _: i32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn data(number: libc::c_int) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn request(request: libc::c_uint, thread: i32, address: usize, data: usize) -> io::Result<()> {
    let [address, data] = [address, data].map(ptr::without_provenance_mut::<libc::c_void>);
    // SAFETY: none of the requests that come here reads or writes memory of ours: what they take
    // are numbers.
    checked(unsafe { libc::ptrace(request, thread, address, data) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
