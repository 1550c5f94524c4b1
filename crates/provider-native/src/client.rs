//! The unprivileged side: a [`Provider`] that asks the engine.

mod connection;
mod start;

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use domain::{SandboxId, SandboxSpec};
use guest_proto::client::{Init, LimitsTold};
use provider::{ByteStream, Observed, Provider, ProviderError};
use tokio::net::UnixStream;

use crate::failure::{Failure, Kind};
use crate::home::Home;
use crate::verbs::{Answer, Refusal, Verb};
use connection::Connection;

/// Sandboxes on this host, through its engine.
#[derive(Debug, Clone)]
pub struct NativeProvider {
    connection: Arc<Connection>,
}

impl NativeProvider {
    /// Connects to the engine of a home, and starts `program engine --home HOME` when none
    /// answers.
    ///
    /// The connection stays good when this process gives up its privileges afterwards.
    pub fn open(home: &Home, program: &Path) -> Result<Self, ProviderError> {
        let socket = start::connect_or_start(home, program)?;
        let connection =
            Connection::new(socket).map_err(|error| backend("talk to the engine", error))?;
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Connects to the engine of a home; `None` when none answers.
    pub fn find(home: &Home) -> Result<Option<Self>, ProviderError> {
        let Ok(socket) = start::connect(home) else { return Ok(None) };
        let connection =
            Connection::new(socket).map_err(|error| backend("talk to the engine", error))?;
        Ok(Some(Self { connection: Arc::new(connection) }))
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
    pub async fn end_engine(&self) -> Result<(), ProviderError> {
        self.ask(Verb::Leave, None).await?;
        self.connection.closed().await;
        Ok(())
    }

    /// Tells the guest what it cannot see from inside. The engine does not: it speaks with no guest.
    async fn set_up(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<(), ProviderError> {
        let limits = LimitsTold {
            memory_bytes: spec.limits.memory.0,
            cpu_millis: u64::from(spec.limits.cpus.0),
            pids: u64::from(spec.limits.pids),
            disk_bytes: spec.limits.disk.0,
        };
        let init = Init {
            env_vars: Some(spec.environment.clone()),
            limits: Some(limits),
            sudo: Some(spec.sudo),
            ..Init::default()
        };
        let guest = provider::guest(Arc::new(self.clone()), id.clone());
        guest.init(&init).await.map_err(|error| ProviderError::Backend {
            step: "set the sandbox up".to_owned(),
            source: Box::new(error),
        })
    }

    async fn ask(
        &self,
        verb: Verb,
        id: Option<&SandboxId>,
    ) -> Result<(Answer, Option<std::os::fd::OwnedFd>), ProviderError> {
        let reply = self.connection.ask(verb).await;
        let (answer, descriptor) = reply.map_err(|error| backend("ask the engine", error))?;
        let answer = answer.map_err(|refusal| explain(refusal, id))?;
        Ok((answer, descriptor))
    }
}

#[async_trait]
impl Provider for NativeProvider {
    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<(), ProviderError> {
        let verb = Verb::Create {
            id: id.clone(),
            limits: spec.limits.clone(),
            lifetime: spec.lifetime,
            allow_unenforced: spec.allow_unenforced,
        };
        self.ask(verb, Some(id)).await?;
        self.set_up(id, spec).await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, ProviderError> {
        let (_, descriptor) = self.ask(Verb::Connect { id: id.clone() }, Some(id)).await?;
        let descriptor = descriptor.ok_or_else(|| {
            backend("reach the guest", io::Error::other("the engine sent no connection"))
        })?;
        let stream = UnixStream::from_std(descriptor.into());
        Ok(Box::new(stream.map_err(|error| backend("reach the guest", error))?))
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

    async fn destroy(&self, id: &SandboxId) -> Result<(), ProviderError> {
        self.ask(Verb::Destroy { id: id.clone() }, Some(id)).await?;
        Ok(())
    }
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
        (Refusal::Invalid(reason), _) => return ProviderError::Invalid { reason },
        (Refusal::Unenforced(limits, fix), _) => return ProviderError::Unenforced { limits, fix },
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
