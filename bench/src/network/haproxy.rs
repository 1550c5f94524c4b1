//! The peer: haproxy in TCP mode, which listens in a namespace and dials from the host.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sys_linux::command::command;
use tempfile::TempDir;

use super::namespace::Namespace;

const PROGRAM: &str = "/usr/sbin/haproxy";

#[derive(Debug)]
pub(super) struct Haproxy {
    process: Child,
    _folder: TempDir,
}

impl Haproxy {
    pub(super) fn start(namespace: &Namespace, server: SocketAddr) -> anyhow::Result<Self> {
        ensure!(Path::new(PROGRAM).exists(), "no haproxy: `make bench` installs it");
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("haproxy.cfg");
        let name = namespace.name();
        std::fs::write(
            &file,
            format!(
                "global\n  maxconn 4096\n  nbthread 2\n\
                 defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  \
                 timeout server 1m\n  option splice-auto\n\
                 listen bench\n  bind 127.0.0.1:1 transparent namespace {name}\n  \
                 server there {server}\n"
            ),
        )?;
        let process = command("setpriv")
            .args(["--pdeathsig", "TERM", PROGRAM, "-db", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("could not start haproxy")?;
        let mut haproxy = Self { process, _folder: folder };
        let begun = Instant::now();
        let probe = SocketAddr::from(([192, 0, 2, 1], server.port()));
        while namespace.within(move || super::first_byte(probe))?.is_err() {
            if let Some(status) = haproxy.process.try_wait()? {
                bail!("haproxy ended with {status}");
            }
            ensure!(begun.elapsed() < Duration::from_secs(10), "haproxy does not answer");
            sleep(Duration::from_millis(20));
        }
        Ok(haproxy)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
