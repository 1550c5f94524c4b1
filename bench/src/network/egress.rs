//! Our program, told what an engine would tell it.

use std::cell::Cell;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context as _, bail};
use domain::{NetworkMode, NetworkPolicy};
use network::attach::{self, FromEgress, Hello, ToEgress};
use network::{Configuration, Rules};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sys_linux::command::command;
use tempfile::TempDir;

use super::namespace::Namespace;
use super::server::{NAME, Server};
use crate::contest::Settings;

/// Where a namespace's resolver answers.
pub(super) const RESOLVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(wiring::RESOLVER, 53));

#[derive(Debug)]
pub(super) struct Egress {
    process: Child,
    socket: OwnedFd,
    number: Cell<u64>,
    _folder: TempDir,
}

impl Egress {
    pub(super) fn start(settings: &Settings, server: &Server) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let listener = link::listen_at(folder.path(), "egress.sock")?;
        let process = command("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(&settings.soma)
            .arg("egress")
            .arg(format!("--home={}", folder.path().display()))
            .stdin(Stdio::from(listener))
            .spawn()
            .context("could not start the egress program")?;
        let socket = link::dial(folder.path(), "egress.sock")?;
        let hello = Hello::Engine { version: attach::version() };
        link::send(&socket, &hello, &[], SendFlags::empty())?;
        let egress = Self { process, socket, number: Cell::new(0), _folder: folder };
        let configuration = Configuration {
            grants: vec!["127.0.0.0/8".parse()?],
            resolvers: vec![server.resolver()],
            ..Configuration::default()
        };
        let configuration = serde_json::to_string(&configuration)?;
        egress.ask(|number| ToEgress::Configure { number, configuration }, &[])?;
        Ok(egress)
    }

    /// Its folder in `/proc`.
    pub(super) fn process(&self) -> PathBuf {
        Path::new("/proc").join(self.process.id().to_string())
    }

    /// Gives a namespace its network: what is below one name, as a policy that lists it.
    pub(super) fn attach(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let sandbox = provider_native::random_id()?;
        let mut rules = Rules::nothing(sandbox.clone());
        rules.policy = NetworkPolicy {
            mode: NetworkMode::Custom,
            allow_domains: vec![NAME.parse()?, format!("*.{NAME}").parse()?],
            ..NetworkPolicy::default()
        };
        let rules = serde_json::to_string(&rules)?;
        let [gate, resolver] = namespace.sockets()?;
        // They live as long as this benchmark.
        let first = pidfd_open(getpid(), PidfdFlags::empty())?;
        let descriptors = [gate.as_fd(), resolver.as_fd(), first.as_fd()];
        self.ask(|number| ToEgress::Attach { number, sandbox, rules }, &descriptors)
    }

    fn ask(
        &self,
        message: impl FnOnce(u64) -> ToEgress,
        descriptors: &[BorrowedFd<'_>],
    ) -> anyhow::Result<()> {
        self.number.set(self.number.get() + 1);
        let message = message(self.number.get());
        link::send(&self.socket, &message, descriptors, SendFlags::empty())?;
        loop {
            match link::receive::<FromEgress>(&self.socket, RecvFlags::empty())? {
                Some((FromEgress::Done { .. }, _)) => return Ok(()),
                // No guest is here who could say whose a connection is.
                Some((FromEgress::Whose { .. }, _)) => {}
                other => bail!("the egress program says {other:?}"),
            }
        }
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
