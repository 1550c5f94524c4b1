//! Who asks, and where: what the checks are about.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::program;

/// Variables that tell a client of Docker where its daemon is.
const PASSED_ON: [&str; 5] =
    ["HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"];

/// The host as one user with one home sees it.
#[derive(Debug)]
pub struct Host {
    pub(crate) home: PathBuf,
    pub(crate) path: OsString,
    /// The CRIU that `SOMA_CRIU` names.
    pub(crate) criu: Option<PathBuf>,
    pub(crate) user_id: u32,
    pub(crate) group_id: u32,
    pub(crate) user: Option<String>,
    /// This program, for settings that name it.
    pub(crate) program: PathBuf,
    environment: Vec<(&'static str, OsString)>,
}

impl Host {
    /// For this process's user and environment, and the given `SOMA_HOME`.
    pub fn here(home: &Path) -> Self {
        let user_id = rustix::process::geteuid().as_raw();
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            home: home.to_owned(),
            path: variable("PATH").unwrap_or_default(),
            criu: variable("SOMA_CRIU").map(PathBuf::from),
            user_id,
            group_id: rustix::process::getegid().as_raw(),
            user: user_name(user_id),
            program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/soma")),
            environment: PASSED_ON
                .iter()
                .filter_map(|name| Some((*name, variable(name)?)))
                .collect(),
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.user_id == 0
    }

    /// How whoever asks is called in a sentence.
    pub(crate) fn who(&self) -> String {
        match &self.user {
            _ if self.is_root() => "root".to_owned(),
            Some(name) => format!("user `{name}`"),
            None => format!("user {}", self.user_id),
        }
    }

    /// Where a program of the user's lies.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        program::find(name, &self.path)
    }

    /// A program of the user's, with the few variables that say where its daemon is.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = sys_linux::command::command(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The nearest folder above the home, or the home, that is there.
    pub(crate) fn nearest(&self) -> &Path {
        self.home.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"))
    }
}

/// Where a program that Soma itself starts lies: the caller's search path has no say.
pub(crate) fn find_in_system(name: &str) -> Option<PathBuf> {
    program::find(name, OsStr::new(sys_linux::command::SYSTEM_PATH))
}

fn user_name(user_id: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&users, user_id).or_else(|| {
        // Users that come from elsewhere, such as a directory service.
        let mut ask = sys_linux::command::command("id");
        let answer = program::run(ask.args(["-un"]), Duration::from_secs(3)).output().ok()?;
        let name = answer.trim();
        (!name.is_empty()).then(|| name.to_owned())
    })
}

fn name_in(users: &str, user_id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(user_id)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_number() {
        let users = "root:x:0:0::/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(users, 1001), None);
    }
}
