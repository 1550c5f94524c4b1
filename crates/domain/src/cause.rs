//! Why a command failed, where that can be known.
//!
//! A guest tells by a word what it found out about its sandbox ([`Cause::word`]); what a signal or
//! an exit code says by itself is found by whoever reads it ([`Cause::of_end`]). Either way it is
//! told with what happened and what to do next.

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The sandbox ran out of memory, and the kernel killed a process in it.
    OutOfMemory,
    /// The sandbox was at its limit of processes.
    ProcessLimit,
    /// The sandbox's disk has no room.
    DiskFull,
    /// The sandbox's disk has room, but not for another file.
    InodesFull,
    /// The sandbox's disk has room, and the host's below it has none.
    HostDiskFull,
    /// The sandbox's disk broke: it can be read and not written.
    DiskFailed,
    /// `/dev/shm` has no room.
    SharedMemoryFull,
    /// It took longer than it was given.
    Timeout,
    /// It used memory that it may not.
    SegmentationFault(By),
    /// A signal ended it.
    Signal(By),
}

/// Whom a signal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The command itself.
    Signal(i32),
    /// A program that it ran, as a shell's exit code says.
    Code(i32),
}

impl By {
    fn number(self) -> i32 {
        match self {
            Self::Signal(number) => number,
            Self::Code(code) => code - SHELLS,
        }
    }
}

/// What a shell adds to the number of the signal that ended what it ran.
const SHELLS: i32 = 128;

const BUS_ERROR: i32 = 7;
const KILL: i32 = 9;
const SEGMENTATION_FAULT: i32 = 11;

/// The signals that a program gets for a fault of its own, or from the kernel. Others are sent by
/// somebody who knows why, and a code that looks like one may be the program's own.
const FAULTS: [i32; 8] = [3, 4, 5, 6, BUS_ERROR, 8, KILL, 31];

impl Cause {
    /// What the end of a command says by itself. `code` is what it left with.
    pub fn of_end(code: i32, signal: Option<i32>) -> Option<Self> {
        let by = match signal {
            Some(signal) => By::Signal(signal),
            None if code == SHELLS + SEGMENTATION_FAULT || FAULTS.contains(&(code - SHELLS)) => {
                By::Code(code)
            }
            None => return None,
        };
        match by.number() {
            SEGMENTATION_FAULT | BUS_ERROR => Some(Self::SegmentationFault(by)),
            _ => Some(Self::Signal(by)),
        }
    }

    /// What a guest tells about its sandbox, as a word; none for what the end says by itself.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::OutOfMemory => Some("out_of_memory"),
            Self::ProcessLimit => Some("process_limit"),
            Self::DiskFull => Some("disk_full"),
            Self::InodesFull => Some("inodes_full"),
            Self::HostDiskFull => Some("host_disk_full"),
            Self::DiskFailed => Some("disk_failed"),
            Self::SharedMemoryFull => Some("shared_memory_full"),
            Self::Timeout | Self::SegmentationFault(_) | Self::Signal(_) => None,
        }
    }

    /// The cause that a guest told; none for a word of a later version.
    pub fn from_word(word: &str) -> Option<Self> {
        let told = [
            Self::OutOfMemory,
            Self::ProcessLimit,
            Self::DiskFull,
            Self::InodesFull,
            Self::HostDiskFull,
            Self::DiskFailed,
            Self::SharedMemoryFull,
        ];
        told.into_iter().find(|cause| cause.word() == Some(word))
    }

    /// A name for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::ProcessLimit => "process_limit",
            Self::DiskFull | Self::InodesFull | Self::SharedMemoryFull => "disk_full",
            Self::HostDiskFull => "host_disk_full",
            Self::DiskFailed => "disk_failed",
            Self::Timeout => "timeout",
            Self::SegmentationFault(_) => "segmentation_fault",
            Self::Signal(_) => "signal",
        }
    }

    /// What happened.
    pub fn message(self) -> String {
        match self {
            Self::OutOfMemory => {
                "the sandbox ran out of memory, and the kernel killed a process in it".to_owned()
            }
            Self::ProcessLimit => {
                "the sandbox was at its limit of processes while the command ran".to_owned()
            }
            Self::DiskFull => "the sandbox's disk is full".to_owned(),
            Self::InodesFull => "the sandbox's disk has no room for another file".to_owned(),
            Self::HostDiskFull => {
                "the disk of the host is nearly full, so that of the sandbox takes no more"
                    .to_owned()
            }
            Self::DiskFailed => {
                "the sandbox's disk broke, because the host's is full or broken: it can be read, \
                 and nothing can be written to it"
                    .to_owned()
            }
            Self::SharedMemoryFull => "/dev/shm of the sandbox is full".to_owned(),
            Self::Timeout => "the command took longer than it was given, and was ended with all \
                              that it had started"
                .to_owned(),
            Self::SegmentationFault(by) | Self::Signal(by) => by.message(),
        }
    }

    /// What to do next.
    pub fn hint(self) -> &'static str {
        match self {
            Self::OutOfMemory => {
                "use less, or raise the limit with `soma limit --memory` or when the sandbox is \
                 made"
            }
            Self::ProcessLimit => {
                "end processes that are not needed, or raise the limit with `soma limit --pids` \
                 or when the sandbox is made"
            }
            Self::DiskFull => "remove files, or make a sandbox with a larger `disk`",
            Self::InodesFull => "remove files, or make a sandbox with more `inodes`",
            Self::HostDiskFull => {
                "make room on the host, or delete sandboxes: it goes on by itself then, and nothing \
                 that was written is lost"
            }
            Self::DiskFailed => {
                "see that the host's disk has room and works, then `soma stop` and `soma start` \
                 this sandbox: its disk is repaired, and has what programs had synchronised"
            }
            Self::SharedMemoryFull => {
                "remove files in it, or make a sandbox with more memory, of which it is half"
            }
            Self::Timeout => "give it a longer timeout, or start it and leave it running",
            Self::SegmentationFault(_) => {
                "the program, or a library that it uses, is at fault: look for its own words \
                 before that"
            }
            Self::Signal(_) => "somebody in the sandbox sent it, or the program ended itself so",
        }
    }
}

impl By {
    fn message(self) -> String {
        let number = self.number();
        let name = name_of(number).map(|name| format!(" ({name})")).unwrap_or_default();
        match self {
            Self::Signal(_) => format!("signal {number}{name} ended the command"),
            Self::Code(code) => format!(
                "the exit code {code} says that signal {number}{name} ended a program which the \
                 command ran"
            ),
        }
    }
}

fn name_of(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL, an illegal instruction",
        5 => "SIGTRAP",
        6 => "SIGABRT, it gave up by itself",
        BUS_ERROR => "SIGBUS, memory that is not there",
        8 => "SIGFPE, an error of arithmetic",
        KILL => "SIGKILL",
        10 => "SIGUSR1",
        SEGMENTATION_FAULT => "SIGSEGV, a segmentation fault",
        12 => "SIGUSR2",
        13 => "SIGPIPE, nobody read its output",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS, a system call that is not allowed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_also_when_a_shell_tells_it() {
        let own = Cause::of_end(-1, Some(11)).unwrap();
        assert_eq!(own.code(), "segmentation_fault");
        assert!(own.message().contains("SIGSEGV"), "{}", own.message());
        let shells = Cause::of_end(139, None).unwrap();
        assert_eq!(
            (shells.code(), shells),
            ("segmentation_fault", Cause::SegmentationFault(By::Code(139)))
        );
        assert!(shells.message().starts_with("the exit code 139 says"), "{}", shells.message());
        assert_eq!(Cause::of_end(-1, Some(15)).unwrap().code(), "signal");
        assert_eq!(Cause::of_end(137, None).unwrap().code(), "signal");
    }

    #[test]
    fn an_ordinary_code_says_nothing() {
        for code in [0, 1, 2, 126, 127, 128, 130, 143, 255] {
            assert_eq!(Cause::of_end(code, None), None, "{code}");
        }
    }

    #[test]
    fn what_a_guest_tells_comes_back_and_other_words_do_not() {
        for cause in [
            Cause::OutOfMemory,
            Cause::ProcessLimit,
            Cause::DiskFull,
            Cause::InodesFull,
            Cause::HostDiskFull,
            Cause::DiskFailed,
            Cause::SharedMemoryFull,
        ] {
            assert_eq!(Cause::from_word(cause.word().unwrap()), Some(cause));
        }
        assert_eq!(Cause::from_word("of a later version"), None);
        assert_eq!(Cause::Timeout.word(), None);
    }
}
