//! The kernels' programs, which the guest carries, and how each is started.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;

use guest_proto::code::Language;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// How the kernel of a language is started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    /// The interpreter and its arguments.
    pub(super) command: &'static [&'static str],
    /// What the interpreter is called by people, and how it is had.
    pub(super) install: &'static str,
    text: &'static [u8],
}

/// The kernel of a language.
pub(super) fn program(language: Language) -> Program {
    match language {
        Language::Python => Program {
            command: &[
                "python3",
                "-c",
                "import os;b=os.pread(0,1<<24,0);exec(compile(b[:b.index(b\"\\n#~ \")+1],\
                 \"<soma>\",\"exec\"),{\"b\":b,\"__name__\":\"soma\"})",
            ],
            install: "Python 3.8 or later (Debian and Ubuntu: apt-get install python3)",
            text: include_bytes!(concat!(env!("OUT_DIR"), "/python")),
        },
        Language::Javascript | Language::Typescript => Program {
            command: &[
                "node",
                "--no-warnings",
                "--no-force-async-hooks-checks",
                "-e",
                "eval(require(\"fs\").readFileSync(0, \"utf8\"))",
            ],
            install: "Node.js 18 or later (Debian and Ubuntu: apt-get install nodejs)",
            text: include_bytes!(concat!(env!("OUT_DIR"), "/node")),
        },
        Language::R => Program {
            command: &[
                "R",
                "--no-echo",
                "--no-restore",
                "--no-save",
                "--no-readline",
                "-e",
                "local({ program <- file(\"stdin\"); code <- parse(program, encoding = \"UTF-8\"); \
                 close(program); eval(code, new.env(parent = baseenv())) })",
            ],
            install: "R 4 (Debian and Ubuntu: apt-get install r-base-core)",
            text: include_bytes!(concat!(env!("OUT_DIR"), "/r")),
        },
        Language::Bash => Program {
            command: &[
                "bash",
                "--noprofile",
                "--norc",
                "-c",
                "PS1= PS2= exec \"$BASH\" --noprofile --norc --noediting -i 6>&2 2>/dev/null",
            ],
            install: "Bash 4.2 or later (apt-get install bash, apk add bash)",
            text: include_bytes!(concat!(env!("OUT_DIR"), "/bash")),
        },
    }
}

impl Program {
    /// The program in a file that nobody can change.
    pub(super) fn to_file(self) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("kernel", flags)?;
        let mut writer = File::from(file);
        writer.write_all(self.text)?;
        io::Seek::rewind(&mut writer)?;
        let file = OwnedFd::from(writer);
        fcntl_add_seals(
            &file,
            SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
        )?;
        Ok(file)
    }
}
