//! The life of sandboxes: made, found again, used, ended, removed.
//!
//! Every dialect meets here. [`Control`] is what they call: it asks `policy` whether the caller
//! may, finds the sandbox, and passes the wish to the one task that owns it (`sandbox.rs`). Only
//! that task changes a sandbox's state, so two wishes for one sandbox never interleave and its
//! state needs no lock. Everybody else sees the last state it published.
//!
//! Every change is: write the intent, act, write the result, answer, and an event for it.
//!
//! Start at [`Control`]. What is not here: who the caller is (`gateway`), how it is said
//! (`api-*`), how isolation is done (`provider-*`).

mod asked;
mod build;
mod error;
mod events;
mod execute;
mod find;
mod guests;
mod index;
mod network;
mod reference;
mod registry;
mod sandbox;
mod snapshots;
mod templates;
mod wish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::{Lease, Lifetime, NetworkMode, OnExit, SandboxId, State, Timestamp, Token};
use policy::{Action, Caller, Permitted, Rules, Who};
use provider::Provider;
use store::Store;
pub use store::{LeaseQuery, Order, Page, Sort};
use tokio::sync::{Mutex, RwLock, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use asked::asked;
pub use build::{InvalidPackage, PACKAGES, Packages};
pub use error::{ControlError, Fault};
pub use execute::{Executed, Execution, Text, cause_of};
pub use find::Found;
use journal::Journal;
pub use journal::{Follower, Page as EventPage, Query as EventQuery, Told};
pub use network::{NetworkLog, NetworkWish};
pub use provider::Archive;
pub use reference::Reference;
use registry::Registry;
use sandbox::Handle;
pub use snapshots::{MOST_COPIES, RestoreWish, Snapshot, SnapshotWish};
pub use templates::{Template, TemplateState};
pub use wish::{LimitChange, Renewal, Wish};

/// What an operator chooses.
#[derive(Clone)]
pub struct Options {
    /// What is allowed.
    pub rules: Rules,
    /// How long a sandbox is kept whose time is over and which stopped; zero is not at all.
    pub retention: Duration,
    /// How long a paused sandbox stands still in memory before it is put on the disk; zero is not
    /// at all.
    pub grace: Duration,
    /// What a sandbox may reach of which nobody said it.
    pub network: NetworkMode,
    /// What the template `code-interpreter` is built with.
    pub packages: Packages,
    /// What ids that follow from idempotency keys are made with, so that nobody guesses them. The
    /// same for every daemon of a home.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Options");
        shown.field("rules", &self.rules).field("retention", &self.retention);
        shown.field("grace", &self.grace).field("network", &self.network);
        shown.field("packages", &self.packages);
        shown.finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        let retention = Duration::from_hours(24 * 7);
        let network = NetworkMode::AllowAll;
        let packages = Packages::default();
        let grace = Duration::from_mins(1);
        Self { rules: Rules::default(), retention, grace, network, packages, secret: [0; 32] }
    }
}

/// The sandboxes of a machine, for whoever may use them. Clones are the same.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

struct Shared {
    provider: Arc<dyn Provider>,
    store: Arc<dyn Store>,
    rules: Rules,
    retention: Duration,
    grace: Duration,
    network: NetworkMode,
    packages: Packages,
    builds: build::Builds,
    secret: [u8; 32],
    registry: Registry,
    journal: Journal,
    /// The tasks that own sandboxes.
    tasks: TaskTracker,
    /// So many guests of sandboxes that were found are spoken with at one time.
    introductions: Semaphore,
    /// So many may follow what sandboxes try to reach.
    followers: Arc<Semaphore>,
    reconciling: Mutex<()>,
    /// Held by whoever has answered and not yet written to the store what was said.
    indexing: Arc<RwLock<()>>,
    /// Sandboxes whose last change the store could not take.
    unindexed: std::sync::Mutex<BTreeSet<SandboxId>>,
    /// Whether the store was made to agree with what was found.
    compared: AtomicBool,
    closing: CancellationToken,
    /// Whose turn it is to change templates: who may is found out and acted on at once.
    templates: Mutex<()>,
    naming: snapshots::Naming,
}

/// More at once would only wait for processors.
const INTRODUCTIONS: usize = 16;

impl std::fmt::Debug for Control {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Control").finish_non_exhaustive()
    }
}

/// A sandbox that is deleted when this is dropped.
#[derive(Debug)]
pub struct Held {
    lease: Arc<Lease>,
    control: Control,
}

impl Held {
    /// The sandbox.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(handle) = self.control.shared.registry.get(&self.lease.id) {
            self.control.shared.tasks.spawn(async move {
                // It is gone already, or goes with the daemon.
                let _ = handle.delete(Caller::soma()).await;
            });
        }
    }
}

impl Control {
    /// Takes charge of the sandboxes that the provider has, and says what was found.
    pub async fn open(
        provider: Arc<dyn Provider>,
        store: Arc<dyn Store>,
        journal: Journal,
        options: Options,
    ) -> Result<(Self, Found), ControlError> {
        let control = Self {
            shared: Arc::new(Shared {
                provider,
                store,
                rules: options.rules,
                retention: options.retention,
                grace: options.grace,
                network: options.network,
                packages: options.packages,
                builds: build::Builds::default(),
                secret: options.secret,
                registry: Registry::default(),
                journal,
                tasks: TaskTracker::new(),
                introductions: Semaphore::new(INTRODUCTIONS),
                followers: Arc::new(Semaphore::new(network::FOLLOWERS)),
                reconciling: Mutex::default(),
                indexing: Arc::default(),
                unindexed: std::sync::Mutex::default(),
                compared: AtomicBool::new(false),
                closing: CancellationToken::new(),
                templates: Mutex::default(),
                naming: snapshots::Naming::default(),
            }),
        };
        let found = control.reconcile().await?;
        control.reconcile_for_ever();
        Ok((control, found))
    }

    /// Makes a sandbox and waits until it can be used.
    ///
    /// When the caller goes away before the answer, the sandbox is removed: nobody knows its id.
    /// With a key in the wish it stays, because the same request asks for it again.
    pub async fn create(
        &self,
        caller: &Caller,
        mut wish: Wish,
    ) -> Result<Arc<Lease>, ControlError> {
        if let Some(asked) = wish.asked.take() {
            return self.create_once(caller, wish, asked).await;
        }
        let id = SandboxId::from_random(random::<15>()?);
        let (lease, spec) = self.plan(caller, self.with_template(caller, wish).await?, id)?;
        let handle = sandbox::begin(&self.shared, caller, lease, spec)?;
        handle.made().await
    }

    /// Makes a sandbox that lives as long as what is returned.
    pub async fn create_held(&self, caller: &Caller, mut wish: Wish) -> Result<Held, ControlError> {
        wish.lifetime = Lifetime::WithCaller;
        wish.asked = None;
        let lease = self.create(caller, wish).await?;
        Ok(Held { lease, control: self.clone() })
    }

    fn plan(
        &self,
        caller: &Caller,
        mut wish: Wish,
        id: SandboxId,
    ) -> Result<(Lease, Permitted<domain::SandboxSpec>), ControlError> {
        let network = self.shared.network_of_new(caller, &id, wish.network.take())?;
        let token = Token::from_random(&random::<16>()?);
        let mut lease = wish.into_lease(id, token, caller.owner.clone(), now())?;
        lease.spec.network = network;
        let existing = self.shared.registry.count();
        let action = Action::Create { spec: &lease.spec, existing };
        let spec = self.shared.rules.decide(caller, action, sandbox::spec_of(&lease))?;
        Ok((lease, spec))
    }

    /// One sandbox, as it is now.
    pub fn get(&self, caller: &Caller, which: &Reference) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::See(lease))?;
        Ok(handle.lease())
    }

    /// Sets when a sandbox's time is over.
    pub async fn renew(
        &self,
        caller: &Caller,
        which: &Reference,
        renewal: Renewal,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.renew(caller.clone(), renewal).await
    }

    /// Changes what a sandbox may use while it runs.
    pub async fn limit(
        &self,
        caller: &Caller,
        which: &Reference,
        change: LimitChange,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.limit(caller.clone(), change).await
    }

    /// Runs a sandbox again that ended, with the files that it has.
    pub async fn start(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.start(caller.clone()).await
    }

    /// Ends a sandbox and keeps its files.
    pub async fn stop(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.stop(caller.clone()).await
    }

    /// Lets a sandbox stand still, and says how it is kept; after the grace that the operator chose,
    /// or this one, it is put on the disk.
    pub async fn pause(
        &self,
        caller: &Caller,
        which: &Reference,
        grace: Option<Duration>,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.pause(caller.clone(), grace).await
    }

    /// Lets a sandbox go on that is paused. One that runs is left alone.
    pub async fn resume(
        &self,
        caller: &Caller,
        which: &Reference,
    ) -> Result<Arc<Lease>, ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.resume(caller.clone()).await
    }

    /// Does with each sandbox what it was made to do when the daemon is told to end.
    pub async fn exit(&self) {
        let mut ends = tokio::task::JoinSet::new();
        for handle in self.shared.registry.all() {
            let lease = handle.lease();
            let runs = matches!(lease.state, State::Running(_));
            match lease.on_exit {
                OnExit::Stop if runs => {
                    ends.spawn(async move { handle.stop(Caller::soma()).await.map(drop) })
                }
                OnExit::Pause if runs => ends.spawn(async move {
                    handle.pause(Caller::soma(), Some(Duration::ZERO)).await.map(drop)
                }),
                OnExit::Destroy => ends.spawn(async move { handle.delete(Caller::soma()).await }),
                OnExit::Keep | OnExit::Stop | OnExit::Pause => continue,
            };
        }
        while let Some(ended) = ends.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(%error, "a sandbox stays as it is");
            }
        }
    }

    /// Ends a sandbox and removes all of it.
    pub async fn delete(&self, caller: &Caller, which: &Reference) -> Result<(), ControlError> {
        let handle = self.handle(caller, which, |lease| Action::Manage(lease))?;
        handle.delete(caller.clone()).await
    }

    /// How many sandboxes are in each state.
    pub fn census(&self) -> BTreeMap<&'static str, u64> {
        let mut census = BTreeMap::new();
        for handle in self.shared.registry.all() {
            *census.entry(handle.lease().state.name()).or_default() += 1;
        }
        census
    }

    /// Whether the provider and the store answer.
    pub async fn check(&self) -> Result<(), ControlError> {
        self.shared.provider.list().await?;
        Ok(self.shared.store_answers().await?)
    }

    /// Lets go of all sandboxes. They run on; what is being made or removed is finished first.
    pub async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.registry.close();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Finds a sandbox and asks whether this may be done with it. One that is somebody else's is
    /// as good as not there.
    fn handle(
        &self,
        caller: &Caller,
        which: &Reference,
        action: impl for<'a> FnOnce(&'a Lease) -> Action<'a>,
    ) -> Result<Handle, ControlError> {
        let not_found = || ControlError::NotFound { which: which.to_string() };
        let handle = self.shared.registry.find(&caller.owner, which, is_everybody(caller))?;
        let lease = handle.lease();
        let see = Action::See(&lease);
        self.shared.rules.decide(caller, see, ()).map_err(|_| not_found())?;
        self.shared.rules.decide(caller, action(&lease), ())?;
        if matches!(lease.state, State::Deleted(_)) {
            return Err(not_found());
        }
        Ok(handle)
    }
}

/// Whether the caller sees every owner's sandboxes.
fn is_everybody(caller: &Caller) -> bool {
    matches!(caller.who, Who::Soma | Who::Local | Who::Token { .. })
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(0).after(since)
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], ControlError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ControlError::Broken {
        step: "find random numbers".to_owned(),
        source: Box::new(std::io::Error::other(error.to_string())),
    })?;
    Ok(bytes)
}
