//! The unprivileged side: a [`Provider`] that asks the engine.
//!
//! [`line`] keeps the connection, [`connection`] asks on it, [`start`] starts an engine.

mod connection;
mod java;
mod line;
mod network;
mod snapshots;
mod start;
mod streams;
mod templates;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::{
    Ending, Limits, NetworkMode, NetworkPolicy, Origin, Rest, SandboxId, SandboxSpec, SnapshotId,
    TemplateName,
};
use guest_proto::client::{Init, LimitsTold};
use guest_proto::{Dial, GuestClient};
use policy::Permitted;
use provider::{
    Archive, BoxError, ByteStream, Condition, NetworkLog, Observed, Provider, ProviderError,
    Snapshot, SnapshotKind, Staged, Template, TemplateKind,
};

use crate::failure::{Failure, Kind};
use crate::home::Home;
use crate::reserves::Reserves;
use crate::verbs::{Answer, Record, Refusal, Verb, Wish};
use ::network::Authority;
use line::Line;
pub use start::connect_engine;
use streams::Streams;

/// Sandboxes on this host, through its engine.
///
/// When the engine goes away, the next call looks for another. A call that was under way is
/// repeated, which no caller notices but by the time it takes.
#[derive(Debug, Clone)]
pub struct NativeProvider {
    line: Arc<Line>,
    reserves: Reserves,
    streams: Streams,
}

impl NativeProvider {
    /// Connects to the engine of a home, and starts `program engine --home HOME` when none
    /// answers, now and whenever the connection broke.
    ///
    /// The connection stays good when this process gives up its privileges afterwards; another
    /// one it may not get then.
    pub fn open(home: &Home, program: &Path) -> Result<Self, ProviderError> {
        let socket = connect_engine(home, program)?;
        let (home, program) = (home.clone(), program.to_owned());
        let line = Line::new(move || connect_engine(&home, &program)).starting_with(socket)?;
        Ok(Self::on(line))
    }

    /// Connects to the engine of a home; `None` when none answers. Never starts one.
    pub fn find(home: &Home) -> Result<Option<Self>, ProviderError> {
        let Ok(socket) = start::connect(home) else { return Ok(None) };
        let home = home.clone();
        let connect =
            move || start::connect(&home).map_err(|error| backend("connect to the engine", error));
        let line = Line::new(connect).starting_with(socket)?;
        Ok(Some(Self::on(line)))
    }

    /// Gets its connections from elsewhere, the first one with the first call: for a process that
    /// may not connect to the engine itself. Each is what [`connect_engine`] gives.
    ///
    /// `connect` may block.
    pub fn over(
        connect: impl Fn() -> Result<OwnedFd, ProviderError> + Send + Sync + 'static,
    ) -> Self {
        Self::on(Line::new(connect))
    }

    fn on(line: Line) -> Self {
        Self { line: Arc::new(line), reserves: Reserves::default(), streams: Streams::default() }
    }

    /// The same, leaving its host at least this.
    #[must_use]
    pub fn leaving(self, reserves: Reserves) -> Self {
        Self { reserves, ..self }
    }

    /// Has this one connection, which [`connect_engine`] gave, and never another.
    pub fn with_connection(connection: OwnedFd) -> Self {
        let only = Mutex::new(Some(connection));
        Self::over(move || {
            let only = only.lock().unwrap_or_else(PoisonError::into_inner).take();
            let gone = || io::Error::new(io::ErrorKind::ConnectionReset, "the engine is gone");
            only.ok_or_else(|| backend("ask the engine", gone()))
        })
    }

    /// Where the time of the last launch went: steps and their microseconds.
    pub async fn steps(&self) -> Result<Vec<(String, u64)>, ProviderError> {
        match self.ask(Verb::Steps, None).await?.0 {
            Answer::Steps(steps) => Ok(steps),
            other => Err(odd(&other)),
        }
    }

    /// How many sandboxes wait for an owner.
    pub async fn prepared(&self) -> Result<u32, ProviderError> {
        match self.ask(Verb::Prepared, None).await?.0 {
            Answer::Prepared(count) => Ok(count),
            other => Err(odd(&other)),
        }
    }

    /// Ends the engine. Sandboxes that are kept go on; all others end with it.
    ///
    /// Where there is no connection to an engine, none is made to end one.
    pub async fn end_engine(&self) -> Result<(), ProviderError> {
        if let Some(connection) = self.line.current().await {
            // One that leaves already does not answer, and needs no telling.
            let _ = connection.ask(Verb::Leave).await;
            connection.closed().await;
        }
        Ok(())
    }

    /// Tells the guest what it cannot see from inside. The engine does not: it speaks with no guest.
    async fn introduce(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        authority: Option<&Authority>,
    ) -> Result<(), ProviderError> {
        let mut environment = spec.environment.clone();
        if authority.is_some() {
            // What its owner says counts.
            for (name, value) in network::variables() {
                environment.entry(name).or_insert(value);
            }
        }
        let limits = LimitsTold {
            memory_bytes: spec.limits.memory.0,
            cpu_millis: u64::from(spec.limits.cpus.0),
            pids: u64::from(spec.limits.pids),
            disk_bytes: spec.limits.disk.0,
        };
        let init = Init {
            env_vars: Some(environment),
            limits: Some(limits),
            sudo: Some(spec.sudo),
            // One that has it already takes it as the proof that it is us again.
            access_token: spec.token.as_ref().map(|token| token.reveal().to_owned()),
            machine_id: spec.origin.is_some().then(new_machine_id).transpose()?,
            ..Init::default()
        };
        let mut guest = GuestClient::new(Door { provider: self.clone(), id: id.clone() });
        if let Some(token) = spec.origin.as_ref().and_then(|origin| origin.token.as_ref()) {
            // It is a copy of one that had another.
            guest = guest.with_token(token.reveal()).map_err(network::untrusting)?;
        }
        guest.init(&init).await.map_err(|error| ProviderError::Backend {
            step: "set the sandbox up".to_owned(),
            source: Box::new(error),
        })?;
        let Some(authority) = authority else { return Ok(()) };
        if let Some(token) = &spec.token {
            guest = guest.with_token(token.reveal()).map_err(network::untrusting)?;
        }
        Self::furnish(&guest, authority).await
    }

    /// Who signs for names in this sandbox, where anybody does.
    async fn authority(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Option<Authority>, ProviderError> {
        if spec.network.transforms.is_empty() {
            return Ok(None);
        }
        Ok(self.read_rules(id).await?.and_then(|rules| rules.authority))
    }

    async fn reach(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, ProviderError> {
        let (_, descriptor) = self.ask(Verb::Connect { id: id.clone() }, Some(id)).await?;
        let descriptor = descriptor.ok_or_else(|| {
            backend("reach the guest", io::Error::other("the engine sent no connection"))
        })?;
        let stream = self.streams.keep(id, descriptor);
        let stream = stream.map_err(|error| backend("reach the guest", error))?;
        Ok(Box::new(stream))
    }

    async fn ask(
        &self,
        verb: Verb,
        id: Option<&SandboxId>,
    ) -> Result<(Answer, Option<OwnedFd>), ProviderError> {
        let (answer, descriptor) = self.line.ask(verb).await?;
        let answer = answer.map_err(|refusal| explain(refusal, id))?;
        Ok((answer, descriptor))
    }
}

/// The way into a sandbox that was just made, for whoever made it.
struct Door {
    provider: NativeProvider,
    id: SandboxId,
}

#[async_trait]
impl Dial for Door {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        Ok(self.provider.reach(&self.id).await?)
    }
}

#[async_trait]
impl Provider for NativeProvider {
    async fn create(
        &self,
        id: &SandboxId,
        spec: &Permitted<SandboxSpec>,
        record: &str,
    ) -> Result<Observed, ProviderError> {
        let spec = spec.get();
        let rules = Self::rules(id, &spec.network)?;
        let wish = Wish {
            limits: spec.limits.clone(),
            lifetime: spec.lifetime,
            allow_unenforced: spec.allow_unenforced,
            record: checked(record)?,
            reserves: self.reserves,
            template: spec.template.clone(),
            network: network::record(&rules)?,
            needs_network: spec.network.mode != NetworkMode::DenyAll,
            origin: spec.origin.as_ref().map(|origin| origin.snapshot.clone()),
        };
        let observed = match self.ask(Verb::Create { id: id.clone(), wish }, Some(id)).await?.0 {
            Answer::Observed(observed) => observed,
            other => return Err(odd(&other)),
        };
        if spec.origin.is_some() && observed.condition != Condition::Running {
            // An engine did not live to wake it.
            return self.bring_up(id, spec).await;
        }
        self.introduce(id, spec, rules.authority.as_ref()).await?;
        Ok(observed)
    }

    async fn start(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        let id = id.get();
        // What was changed while it did not run holds before anything in it does.
        self.change_rules(id, &spec.network).await?;
        let (timeout, reserves) = (spec.limits.timeout, self.reserves);
        let verb = Verb::Start { id: id.clone(), timeout, reserves };
        let observed = match self.ask(verb, Some(id)).await?.0 {
            Answer::Observed(observed) => observed,
            other => return Err(odd(&other)),
        };
        let authority = self.authority(id, spec).await?;
        self.introduce(id, spec, authority.as_ref()).await?;
        Ok(observed)
    }

    async fn stop(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        let id = id.get();
        self.ask(Verb::Stop { id: id.clone() }, Some(id)).await?;
        Ok(())
    }

    async fn pause(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        let id = id.get();
        self.streams.cut(id);
        self.ask(Verb::Pause { id: id.clone() }, Some(id)).await?;
        Ok(())
    }

    async fn hibernate(&self, id: &Permitted<SandboxId>) -> Result<Rest, ProviderError> {
        let id = id.get();
        // No connection may be open while it is dumped.
        self.streams.cut(id);
        let verb = Verb::Hibernate { id: id.clone(), reserves: self.reserves };
        match self.ask(verb, Some(id)).await?.0 {
            Answer::Rest(rest) => Ok(rest),
            other => Err(odd(&other)),
        }
    }

    async fn resume(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        let id = id.get();
        let (timeout, reserves) = (spec.limits.timeout, self.reserves);
        let verb = Verb::Resume { id: id.clone(), timeout, reserves };
        match self.ask(verb, Some(id)).await?.0 {
            Answer::Observed(observed) => Ok(observed),
            Answer::Done => self.inspect(id).await,
            other => Err(odd(&other)),
        }
    }

    async fn set_up(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
    ) -> Result<(), ProviderError> {
        let authority = self.authority(id.get(), spec).await?;
        self.introduce(id.get(), spec, authority.as_ref()).await
    }

    async fn connect(
        &self,
        id: &Permitted<SandboxId>,
    ) -> Result<Box<dyn ByteStream>, ProviderError> {
        self.reach(id.get()).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError> {
        match self.ask(Verb::Inspect { id: id.clone() }, Some(id)).await?.0 {
            Answer::Observed(observed) => Ok(observed),
            other => Err(odd(&other)),
        }
    }

    async fn list(&self) -> Result<Vec<Observed>, ProviderError> {
        match self.ask(Verb::List, None).await?.0 {
            Answer::Sandboxes(all) => Ok(all),
            other => Err(odd(&other)),
        }
    }

    async fn ended(&self, id: &SandboxId) -> Result<Ending, ProviderError> {
        match self.ask(Verb::Ended { id: id.clone() }, Some(id)).await?.0 {
            Answer::Ended(ending) => Ok(ending),
            other => Err(odd(&other)),
        }
    }

    async fn read_record(&self, id: &SandboxId) -> Result<String, ProviderError> {
        match self.ask(Verb::ReadRecord { id: id.clone() }, Some(id)).await?.0 {
            Answer::Record(Record(text)) => Ok(text),
            other => Err(odd(&other)),
        }
    }

    async fn write_record(
        &self,
        id: &Permitted<SandboxId>,
        record: &str,
    ) -> Result<(), ProviderError> {
        let (id, record) = (id.get(), checked(record)?);
        self.ask(Verb::WriteRecord { id: id.clone(), record }, Some(id)).await?;
        Ok(())
    }

    async fn renew(
        &self,
        id: &Permitted<SandboxId>,
        timeout: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let id = id.get();
        self.ask(Verb::Renew { id: id.clone(), timeout }, Some(id)).await?;
        Ok(())
    }

    async fn limit(&self, id: &Permitted<SandboxId>, limits: &Limits) -> Result<(), ProviderError> {
        let id = id.get();
        self.ask(Verb::Limit { id: id.clone(), limits: limits.clone() }, Some(id)).await?;
        Ok(())
    }

    async fn change_network(
        &self,
        id: &Permitted<SandboxId>,
        policy: &NetworkPolicy,
    ) -> Result<(), ProviderError> {
        self.change_rules(id.get(), policy).await
    }

    async fn network_log(
        &self,
        id: &SandboxId,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ProviderError> {
        self.follow_network(id, after, follow).await
    }

    async fn destroy(&self, id: &Permitted<SandboxId>) -> Result<(), ProviderError> {
        let id = id.get();
        self.ask(Verb::Destroy { id: id.clone() }, Some(id)).await?;
        Ok(())
    }

    async fn stage_template(&self, archive: Permitted<Archive>) -> Result<Staged, ProviderError> {
        self.stage(archive.into_inner()).await
    }

    async fn keep_template(
        &self,
        staged: Staged,
        name: &Permitted<TemplateName>,
        record: &str,
        kind: TemplateKind,
        replace: bool,
    ) -> Result<(), ProviderError> {
        self.keep(staged, name.get(), (record, kind), replace).await
    }

    async fn capture(
        &self,
        id: &Permitted<SandboxId>,
        snapshot: &SnapshotId,
        kind: SnapshotKind,
        record: &str,
    ) -> Result<(), ProviderError> {
        self.take_snapshot(id.get(), snapshot, kind, record).await
    }

    async fn snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        self.all_snapshots().await
    }

    async fn remove_snapshot(&self, id: &Permitted<SnapshotId>) -> Result<(), ProviderError> {
        self.ask(Verb::RemoveSnapshot { id: id.get().clone() }, None).await?;
        Ok(())
    }

    async fn roll_back(
        &self,
        id: &Permitted<SandboxId>,
        spec: &SandboxSpec,
        origin: &Origin,
    ) -> Result<Observed, ProviderError> {
        self.bring_back(id.get(), spec, origin).await
    }

    async fn templates(&self) -> Result<Vec<Template>, ProviderError> {
        self.all_templates().await
    }

    async fn remove_template(&self, name: &Permitted<TemplateName>) -> Result<(), ProviderError> {
        self.ask(Verb::RemoveTemplate { name: name.get().clone() }, None).await?;
        Ok(())
    }
}

/// What tells a copy from what it is a copy of: 16 random bytes in hexadecimal.
fn new_machine_id() -> Result<String, ProviderError> {
    let random =
        crate::random::bytes::<16>().map_err(|error| backend("find random numbers", error))?;
    Ok(domain::Token::from_random(&random).reveal().to_owned())
}

/// A record that fits. The engine refuses others too, but a message may be too large to arrive.
fn checked(record: &str) -> Result<Record, ProviderError> {
    Record(record.to_owned()).check().map_err(|refusal| explain(refusal, None))
}

fn backend(step: &str, error: io::Error) -> ProviderError {
    ProviderError::Backend { step: step.to_owned(), source: Box::new(error) }
}

fn odd(answer: &Answer) -> ProviderError {
    let error = io::Error::other(format!("it said {answer:?}"));
    backend("understand the engine", error)
}

/// The engine's refusal in the words of every provider.
fn explain(refusal: Refusal, id: Option<&SandboxId>) -> ProviderError {
    let refusal = match (refusal, id.cloned()) {
        (Refusal::NotFound, Some(id)) => return ProviderError::NotFound { id },
        (Refusal::NotRunning(why), Some(id)) => return ProviderError::NotRunning { id, why },
        (Refusal::Paused, Some(id)) => return ProviderError::Paused { id },
        (Refusal::Invalid(reason), _) => return ProviderError::Invalid { reason },
        (Refusal::Unenforced(limits, fix), _) => return ProviderError::Unenforced { limits, fix },
        (Refusal::Conflict(reason), _) => return ProviderError::Conflict { reason },
        (Refusal::NoTemplate(name), _) => return ProviderError::NoTemplate { name },
        (Refusal::TemplateExists(name), _) => return ProviderError::TemplateExists { name },
        (Refusal::TemplateInUse(name, sandboxes), _) => {
            return ProviderError::TemplateInUse { name, sandboxes };
        }
        (Refusal::NoSnapshot(id), _) => return ProviderError::NoSnapshot { id },
        (Refusal::SnapshotInUse(id, sandboxes), _) => {
            return ProviderError::SnapshotInUse { id, sandboxes };
        }
        (Refusal::Failed(failure), _) => failure,
        (other, None) => Failure::new("understand the engine", format!("{other:?}"), Kind::Broken),
    };
    match refusal.kind {
        Kind::Unsupported => ProviderError::Unsupported { reason: refusal.to_string() },
        Kind::NoCapacity => ProviderError::NoCapacity { reason: refusal.to_string() },
        Kind::Broken => {
            let Failure { step, cause, .. } = refusal;
            ProviderError::Backend { step, source: cause.into() }
        }
    }
}
