//! One sandbox and the task that owns it.
//!
//! ```text
//! begin ──► store: starting ──► provider makes it ──► store: running ──► answer
//!                                      │
//!                                      └─ it cannot: nothing stays, the caller hears why
//!
//! serve ◄──► wishes from its mailbox: renew, limit, delete
//!   ▲
//!   └─────── the provider says that it ended
//! ```
//!
//! A task that is let go of (its mailbox closes) leaves its sandbox as it is: the next daemon
//! finds it again.

mod limit;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::{Ending, Event, Happened, Lease, OnTimeout, SandboxId, SandboxSpec, State, Timestamp};
use guest_proto::GuestClient;
use policy::{Action, Caller, Permitted};
use provider::ProviderError;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use crate::{ControlError, LimitChange, Renewal, Shared, now};

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
    Renew { caller: Caller, renewal: Renewal, answer: Answer<Arc<Lease>> },
    Limit { caller: Caller, change: LimitChange, answer: Answer<Arc<Lease>> },
    Delete { caller: Caller, answer: Answer<()> },
}

impl Handle {
    /// The sandbox as it was last published.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.borrow())
    }

    /// The sandbox when it is no longer being made.
    pub(crate) async fn settled(&self) -> Arc<Lease> {
        let mut lease = self.lease.clone();
        let settled = |lease: &Arc<Lease>| !matches!(lease.state, State::Starting(_));
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
    let task = Task::register(shared, lease)?;
    shared.tasks.spawn(task.serve());
    Ok(())
}

/// Owns one sandbox.
struct Task {
    shared: Arc<Shared>,
    mailbox: mpsc::Receiver<Command>,
    published: watch::Sender<Arc<Lease>>,
    lease: Lease,
}

impl Task {
    fn register(shared: &Arc<Shared>, lease: Lease) -> Result<Self, ControlError> {
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let first = Arc::new(lease.clone());
        let (published, receiver) = watch::channel(Arc::clone(&first));
        let handle = Handle { mailbox: sender, lease: receiver, guests: Arc::default() };
        shared.registry.add(&first, handle)?;
        Ok(Self { shared: Arc::clone(shared), mailbox, published, lease })
    }

    async fn make(
        mut self,
        caller: Caller,
        spec: Permitted<SandboxSpec>,
        answer: Answer<Arc<Lease>>,
    ) {
        match self.try_to_make(&caller, &spec).await {
            Ok(()) => {
                let made = Arc::clone(&self.published.borrow());
                if answer.send(Ok(made)).is_err() {
                    // Whoever asked went away and knows no id.
                    if let Err(error) = self.delete(&Caller::soma()).await {
                        warn!(sandbox = %self.lease.id, %error, "nobody's sandbox stays for now");
                    } else {
                        return;
                    }
                }
                self.serve().await;
            }
            Err(error) => {
                self.unmake().await;
                let _ = answer.send(Err(error));
            }
        }
    }

    async fn try_to_make(
        &mut self,
        caller: &Caller,
        spec: &Permitted<SandboxSpec>,
    ) -> Result<(), ControlError> {
        let record = self.lease.to_text()?;
        // The intent is in the folder that the provider makes; the index may learn of it meanwhile.
        let (indexed, created) = tokio::join!(
            self.shared.store.put_lease(&self.lease, None),
            self.shared.provider.create(&self.lease.id, spec, &record)
        );
        let seen = created?;
        indexed?;
        let made = now();
        self.lease.unenforced = seen.unenforced;
        self.lease.missing_layers = seen.missing_layers;
        self.lease.until = self.lease.spec.limits.timeout.map(|timeout| made.after(timeout));
        let State::Starting(starting) = self.lease.state.clone() else {
            return Err(ControlError::Closing);
        };
        self.enter(State::Running(starting.ready()), made, caller).await;
        Ok(())
    }

    /// Leaves nothing of a sandbox that could not be made.
    async fn unmake(&mut self) {
        let id = self.lease.id.clone();
        let destroyed = match self.permit(&Caller::soma()) {
            Ok(permitted) => self.shared.provider.destroy(&permitted).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        if let Err(error) = destroyed {
            warn!(sandbox = %id, %error, "what could not be made could not be removed");
        }
        if let Err(error) = self.shared.store.remove_lease(&id).await {
            warn!(sandbox = %id, %error, "the store still has what could not be made");
        }
        self.shared.registry.remove(&self.lease);
    }

    /// Does what is wished until the sandbox is gone, or is let go of.
    async fn serve(mut self) {
        loop {
            let running = matches!(self.lease.state, State::Running(_));
            let left = self.left_to_keep();
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    None => return,
                    Some(Command::Renew { caller, renewal, answer }) => {
                        let _ = answer.send(self.renew(&caller, renewal).await);
                    }
                    Some(Command::Limit { caller, change, answer }) => {
                        let _ = answer.send(self.limit(&caller, change).await);
                    }
                    Some(Command::Delete { caller, answer }) => {
                        let deleted = self.delete(&caller).await;
                        let is_gone = deleted.is_ok();
                        let _ = answer.send(deleted);
                        if is_gone {
                            return;
                        }
                    }
                },
                ending = ended(&self.shared, &self.lease.id), if running => {
                    if self.end(ending).await {
                        return;
                    }
                }
                () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => {
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

    /// How long a sandbox that stopped at its time is still kept; `None` for all others.
    fn left_to_keep(&self) -> Option<Duration> {
        match &self.lease.state {
            State::Stopped(stopped) if stopped.why == Ending::TimedOut => {
                let until = self.lease.changed_at.after(self.shared.retention);
                let left = until.0.saturating_sub(now().0);
                Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
            }
            _ => None,
        }
    }

    async fn renew(
        &mut self,
        caller: &Caller,
        renewal: Renewal,
    ) -> Result<Arc<Lease>, ControlError> {
        let State::Running(_) = &self.lease.state else {
            return Err(self.wrong_state());
        };
        let (Renewal::Set(timeout) | Renewal::AtLeast(timeout)) = renewal;
        let until = now().after(timeout);
        let is_later = self.lease.until.is_none_or(|known| known >= until);
        if matches!(renewal, Renewal::AtLeast(_)) && is_later {
            return Ok(Arc::clone(&self.published.borrow()));
        }
        let permitted = self.permit(caller)?;
        // Zero would be never.
        let timeout = timeout.max(Duration::from_millis(1));
        self.shared.provider.renew(&permitted, Some(timeout)).await?;
        self.lease.until = Some(until);
        self.keep().await?;
        self.tell(caller, Happened::TimeoutSet { until: Some(until) }).await;
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
        self.shared.store.remove_lease(&self.lease.id).await?;
        self.shared.registry.remove(&self.lease);
        self.lease.state = State::Deleted(deleting.deleted());
        self.lease.changed_at = now();
        self.published.send_replace(Arc::new(self.lease.clone()));
        self.tell(caller, Happened::StateChanged(self.lease.state.clone())).await;
        Ok(())
    }

    /// The sandbox ended; whether nothing of it is left.
    async fn end(&mut self, ending: Option<Ending>) -> bool {
        let State::Running(running) = self.lease.state.clone() else { return false };
        let soma = Caller::soma();
        let Some(ending) = ending else {
            // Removed by somebody who did not ask us.
            return self.delete(&soma).await.is_ok();
        };
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
        self.lease.state = state;
        self.lease.changed_at = at;
        self.published.send_replace(Arc::new(self.lease.clone()));
        let event = self.event(caller, Happened::StateChanged(self.lease.state.clone()));
        if let Err(error) = self.shared.store.put_lease(&self.lease, Some(&event)).await {
            // The store is an index: what it misses now it learns at the next start.
            warn!(sandbox = %self.lease.id, %error, "the store does not know the new state");
        }
        self.shared.events.tell(event);
    }

    /// Writes the record to the sandbox's folder and to the store.
    async fn keep(&mut self) -> Result<(), ControlError> {
        let permitted = self.permit(&Caller::soma())?;
        self.shared.provider.write_record(&permitted, &self.lease.to_text()?).await?;
        self.shared.store.put_lease(&self.lease, None).await?;
        self.published.send_replace(Arc::new(self.lease.clone()));
        Ok(())
    }

    /// Writes down what happened to the sandbox, and tells whoever listens.
    async fn tell(&self, caller: &Caller, happened: Happened) {
        let event = self.event(caller, happened);
        if let Err(error) = self.shared.store.append_event(&event).await {
            warn!(sandbox = %event.sandbox, %error, "an event was not written down");
        }
        self.shared.events.tell(event);
    }

    fn event(&self, caller: &Caller, happened: Happened) -> Event {
        let event = Event {
            at: now(),
            sandbox: self.lease.id.clone(),
            owner: self.lease.owner.clone(),
            actor: caller.name(),
            happened,
        };
        if let Happened::StateChanged(state) = &event.happened {
            let reason = state.reason();
            info!(sandbox = %event.sandbox, state = state.name(), reason, actor = event.actor,
                  "a sandbox changed its state");
        }
        event
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
