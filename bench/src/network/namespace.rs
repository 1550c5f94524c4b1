//! A network namespace that is wired like a sandbox's, and a thread that is in it.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::{Context as _, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::command::command;
use sys_linux::namespace::{Namespaces, separate};

type Work = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(super) struct Namespace {
    name: Option<String>,
    work: Sender<Work>,
}

impl Namespace {
    /// One that other programs find by its name.
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        let _ = command("ip").args(["netns", "del", name]).output();
        let made = command("ip").args(["netns", "add", name]).output()?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "no namespace: {}", said.trim());
        let file = File::open(format!("/run/netns/{name}"))?;
        Self::with(Some(name.to_owned()), move || {
            Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
        })
    }

    /// One that is gone with its last socket.
    pub(super) fn unnamed() -> anyhow::Result<Self> {
        Self::with(None, || separate(Namespaces::NETWORK))
    }

    fn with(
        name: Option<String>,
        enter: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (work, wishes) = channel::<Work>();
        thread::spawn(move || wishes.into_iter().for_each(|wish| wish()));
        let namespace = Self { name, work };
        namespace.within(|| {
            enter()?;
            sys_linux::network::bring_loopback_up()?;
            wiring::wire()
        })??;
        Ok(namespace)
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The sockets at which what is sent from it arrives.
    pub(super) fn sockets(&self) -> anyhow::Result<[OwnedFd; 2]> {
        Ok(self.within(wiring::listen)??.into())
    }

    /// Does something in it, and waits for that.
    pub(super) fn within<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (answer, answers) = channel();
        let wish = Box::new(move || drop(answer.send(act())));
        self.work.send(wish).ok().context("the namespace's thread is gone")?;
        answers.recv().context("the namespace's thread is gone")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = command("ip").args(["netns", "del", name]).output();
        }
    }
}
