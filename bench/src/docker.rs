//! Docker as a peer: a daemon of the benchmark's own, gone when the benchmark is.
//!
//! It has its own data, sockets and containerd in a folder of its own, no bridge and no firewall
//! rule, so that it disturbs neither the machine nor a Docker that already runs there. The image
//! is one static program. `make bench-peers` installs what this needs.

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sys_linux::command::command;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A running daemon with the image `bench` in it.
#[derive(Debug)]
pub(crate) struct Docker {
    daemon: Child,
    // After the daemon, because what is in it is in use until then.
    folder: TempDir,
}

impl Docker {
    /// Starts the daemon and makes the image, or says why there is none.
    pub(crate) fn start() -> anyhow::Result<Self> {
        for needed in ["/usr/sbin/dockerd", "/usr/bin/docker", "/usr/bin/busybox"] {
            ensure!(
                Path::new(needed).exists(),
                "{needed} is missing; `make bench-peers` brings it"
            );
        }
        ensure!(rustix::process::geteuid().is_root(), "only root can start dockerd");
        let folder = tempfile::tempdir()?;
        let docker = Self { daemon: daemon(folder.path())?, folder };
        docker.wait_until_it_answers()?;
        docker.import()?;
        Ok(docker)
    }

    /// `docker run` of `true`, as short as Docker can.
    pub(crate) fn run_true(&self) -> Command {
        let mut run = self.client();
        run.args(["run", "--rm", "--network", "none", "bench", "/bin/true"]);
        run
    }

    /// Starts a container that does nothing, and answers with its id. It goes with the daemon.
    pub(crate) fn start_idle(&self) -> anyhow::Result<String> {
        let mut run = self.client();
        // As process 1 it would not hear that it is to end, and the daemon would wait for it.
        run.args(["run", "--detach", "--network", "none", "--stop-signal", "KILL", "bench"]);
        let done = run.args(["/bin/busybox", "sleep", "86400"]).output()?;
        let words = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "could not start a container: {}", words.trim());
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// `docker exec` of `true` in a container that runs.
    pub(crate) fn exec_true(&self, container: &str) -> Command {
        let mut exec = self.client();
        exec.args(["exec", container, "/bin/true"]);
        exec
    }

    fn client(&self) -> Command {
        let mut client = command("/usr/bin/docker");
        client.env("DOCKER_HOST", format!("unix://{}", self.path("sock")));
        // Where the client would keep its settings.
        client.env("HOME", self.folder.path());
        client
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let answer = self.client().arg("version").stderr(Stdio::null()).output()?;
            if answer.status.success() {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        bail!("dockerd does not answer; its last words: {}", log.lines().last().unwrap_or("none"))
    }

    fn import(&self) -> anyhow::Result<()> {
        let programs = self.folder.path().join("image/bin");
        std::fs::create_dir_all(&programs)?;
        std::fs::copy("/usr/bin/busybox", programs.join("busybox"))?;
        symlink("busybox", programs.join("true"))?;
        let archive = self.path("image.tar");
        let done =
            command("tar").args(["-C", &self.path("image"), "-cf", &archive, "."]).status()?;
        ensure!(done.success(), "could not pack the image");
        let done = self.client().args(["import", &archive, "bench"]).output()?;
        ensure!(
            done.status.success(),
            "could not import the image: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
        Ok(())
    }
}

/// `setpriv` ties the daemon's life to ours, also when we are killed. A group of its own keeps
/// Ctrl-C away from it: its helpers would die with it in mid-work and leave mounts behind.
fn daemon(folder: &Path) -> anyhow::Result<Child> {
    let inside = |name: &str| folder.join(name).display().to_string();
    let log = std::fs::File::create(inside("log"))?;
    command("setpriv")
        .args(["--pdeathsig", "TERM", "/usr/sbin/dockerd", "--bridge=none", "--iptables=false"])
        .args(["--ip6tables=false", "--ip-masq=false"])
        .args(["--data-root", &inside("data"), "--exec-root", &inside("exec")])
        .args(["--pidfile", &inside("pid"), "--host", &format!("unix://{}", inside("sock"))])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("could not start dockerd")
}

impl Drop for Docker {
    fn drop(&mut self) {
        let id = i32::try_from(self.daemon.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process(id, Signal::TERM);
        }
        let begin = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if begin.elapsed() > PATIENCE {
                let _ = self.daemon.kill();
            }
            sleep(Duration::from_millis(50));
        }
    }
}
