//! A provider in memory, for tests of everything above providers.
//!
//! It keeps the promises of [`Provider`], and its guest speaks the real protocol over pipes in
//! memory; only the computer behind it is made up: a handful of programs (`programs.rs`) and a
//! tree of files (`tree.rs`). It isolates nothing and limits nothing.
//!
//! A [`FakeBackend`] stands for the host; each [`FakeProvider`] is one instance on it.

mod files;
mod guest;
mod network;
mod processes;
mod programs;
mod tree;
mod users;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::{
    Ending, ImageReport, Lifetime, Limits, NetworkEntry, NetworkPolicy, Rest, SandboxId,
    SandboxSpec, TemplateName,
};
use guest::Guest;
use guest_proto::ByteStream;
use policy::Permitted;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{
    Archive, Condition, LARGEST_RECORD, NetworkLog, Observed, Provider, ProviderError, Staged,
    Template, TemplateKind,
};

/// The host of sandboxes that are not there. Clones are the same host.
#[derive(Debug, Clone, Default)]
pub struct FakeBackend {
    sandboxes: Arc<Mutex<BTreeMap<SandboxId, Sandbox>>>,
    /// What is written down with each template; there is nothing else to one.
    templates: Arc<Mutex<BTreeMap<TemplateName, String>>>,
    refuses_network: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Sandbox {
    guest: Arc<Guest>,
    /// The provider that it dies with.
    owner: Option<Arc<()>>,
    record: String,
    /// When its time is over, and who is told when it ended.
    until: Option<Instant>,
    changed: Arc<Notify>,
    ending: Option<Ending>,
    /// How it is kept while it stands still, with what was left of its time.
    paused: Option<Rest>,
    limits: Limits,
    network: NetworkPolicy,
    /// What it tried to reach.
    reached: Vec<NetworkEntry>,
}

impl FakeBackend {
    /// A host without sandboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more instance on this host.
    pub fn provider(&self) -> FakeProvider {
        FakeProvider { backend: self.clone(), token: Arc::default() }
    }

    fn sandboxes(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn templates(&self) -> MutexGuard<'_, BTreeMap<TemplateName, String>> {
        self.templates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance of the provider in memory.
#[derive(Debug)]
pub struct FakeProvider {
    backend: FakeBackend,
    /// What tells this instance from others on the same host.
    token: Arc<()>,
}

impl FakeProvider {
    /// Looks at a sandbox, whose time may be over by now.
    fn with<T>(
        &self,
        id: &SandboxId,
        look: impl FnOnce(&mut Sandbox) -> T,
    ) -> Result<T, ProviderError> {
        let mut sandboxes = self.backend.sandboxes();
        let not_found = || ProviderError::NotFound { id: id.clone() };
        let sandbox = sandboxes.get_mut(id).ok_or_else(not_found)?;
        sandbox.look_at_the_clock();
        Ok(look(sandbox))
    }
}

impl Sandbox {
    fn look_at_the_clock(&mut self) {
        if self.ending.is_none() && self.until.is_some_and(|until| Instant::now() >= until) {
            self.ending = Some(Ending::TimedOut);
            self.guest.stop();
        }
    }

    fn observed(&self, id: &SandboxId) -> Observed {
        let condition = match &self.ending {
            Some(ending) => Condition::Ended(ending.clone()),
            None => self.paused.clone().map_or(Condition::Running, Condition::Paused),
        };
        Observed {
            id: id.clone(),
            condition,
            is_kept: self.owner.is_none(),
            unenforced: Vec::new(),
            missing_layers: Vec::new(),
        }
    }

    fn renew(&mut self, timeout: Option<Duration>) {
        self.until = timeout.map(|timeout| Instant::now() + timeout);
        self.changed.notify_waiters();
    }
}

#[async_trait]
impl Provider for FakeProvider {
    async fn create(
        &self,
        id: &SandboxId,
        spec: &Permitted<SandboxSpec>,
        record: &str,
    ) -> Result<Observed, ProviderError> {
        let spec = spec.get();
        check(record)?;
        // A real backend is busy for a while; others get their turn here as they would there.
        tokio::task::yield_now().await;
        let mut sandboxes = self.backend.sandboxes();
        let sandbox = sandboxes.entry(id.clone()).or_insert_with(|| Sandbox {
            guest: Arc::new(Guest::new(spec)),
            owner: (spec.lifetime == Lifetime::WithCaller).then(|| Arc::clone(&self.token)),
            record: record.to_owned(),
            until: spec.limits.timeout.map(|timeout| Instant::now() + timeout),
            changed: Arc::default(),
            ending: None,
            paused: None,
            limits: spec.limits.clone(),
            network: spec.network.clone(),
            reached: Vec::new(),
        });
        Ok(sandbox.observed(id))
    }

    async fn start(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        tokio::task::yield_now().await;
        let id = id.get();
        self.with(id, |sandbox| {
            if sandbox.ending.take().is_some() {
                // Its files are those that it had; its processes are not.
                sandbox.guest = Arc::new(sandbox.guest.again());
                sandbox.renew(spec.limits.timeout);
                sandbox.network = spec.network.clone();
            }
            sandbox.observed(id)
        })
    }

    async fn stop(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        let guest = self.with(id.get(), |sandbox| {
            let runs = sandbox.ending.is_none();
            sandbox.ending.get_or_insert(Ending::Stopped);
            sandbox.paused = None;
            sandbox.changed.notify_waiters();
            runs.then(|| Arc::clone(&sandbox.guest))
        })?;
        if let Some(guest) = guest {
            guest.end().await;
        }
        Ok(())
    }

    async fn pause(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        tokio::task::yield_now().await;
        let id = id.get();
        self.with(id, |sandbox| {
            if let Some(why) = sandbox.ending.clone() {
                return Err(ProviderError::NotRunning { id: id.clone(), why });
            }
            sandbox.paused.get_or_insert(Rest::Frozen { because: None });
            sandbox.renew(None);
            Ok(())
        })?
    }

    async fn hibernate(&self, id: &Permitted<SandboxId>) -> Result<Rest, ProviderError> {
        tokio::task::yield_now().await;
        let id = id.get();
        self.with(id, |sandbox| match (&mut sandbox.paused, sandbox.ending.clone()) {
            (_, Some(why)) => Err(ProviderError::NotRunning { id: id.clone(), why }),
            (Some(rest), None) => {
                *rest = Rest::Hibernated;
                Ok(rest.clone())
            }
            (None, None) => {
                let reason = format!("sandbox `{id}` is not paused: pause it first");
                Err(ProviderError::Conflict { reason })
            }
        })?
    }

    async fn resume(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        tokio::task::yield_now().await;
        let id = id.get();
        self.with(id, |sandbox| {
            if let Some(why) = sandbox.ending.clone() {
                return Err(ProviderError::NotRunning { id: id.clone(), why });
            }
            if sandbox.paused.take().is_some() {
                sandbox.renew(spec.limits.timeout);
            }
            Ok(sandbox.observed(id))
        })?
    }

    async fn set_up(
        &self,
        id: &Permitted<SandboxId>,
        _: &SandboxSpec,
    ) -> Result<(), ProviderError> {
        self.with(id.get(), |_| ())
    }

    async fn connect(
        &self,
        id: &Permitted<SandboxId>,
    ) -> Result<Box<dyn ByteStream>, ProviderError> {
        let id = id.get();
        self.with(id, |sandbox| match &sandbox.ending {
            Some(why) => Err(ProviderError::NotRunning { id: id.clone(), why: why.clone() }),
            None if sandbox.paused.is_some() => Err(ProviderError::Paused { id: id.clone() }),
            None => Ok(Box::new(sandbox.guest.connect()) as Box<dyn ByteStream>),
        })?
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError> {
        self.with(id, |sandbox| sandbox.observed(id))
    }

    async fn list(&self) -> Result<Vec<Observed>, ProviderError> {
        let mut sandboxes = self.backend.sandboxes();
        sandboxes.values_mut().for_each(Sandbox::look_at_the_clock);
        Ok(sandboxes.iter().map(|(id, sandbox)| sandbox.observed(id)).collect())
    }

    async fn ended(&self, id: &SandboxId) -> Result<Ending, ProviderError> {
        loop {
            let changed = self.with(id, |sandbox| Arc::clone(&sandbox.changed))?;
            // Before the look: what changes after it is told.
            let change = changed.notified();
            let (ending, until) =
                self.with(id, |sandbox| (sandbox.ending.clone(), sandbox.until))?;
            if let Some(ending) = ending {
                return Ok(ending);
            }
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = change => {}
                () = over => {}
            }
        }
    }

    async fn read_record(&self, id: &SandboxId) -> Result<String, ProviderError> {
        self.with(id, |sandbox| sandbox.record.clone())
    }

    async fn write_record(
        &self,
        id: &Permitted<SandboxId>,
        record: &str,
    ) -> Result<(), ProviderError> {
        check(record)?;
        self.with(id.get(), |sandbox| record.clone_into(&mut sandbox.record))
    }

    async fn renew(
        &self,
        id: &Permitted<SandboxId>,
        timeout: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let id = id.get();
        self.with(id, |sandbox| {
            if let Some(why) = sandbox.ending.clone() {
                return Err(ProviderError::NotRunning { id: id.clone(), why });
            }
            sandbox.renew(timeout);
            Ok(())
        })?
    }

    async fn limit(&self, id: &Permitted<SandboxId>, limits: &Limits) -> Result<(), ProviderError> {
        let id = id.get();
        let limits = limits
            .clone()
            .check()
            .map_err(|error| ProviderError::Invalid { reason: error.to_string() })?;
        self.with(id, |sandbox| {
            if let Some(why) = sandbox.ending.clone() {
                return Err(ProviderError::NotRunning { id: id.clone(), why });
            }
            let known = &sandbox.limits;
            if (known.disk, known.inodes(), known.open_files)
                != (limits.disk, limits.inodes(), limits.open_files)
            {
                let reason = "its disk, inodes and open files are set when a sandbox is made";
                return Err(ProviderError::Invalid { reason: reason.to_owned() });
            }
            sandbox.limits = limits;
            Ok(())
        })?
    }

    async fn change_network(
        &self,
        id: &Permitted<SandboxId>,
        policy: &NetworkPolicy,
    ) -> Result<(), ProviderError> {
        self.set_network(id.get(), policy)
    }

    async fn network_log(
        &self,
        id: &SandboxId,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ProviderError> {
        self.read_network(id, after, follow)
    }

    async fn stage_template(&self, archive: Permitted<Archive>) -> Result<Staged, ProviderError> {
        // Whatever it is, it is an image.
        let sent = tokio::io::copy(&mut archive.into_inner(), &mut tokio::io::sink()).await;
        sent.map_err(|error| ProviderError::Invalid { reason: error.to_string() })?;
        Ok(Staged { slot: String::new(), report: ImageReport::default() })
    }

    async fn keep_template(
        &self,
        _staged: Staged,
        name: &Permitted<TemplateName>,
        record: &str,
        _kind: TemplateKind,
        replace: bool,
    ) -> Result<(), ProviderError> {
        check(record)?;
        let (name, mut templates) = (name.get(), self.backend.templates());
        if templates.contains_key(name) && !replace {
            return Err(ProviderError::TemplateExists { name: name.clone() });
        }
        templates.insert(name.clone(), record.to_owned());
        Ok(())
    }

    async fn templates(&self) -> Result<Vec<Template>, ProviderError> {
        let all = self.backend.templates().clone().into_iter();
        let listed = all.map(|(name, record)| Template {
            name,
            record,
            sandboxes: Vec::new(),
            is_stale: false,
        });
        Ok(listed.collect())
    }

    async fn remove_template(&self, name: &Permitted<TemplateName>) -> Result<(), ProviderError> {
        let removed = self.backend.templates().remove(name.get());
        removed.map(drop).ok_or_else(|| ProviderError::NoTemplate { name: name.get().clone() })
    }

    async fn destroy(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        tokio::task::yield_now().await;
        let removed = self.backend.sandboxes().remove(id.get());
        if let Some(sandbox) = removed {
            sandbox.guest.end().await;
            sandbox.changed.notify_waiters();
        }
        Ok(())
    }
}

fn check(record: &str) -> Result<(), ProviderError> {
    let bytes = record.len();
    if bytes <= LARGEST_RECORD {
        return Ok(());
    }
    let reason = format!("the record has {bytes} bytes, and {LARGEST_RECORD} is the most");
    Err(ProviderError::Invalid { reason })
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.backend.sandboxes().retain(|_, sandbox| {
            let mine = sandbox.owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, &self.token));
            if mine {
                sandbox.guest.stop();
                sandbox.changed.notify_waiters();
            }
            !mine
        });
    }
}
