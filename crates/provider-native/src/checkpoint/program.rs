//! The CRIU of this host.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Kind};

/// Earlier ones cannot dump a socket on kernels from 6.16 on.
const OLDEST: (u32, u32) = (4, 2);

/// A CRIU that is new enough.
#[derive(Debug, Clone)]
pub(crate) struct Program(OsString);

impl Program {
    /// Finds it: the one that `SOMA_CRIU` names, else the system's.
    pub(crate) fn find() -> Result<Self, Failure> {
        let program = std::env::var_os("SOMA_CRIU").unwrap_or_else(|| "criu".into());
        let shown = program.display().to_string();
        let missing = |cause: String| Failure::new("find CRIU", cause, Kind::Unsupported);
        let said = sys_linux::command::command(&program)
            .arg("--version")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(|error| {
                missing(format!(
                    "`{shown}` cannot be started ({error}): install CRIU 4.2 or newer, or name one \
                     with SOMA_CRIU"
                ))
            })?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        match version(&said) {
            Some(version) if version >= OLDEST => Ok(Self(program)),
            Some((major, minor)) => Err(missing(format!(
                "`{shown}` is CRIU {major}.{minor}, and 4.2 or newer is needed: name one with \
                 SOMA_CRIU"
            ))),
            None => Err(missing(format!("`{shown}` does not say which version of CRIU it is"))),
        }
    }

    /// It with these words.
    pub(crate) fn command(&self) -> Command {
        sys_linux::command::command(&self.0)
    }
}

/// The version in what it says about itself: `Version: 4.2.1`.
fn version(said: &str) -> Option<(u32, u32)> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
    let mut numbers = line.trim().split('.').map(|number| {
        number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    });
    let major = numbers.next()??;
    Some((major, numbers.next().flatten().unwrap_or(0)))
}

/// Why it failed, in its own words.
pub(crate) fn blame(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let errors = text.lines().filter(|line| line.contains("Error (")).filter(|line| {
        // What it says on every host that is not all its own.
        !["RLIMIT_NOFILE", "suspending seccomp", "suspend seccomp", "(criu/net.c", "(criu/tun.c"]
            .iter()
            .any(|usual| line.contains(usual))
    });
    let words = |line: &str| {
        let line = line.split_once("Error (").map_or(line, |(_, rest)| rest);
        line.split_once("): ").map_or(line, |(_, rest)| rest).trim().to_owned()
    };
    let first = errors.map(words).next().unwrap_or_else(|| "it does not say why".to_owned());
    first.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_criu_says_them() {
        assert_eq!(version("Version: 4.2.1\nGitID: v4.2\n"), Some((4, 2)));
        assert_eq!(version("Version: 3.17.1\n"), Some((3, 17)));
        assert_eq!(version("Version: 5\n"), Some((5, 0)));
        assert_eq!(version("nonsense"), None);
    }

    #[test]
    fn blame_is_the_first_error_that_is_not_usual() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text = "(00.1) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n\
                    (00.2) Error (criu/files.c:1): Can't dump nested user namespace\n\
                    (00.3) Error (criu/cr-dump.c:9): Dumping FAILED.\n";
        fs::write(&log, text).unwrap();
        assert_eq!(blame(&log), "Can't dump nested user namespace");
        assert_eq!(blame(&folder.path().join("none")), "it does not say why");
    }
}
