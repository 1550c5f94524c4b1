//! One sandbox and the task that owns it.
//!
//! ```text
//! begin ──► store: starting ──► provider makes it ──► store: running ──► answer
//!                                      │
//!                                      └─ it cannot: nothing stays, the caller hears why
//!
//! serve ◄──► wishes from its mailbox: renew, limit, network, start, stop, pause, resume, capture,
//!   ▲        roll back, look, delete
//!   ▲
//!   └─────── the provider says that it ended
//! ```
//!
//! A task that is let go of (its mailbox closes) leaves its sandbox as it is: the next daemon
//! finds it again.

mod capture;
mod keep;
mod limit;
mod make;
mod network;
mod pause;
mod restart;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::{
    Ending, Event, Happened, Lease, OnTimeout, Origin, SandboxId, SandboxSpec, SnapshotRecord,
    State, Timestamp,
};
use guest_proto::GuestClient;
use policy::{Action, Caller, Permitted};
use provider::{ProviderError, SnapshotKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::warn;

pub(crate) use pause::spec_of;

use crate::{ControlError, LimitChange, NetworkWish, Renewal, Shared, now};

/// Wishes that may wait for one sandbox; more are held up where they are made.
const MAILBOX: usize = 16;

/// How long to wait before a provider that is away is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// What everybody else has of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    mailbox: mpsc::Sender<Command>,
    lease: watch::Receiver<Arc<Lease>>,
    /// Speaks with its guest: without its token, and with it.
    pub(crate) guests: Arc<OnceLock<(GuestClient, GuestClient)>>,
}

type Answer<T> = oneshot::Sender<Result<T, ControlError>>;

#[derive(Debug)]
enum Command {
    Renew {
        caller: Caller,
        renewal: Renewal,
        answer: Answer<Arc<Lease>>,
    },
    Limit {
        caller: Caller,
        change: LimitChange,
        answer: Answer<Arc<Lease>>,
    },
    Network {
        caller: Caller,
        wish: NetworkWish,
        answer: Answer<Arc<Lease>>,
    },
    Start {
        caller: Caller,
        answer: Answer<Arc<Lease>>,
    },
    Stop {
        caller: Caller,
        answer: Answer<Arc<Lease>>,
    },
    Pause {
        caller: Caller,
        grace: Option<Duration>,
        answer: Answer<Arc<Lease>>,
    },
    Resume {
        caller: Caller,
        answer: Answer<Arc<Lease>>,
    },
    Capture {
        caller: Caller,
        record: Box<SnapshotRecord>,
        kind: SnapshotKind,
        answer: Answer<SnapshotRecord>,
    },
    RollBack {
        caller: Caller,
        origin: Origin,
        answer: Answer<Arc<Lease>>,
    },
    /// See whether the provider has it as we do.
    Look,
    /// Write to the store what it could not take before.
    Index {
        answer: Answer<()>,
    },
    Delete {
        caller: Caller,
        answer: Answer<()>,
    },
}

impl Handle {
    /// The sandbox as it was last published.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.borrow())
    }

    /// The sandbox when it is no longer being made.
    pub(crate) async fn settled(&self) -> Arc<Lease> {
        let mut lease = self.lease.clone();
        let settled = |lease: &Arc<Lease>| {
            !matches!(
                lease.state,
                State::Starting(_)
                    | State::Pausing(_)
                    | State::Resuming(_)
                    | State::Snapshotting(_)
            )
        };
        match lease.wait_for(settled).await {
            Ok(lease) => Arc::clone(&lease),
            // Its task is gone, and with it what was being made.
            Err(_) => self.lease(),
        }
    }

    pub(crate) async fn renew(
        &self,
        caller: Caller,
        renewal: Renewal,
    ) -> Result<Arc<Lease>, ControlError> {
        self.ask(|answer| Command::Renew { caller, renewal, answer }).await
    }

    pub(crate) async fn delete(&self, caller: Caller) -> Result<(), ControlError> {
        self.ask(|answer| Command::Delete { caller, answer }).await
    }

    pub(crate) async fn index(&self) -> Result<(), ControlError> {
        self.ask(|answer| Command::Index { answer }).await
    }

    async fn ask<T>(&self, wish: impl FnOnce(Answer<T>) -> Command) -> Result<T, ControlError> {
        let gone = |()| ControlError::NotFound { which: self.lease().id.to_string() };
        let (answer, answered) = oneshot::channel();
        self.mailbox.send(wish(answer)).await.map_err(|_| gone(()))?;
        answered.await.map_err(|_| gone(()))?
    }
}

/// A sandbox that is being made.
pub(crate) struct Making {
    answered: oneshot::Receiver<Result<Arc<Lease>, ControlError>>,
}

impl Making {
    /// Waits until it can be used.
    pub(crate) async fn made(self) -> Result<Arc<Lease>, ControlError> {
        self.answered.await.map_err(|_| ControlError::Closing)?
    }
}

/// Begins to make a sandbox. Its name is its own from now on.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    caller: &Caller,
    lease: Lease,
    spec: Permitted<SandboxSpec>,
) -> Result<Making, ControlError> {
    let task = Task::register(shared, lease)?;
    let (answer, answered) = oneshot::channel();
    shared.tasks.spawn(task.make(caller.clone(), spec, answer));
    Ok(Making { answered })
}

/// Takes over a sandbox that is there.
pub(crate) fn adopt(shared: &Arc<Shared>, lease: Lease) -> Result<(), ControlError> {
    let mut task = Task::register(shared, lease)?;
    task.keep_until = task.kept_since_earlier();
    task.set_clocks_of_earlier();
    shared.tasks.spawn(task.take_over());
    Ok(())
}

/// Owns one sandbox.
struct Task {
    shared: Arc<Shared>,
    mailbox: mpsc::Receiver<Command>,
    published: watch::Sender<Arc<Lease>>,
    lease: Lease,
    /// When what stopped at its time is removed, by a clock that nobody sets.
    keep_until: Option<Instant>,
    /// When what runs is paused because its time is over.
    pause_at: Option<Instant>,
    /// When what stands still in memory is put on the disk.
    hibernate_at: Option<Instant>,
}

impl Task {
    fn register(shared: &Arc<Shared>, lease: Lease) -> Result<Self, ControlError> {
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let first = Arc::new(lease.clone());
        let (published, receiver) = watch::channel(Arc::clone(&first));
        let handle = Handle { mailbox: sender, lease: receiver, guests: Arc::default() };
        shared.registry.add(&first, handle)?;
        Ok(Self {
            shared: Arc::clone(shared),
            mailbox,
            published,
            lease,
            keep_until: None,
            pause_at: None,
            hibernate_at: None,
        })
    }

    /// Does what is wished until the sandbox is gone, or is let go of.
    async fn serve(mut self) {
        loop {
            let alive = matches!(self.lease.state, State::Running(_) | State::Paused(_));
            let (keep_until, pause_at) = (self.keep_until, self.pause_at);
            let hibernate_at = self.hibernate_at;
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    None => return,
                    Some(Command::Renew { caller, renewal, answer }) => {
                        let renewed = self.renew(&caller, renewal).await;
                        self.tell_failure(&caller, &renewed, |reason| Happened::TimeoutFailed { reason });
                        let _ = answer.send(renewed);
                    }
                    Some(Command::Limit { caller, change, answer }) => {
                        let limited = self.limit(&caller, change).await;
                        self.tell_failure(&caller, &limited, |reason| Happened::LimitsFailed { reason });
                        let _ = answer.send(limited);
                    }
                    Some(Command::Network { caller, wish, answer }) => {
                        let changed = self.change_network(&caller, wish).await;
                        self.tell_failure(&caller, &changed, |reason| Happened::NetworkFailed { reason });
                        let _ = answer.send(changed);
                    }
                    Some(Command::Start { caller, answer }) => {
                        let started = self.start(&caller).await;
                        self.tell_failure(&caller, &started, |reason| Happened::StartFailed { reason });
                        let _ = answer.send(started);
                    }
                    Some(Command::Stop { caller, answer }) => {
                        let stopped = self.stop(&caller).await;
                        self.tell_failure(&caller, &stopped, |reason| Happened::StopFailed { reason });
                        let _ = answer.send(stopped);
                    }
                    Some(Command::Pause { caller, grace, answer }) => {
                        let paused = self.pause(&caller, grace).await;
                        self.tell_failure(&caller, &paused, |reason| Happened::PauseFailed { reason });
                        let _ = answer.send(paused);
                    }
                    Some(Command::Resume { caller, answer }) => {
                        let resumed = self.resume(&caller).await;
                        self.tell_failure(&caller, &resumed, |reason| Happened::ResumeFailed { reason });
                        let _ = answer.send(resumed);
                    }
                    Some(Command::Capture { caller, record, kind, answer }) => {
                        let captured = self.capture(&caller, *record, kind).await;
                        self.tell_failure(&caller, &captured, |reason| Happened::SnapshotFailed { reason });
                        if let Ok(record) = &captured {
                            self.tell(&caller, Happened::Captured { snapshot: record.id.clone() });
                        }
                        let _ = answer.send(captured);
                    }
                    Some(Command::RollBack { caller, origin, answer }) => {
                        let (snapshot, back) =
                            (origin.snapshot.clone(), self.roll_back(&caller, origin).await);
                        self.tell_failure(&caller, &back, |reason| Happened::RollbackFailed { reason });
                        if back.is_ok() {
                            self.tell(&caller, Happened::RolledBack { snapshot });
                        }
                        let _ = answer.send(back);
                    }
                    Some(Command::Look) => {
                        if self.look().await {
                            return;
                        }
                    }
                    Some(Command::Index { answer }) => {
                        let indexed = self.shared.put(&self.lease).await;
                        let _ = answer.send(indexed.map_err(ControlError::from));
                    }
                    Some(Command::Delete { caller, answer }) => {
                        let deleted = self.delete(&caller).await;
                        self.tell_failure(&caller, &deleted, |reason| Happened::DeletionFailed { reason });
                        let is_gone = deleted.is_ok();
                        let _ = answer.send(deleted);
                        if is_gone {
                            return;
                        }
                    }
                },
                ending = ended(&self.shared, &self.lease.id), if alive => {
                    if self.end(ending).await {
                        return;
                    }
                }
                () = at(pause_at), if pause_at.is_some() => self.pause_in_time().await,
                () = at(hibernate_at), if hibernate_at.is_some() => self.hibernate().await,
                () = at(keep_until), if keep_until.is_some() =>
                {
                    match self.delete(&Caller::soma()).await {
                        Ok(()) => return,
                        Err(error) => {
                            warn!(sandbox = %self.lease.id, %error, "its files stay for now");
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                }
            }
        }
    }

    async fn renew(
        &mut self,
        caller: &Caller,
        renewal: Renewal,
    ) -> Result<Arc<Lease>, ControlError> {
        self.go_on(caller).await?;
        let (Renewal::Set(timeout) | Renewal::AtLeast(timeout)) = renewal;
        let until = now().after(timeout);
        let is_later = self.lease.until.is_none_or(|known| known >= until);
        if matches!(renewal, Renewal::AtLeast(_)) && is_later {
            return Ok(Arc::clone(&self.published.borrow()));
        }
        let permitted = self.permit(caller)?;
        if self.lease.on_timeout != OnTimeout::Pause {
            // Zero would be never.
            let timeout = timeout.max(Duration::from_millis(1));
            self.shared.provider.renew(&permitted, Some(timeout)).await?;
        }
        self.lease.until = Some(until);
        self.set_clocks();
        self.keep().await?;
        self.tell(caller, Happened::TimeoutSet { until: Some(until) });
        Ok(Arc::clone(&self.published.borrow()))
    }

    /// Removes the sandbox. What fails can be tried again.
    async fn delete(&mut self, caller: &Caller) -> Result<(), ControlError> {
        let permitted = self.permit(caller)?;
        let deleting = match self.lease.state.clone().delete() {
            Ok(deleting) => {
                self.enter(State::Deleting(deleting.clone()), now(), caller).await;
                deleting
            }
            Err(State::Deleting(deleting)) => deleting,
            Err(_) => return Ok(()),
        };
        self.shared.provider.destroy(&permitted).await?;
        self.shared.forget(&self.lease.id).await?;
        self.shared.registry.remove(&self.lease);
        self.lease.state = State::Deleted(deleting.deleted());
        self.lease.changed_at = now();
        self.published.send_replace(Arc::new(self.lease.clone()));
        self.tell(caller, Happened::StateChanged(self.lease.state.clone()));
        Ok(())
    }

    /// The sandbox ended; whether nothing of it is left.
    async fn end(&mut self, ending: Option<Ending>) -> bool {
        let running = match self.lease.state.clone() {
            State::Running(running) => running,
            State::Paused(paused) => paused.resume().resumed(),
            _ => return false,
        };
        let soma = Caller::soma();
        // What is not found may come back, and is not ours to forget.
        let ending = ending.unwrap_or(Ending::Missing);
        let is_over = ending == Ending::TimedOut;
        self.enter(running.ended(ending), now(), &soma).await;
        if is_over && self.lease.on_timeout == OnTimeout::Delete {
            return match self.delete(&soma).await {
                Ok(()) => true,
                Err(error) => {
                    warn!(sandbox = %self.lease.id, %error, "its time is over, but it stays");
                    false
                }
            };
        }
        false
    }

    /// Goes into another state, and writes that down. The folder has it by what is found there.
    async fn enter(&mut self, state: State, at: Timestamp, caller: &Caller) {
        self.become_known(state, at, caller);
        self.index().await;
    }

    /// Goes into another state, of which the store is yet to be [told](Self::index).
    fn become_known(&mut self, state: State, at: Timestamp, caller: &Caller) {
        self.lease.state = state;
        self.lease.changed_at = at;
        self.keep_until = self.kept_from_now();
        self.set_clocks();
        self.published.send_replace(Arc::new(self.lease.clone()));
        self.tell(caller, Happened::StateChanged(self.lease.state.clone()));
    }

    async fn index(&self) {
        if let Err(error) = self.shared.put(&self.lease).await {
            // The store is an index: what it misses now it learns before it is searched.
            warn!(sandbox = %self.lease.id, %error, "the store does not know the new state");
            self.shared.unindexed().insert(self.lease.id.clone());
        }
    }

    /// Writes the record to the sandbox's folder and to the store.
    async fn keep(&mut self) -> Result<(), ControlError> {
        let permitted = self.permit(&Caller::soma())?;
        self.shared.provider.write_record(&permitted, &self.lease.to_text()?).await?;
        self.shared.put(&self.lease).await?;
        self.published.send_replace(Arc::new(self.lease.clone()));
        Ok(())
    }

    /// Writes down what happened to the sandbox, and tells whoever follows.
    fn tell(&self, caller: &Caller, happened: Happened) {
        self.shared.tell(caller, &self.lease, happened);
    }

    /// The same for what was wished and could not be done.
    fn tell_failure<T>(
        &self,
        caller: &Caller,
        outcome: &Result<T, ControlError>,
        happened: impl FnOnce(String) -> Happened,
    ) {
        if let Err(error) = outcome {
            self.tell(caller, happened(Event::words_of(error)));
        }
    }

    fn permit(&self, caller: &Caller) -> Result<Permitted<SandboxId>, ControlError> {
        let action = Action::Manage(&self.lease);
        Ok(self.shared.rules.decide(caller, action, self.lease.id.clone())?)
    }

    fn wrong_state(&self) -> ControlError {
        let (which, state) = (self.lease.id.to_string(), self.lease.state.clone());
        ControlError::WrongState { which, state }
    }
}

/// Waits for a moment.
async fn at(moment: Option<Instant>) {
    tokio::time::sleep_until(moment.unwrap_or_else(Instant::now)).await;
}

/// Waits for the end of a sandbox; `None` when it is not there any more.
async fn ended(shared: &Shared, id: &SandboxId) -> Option<Ending> {
    loop {
        match shared.provider.ended(id).await {
            Ok(ending) => return Some(ending),
            Err(ProviderError::NotFound { .. }) => return None,
            Err(error) => {
                warn!(sandbox = %id, %error, "the provider does not say how it goes");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
