//! One system call of a traced thread, at the moment it begins.
//!
//! What it is and what it is about come from the thread's registers and memory; it can be made to
//! fail instead of being made.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use sys_linux::trace::Registers;

/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4096;

/// A system call that begins.
pub(super) struct SystemCall {
    thread: i32,
    registers: Registers,
}

impl SystemCall {
    /// The call at which a stopped thread stands, if it has not been made yet.
    pub(super) fn beginning(thread: i32) -> Option<Self> {
        let registers = Registers::read(thread).ok()?;
        registers.is_beginning().then_some(Self { thread, registers })
    }

    /// Whether it writes what is kept in this folder.
    pub(super) fn writes_below(&self, folder: &Path) -> bool {
        self.written().is_some_and(|path| path.starts_with(folder))
    }

    /// Lets the thread see this error instead of making the call.
    pub(super) fn fail(&self, error: i32) {
        // One that is being killed sees no error, and need not.
        let _ = self.registers.fail(self.thread, error);
    }

    /// The file that a descriptor of the thread leads to.
    fn file(&self, descriptor: u64) -> Option<PathBuf> {
        let descriptor = descriptor & 0xffff_ffff;
        std::fs::read_link(format!("/proc/{}/fd/{descriptor}", self.thread)).ok()
    }

    /// A path in the thread's memory, seen from the folder of a descriptor.
    fn path(&self, folder: Option<u64>, address: u64) -> Option<PathBuf> {
        let memory = File::open(format!("/proc/{}/mem", self.thread)).ok()?;
        let mut bytes = vec![0; LONGEST_PATH];
        let mut length = memory.read_at(&mut bytes, address).unwrap_or(0);
        if length == 0 {
            // The string may end just before memory that is not there.
            let left = usize::try_from(4096 - address % 4096).ok()?;
            length = memory.read_at(&mut bytes[..left.min(LONGEST_PATH)], address).ok()?;
        }
        let end = bytes[..length].iter().position(|byte| *byte == 0)?;
        let path = PathBuf::from(std::str::from_utf8(&bytes[..end]).ok()?);
        if path.is_absolute() {
            return Some(path);
        }
        let at_own_folder = i64::from(libc::AT_FDCWD) & 0xffff_ffff;
        let from = match folder {
            Some(folder) if i64::try_from(folder & 0xffff_ffff) != Ok(at_own_folder) => {
                self.file(folder)?
            }
            _ => std::fs::read_link(format!("/proc/{}/cwd", self.thread)).ok()?,
        };
        Some(from.join(path))
    }

    /// What it is and what it is about, for whoever reads why a test failed.
    pub(super) fn describe(&self) -> String {
        let about = self.written().map_or_else(String::new, |path| format!(" {}", path.display()));
        format!("system call {}{about}", self.registers.number())
    }

    /// Whether it wants another descriptor.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn opens(&self) -> bool {
        let duplicates = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].map(i32::cast_unsigned);
        match self.registers.number() {
            libc::SYS_open
            | libc::SYS_openat
            | libc::SYS_openat2
            | libc::SYS_socket
            | libc::SYS_socketpair
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_dup
            | libc::SYS_pipe
            | libc::SYS_pipe2
            | libc::SYS_eventfd2
            | libc::SYS_timerfd_create
            | libc::SYS_memfd_create
            | libc::SYS_pidfd_open
            | libc::SYS_open_tree
            | libc::SYS_fsopen
            | libc::SYS_fsmount => true,
            libc::SYS_fcntl => {
                duplicates.iter().any(|flag| u64::from(*flag) == self.registers.arguments()[1])
            }
            _ => false,
        }
    }

    /// The file or folder that it writes, makes, names or removes.
    #[cfg(target_arch = "x86_64")]
    fn written(&self) -> Option<PathBuf> {
        let [first, second, third, fourth] = self.registers.arguments();
        let changes = (libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
        match self.registers.number() {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_ftruncate
            | libc::SYS_fallocate
            | libc::SYS_sendfile => self.file(first),
            libc::SYS_copy_file_range => self.file(third),
            libc::SYS_openat if third & u64::from(changes) != 0 => self.path(Some(first), second),
            libc::SYS_open if second & u64::from(changes) != 0 => self.path(None, first),
            libc::SYS_mkdir | libc::SYS_rmdir | libc::SYS_unlink => self.path(None, first),
            libc::SYS_mkdirat | libc::SYS_unlinkat => self.path(Some(first), second),
            libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => self.path(None, second),
            libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
                self.path(Some(third), fourth)
            }
            libc::SYS_symlinkat => self.path(Some(second), third),
            _ => None,
        }
    }
}

/// Elsewhere calls have other numbers, and nobody asks.
#[cfg(not(target_arch = "x86_64"))]
impl SystemCall {
    pub(super) fn opens(&self) -> bool {
        false
    }

    fn written(&self) -> Option<PathBuf> {
        [self.file(0), self.path(None, 0)].into_iter().flatten().next()
    }
}
