//! A real PostgreSQL server for a test: in a folder of its own, as a user without privileges,
//! reached by a socket in that folder and by nothing else.
//!
//! The tests that cross crates use this file as well, so it knows neither of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The password of the only user, `soma`.
pub(crate) const PASSWORD: &str = "swordfish";

/// `nobody` and `nogroup`, whom every Debian has: PostgreSQL refuses root, and unknown ids.
const NOBODY: u32 = 65534;

/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server, which ends with this value.
pub(crate) struct Server {
    folder: TempDir,
    programs: PathBuf,
    is_root: bool,
    child: Option<Child>,
}

impl Server {
    /// Starts one, or says why there can be none here.
    pub(crate) fn start() -> Result<Self, String> {
        let programs = programs().ok_or("PostgreSQL is not installed (scripts/setup test)")?;
        let folder = tempfile::tempdir().unwrap();
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        // Daemons of other users come to the socket; the data is closed by itself.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        if is_root {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let word = folder.path().join("word");
        fs::write(&word, PASSWORD).unwrap();
        let mut server = Self { folder, programs, is_root, child: None };
        let made = server
            .command("initdb", "KILL")
            .args(["--username=soma", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C.UTF-8", "--auth=scram-sha-256"])
            .arg(format!("--pwfile={}", word.display()))
            .arg(server.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.resume();
        Ok(server)
    }

    /// The address of one of its databases.
    pub(crate) fn address(&self, database: &str) -> String {
        let folder = self.folder.path().display();
        format!("postgres:///{database}?host={folder}&user=soma&password={PASSWORD}")
    }

    /// Runs SQL as its only user, and returns what it answers.
    #[track_caller]
    pub(crate) fn run(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends it as a crash would.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let stop = self
            .command("pg_ctl", "KILL")
            .args(["stop", "--mode=immediate", "--silent", "-D"])
            .arg(self.data())
            .output();
        if !stop.is_ok_and(|output| output.status.success()) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }

    /// Starts it, or starts it again, and waits until it answers.
    pub(crate) fn resume(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let child = self
            .command("postgres", "INT")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.folder.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let begun = Instant::now();
        while !self.psql("postgres", "SELECT 1").status.success() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(begun.elapsed() < PATIENCE, "the server does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        self.command("psql", "KILL")
            .args(["--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"])
            .args(["--username=soma", &format!("--dbname={database}"), &format!("--command={sql}")])
            .arg(format!("--host={}", self.folder.path().display()))
            .output()
            .unwrap()
    }

    /// One of its programs, as a user without privileges; it ends with this thread.
    fn command(&self, program: &str, signal: &str) -> Command {
        #[expect(clippy::disallowed_methods, reason = "a test starts it, and holds no secrets")]
        let mut command = Command::new("setpriv");
        command.arg(format!("--pdeathsig={signal}"));
        if self.is_root {
            command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
            command.arg("--clear-groups");
        }
        command.arg(self.programs.join(program)).env("PGPASSWORD", PASSWORD).env("LC_ALL", "C");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where Debian keeps the programs of the newest one, which are not in the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("postgres").exists()).max()
}
