//! `soma doctor` on machines made to lack things.
//!
//! Nothing is pretended: each test makes a machine that really lacks something, from namespaces,
//! mounts, filters of system calls and other users, and runs the built program in it. A
//! [`Machine`] is a mount namespace with a few lines of shell that take things away.
//!
//! By what is taken away: `kernel` (calls, namespaces, devices, cgroups), `users` (ids and
//! rights), `programs` (CRIU, Docker, tools), `room` (disk and memory). `fixes` cures things,
//! and `shape` is what scripts rely on.

mod fixes;
mod kernel;
mod programs;
mod room;
mod shape;
mod users;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::SOMA;

/// A user that no machine has.
const NOBODYS_ID: u32 = 54321;

/// A machine to take things from.
struct Machine {
    folder: TempDir,
    unshare: Vec<&'static str>,
    setup: String,
    user: bool,
    wrapper: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Machine {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "making machines needs root");
        let folder = tempfile::Builder::new().prefix("soma-test-").tempdir().unwrap();
        // Other users must get to the program and the home in it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("soma"), "").unwrap();
        for name in ["homes", "empty", "programs"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let homes = folder.path().join("homes");
        std::os::unix::fs::chown(&homes, Some(NOBODYS_ID), Some(NOBODYS_ID)).unwrap();
        Self {
            folder,
            unshare: vec!["--mount", "--propagation", "private"],
            setup: String::new(),
            user: false,
            wrapper: Vec::new(),
            variables: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// In further namespaces.
    fn unshare(mut self, options: &[&'static str]) -> Self {
        self.unshare.extend(options);
        self
    }

    /// A line of shell, run as root in the machine before the program. `$D` is a folder of the
    /// machine's own, with `$D/empty` in it.
    fn with(mut self, line: &str) -> Self {
        self.setup.push_str(line);
        self.setup.push('\n');
        self
    }

    /// With lines in `/etc/passwd`, `/etc/subuid` and `/etc/subgid` in place of the machine's.
    fn with_ids(self, ids: &str) -> Self {
        let path = self.path();
        let name = format!("soma-test:x:{NOBODYS_ID}:{NOBODYS_ID}::/nonexistent:/bin/sh\n");
        fs::write(path.join("passwd"), format!("root:x:0:0::/root:/bin/sh\n{name}")).unwrap();
        fs::write(path.join("ids"), ids).unwrap();
        self.with("mount --bind $D/passwd /etc/passwd")
            .with("touch /etc/subuid /etc/subgid")
            .with("mount --bind $D/ids /etc/subuid; mount --bind $D/ids /etc/subgid")
    }

    /// As a user who is not root.
    fn for_user(mut self) -> Self {
        self.user = true;
        self
    }

    /// Without a capability, such as `sys_admin`.
    fn without_capability(mut self, name: &str) -> Self {
        self.wrapper.extend(["setpriv", "--bounding-set"].map(ToOwned::to_owned));
        self.wrapper.push(format!("-{name}"));
        self
    }

    /// With a filter that refuses a system call: its number and the error, perhaps only where
    /// its first argument has one of these bits.
    fn refusing(mut self, call: u32, error: i32, mask: u32) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/doctor/refuse.py");
        self.wrapper.extend(["/usr/bin/python3", script].map(ToOwned::to_owned));
        self.wrapper.extend([call.to_string(), error.to_string(), mask.to_string()]);
        self
    }

    fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// With a program of ours, and a search path of nothing but such programs.
    fn program(self, name: &str, script: &str) -> Self {
        let path = self.path().join("programs").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let folder = self.path().join("programs").to_str().unwrap().to_owned();
        self.variable("PATH", folder)
    }

    /// What is run in the machine: the given shell, in which `doctor` is `soma doctor`.
    fn command(&self, script: &str) -> Command {
        let mut doctor: Vec<String> = self.wrapper.clone();
        if self.user {
            let id = NOBODYS_ID.to_string();
            let words = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
            doctor.extend(words.map(ToOwned::to_owned));
        }
        doctor.extend(["env", "-i"].map(ToOwned::to_owned));
        let has_path = self.variables.iter().any(|(name, _)| *name == "PATH");
        let path = (!has_path).then(|| ("PATH", sys_linux::command::SYSTEM_PATH.to_owned()));
        let home = ("SOMA_HOME", self.path().join("homes/soma").to_str().unwrap().to_owned());
        // Those of the test come last and win.
        let variables = path.into_iter().chain([home]).chain(self.variables.iter().cloned());
        doctor.extend(variables.map(|(name, value)| format!("'{name}={value}'")));
        doctor.push("$D/soma doctor".to_owned());
        let script = format!(
            "set -e\nD={}\nmount --bind {} $D/soma\n{}\ndoctor() {{ {} \"$@\"; }}\nset +e\n{script}\n",
            self.path().display(),
            *SOMA,
            self.setup,
            doctor.join(" "),
        );
        let mut command = sys_linux::command::command("unshare");
        command.args(&self.unshare).args(["--", "sh", "-c", &script]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a script in the machine.
    fn run(&self, script: &str) -> Output {
        self.command(script).output().unwrap()
    }

    /// What the doctor says about the machine.
    #[track_caller]
    fn examine(&self) -> Seen {
        Seen::of(&self.run("doctor --json"))
    }
}

/// What the doctor said.
struct Seen {
    report: Value,
    code: i32,
}

impl Seen {
    #[track_caller]
    fn of(output: &Output) -> Self {
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert!(output.stderr.is_empty(), "{output:?}");
        Self { report, code: output.status.code().unwrap() }
    }

    #[track_caller]
    fn finding(&self, name: &str) -> &Value {
        let findings = self.report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["name"] == name).unwrap()
    }

    /// Checks state, reason and cure of one thing; the reason and the cure by a part of them.
    #[track_caller]
    fn assert(&self, name: &str, state: &str, reason: &str, fix: Option<&str>) {
        let finding = self.finding(name);
        assert_eq!(finding["state"], state, "{finding:#}");
        assert!(finding["says"].as_str().unwrap().contains(reason), "{finding:#}");
        assert!(!finding["without"].as_str().unwrap().is_empty(), "{finding:#}");
        match fix {
            Some(fix) => {
                let command = finding["fix"]["command"].as_str().unwrap_or_default();
                assert!(command.contains(fix), "{finding:#}");
            }
            None => assert!(finding["fix"].is_null(), "{finding:#}"),
        }
    }

    /// Sandboxes cannot run, and these are named as the reason.
    #[track_caller]
    fn assert_runs_with_less_of(&self, what: &str) {
        let verdict = &self.report["verdict"];
        assert_eq!((self.code, &verdict["runs"]), (0, &Value::Bool(true)), "{verdict:#}");
        assert_eq!(verdict["quality"], "reduced");
        assert!(verdict["says"].as_str().unwrap().contains(what), "{verdict:#}");
    }

    fn assert_cannot_run(&self, because: &[&str]) {
        let verdict = &self.report["verdict"];
        assert_eq!((self.code, &verdict["runs"]), (1, &Value::Bool(false)), "{verdict:#}");
        assert_eq!(verdict["quality"], "none");
        let says = verdict["says"].as_str().unwrap();
        for name in because {
            assert!(says.contains(name), "{says}");
        }
    }
}
