//! One sandbox as the egress program knows it: its rules, its names, what it is connected to.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use domain::{NetworkPolicy, SandboxId};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::certificates::Leaves;
use super::judge::{self, Verdict};
use super::log::Log;
use super::metadata::Tokens;
use super::names::Names;
use super::resolver::{HostResolvers, Resolved, resolve};
use super::settings::Settings;
use super::whose::Whose;
use crate::Rules;

/// How long sockets may take to be closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Names whose addresses are remembered.
const MOST_ANSWERS: usize = 512;

/// One attached sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) log: Arc<Log>,
    pub(crate) tokens: Tokens,
    pub(crate) whose: Whose,
    rules: RwLock<Arc<Current>>,
    names: Mutex<Names>,
    answers: Mutex<HashMap<String, Arc<OnceCell<Resolved>>>>,
    connections: Mutex<HashMap<u64, Live>>,
    next_connection: AtomicU64,
    attachment: Mutex<Attachment>,
}

/// What was begun for the sandbox's present sockets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attachment {
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl Attachment {
    /// Does something until the sandbox is detached, or gets other sockets.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.ending.clone().run_until_cancelled_owned(work));
    }

    /// Waits for something, no longer than the attachment.
    pub(crate) async fn until_ended<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.ending.run_until_cancelled(work).await
    }

    /// Ends it, and waits a little until its sockets are closed.
    async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        let _ = timeout(PATIENCE, self.tasks.wait()).await;
    }
}

/// The rules at one time, and what was made from them.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) rules: Rules,
    pub(crate) leaves: Leaves,
}

/// What a connection is to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The name whose address was connected to, if it was one of names.
    pub(crate) name: Option<String>,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// A connection that goes on.
#[derive(Debug)]
struct Live {
    subject: Subject,
    dialled: Option<IpAddr>,
    manner: Manner,
    cut: CancellationToken,
}

impl Live {
    /// Whether it may go on as it does.
    fn is_good(&self, policy: &NetworkPolicy, settings: &Settings) -> bool {
        judge_subject(policy, settings, &self.subject).allowed
            && self.dialled.is_none_or(|address| settings.check(policy, address).allowed)
            && self.manner == manner(policy, &self.subject)
    }
}

/// How a connection is treated, beside being let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// What it says at first is looked at.
    pub(crate) is_inspected: bool,
    /// Its TLS may be ended here.
    pub(crate) is_changed: bool,
}

impl Sandbox {
    pub(crate) fn new(id: SandboxId, rules: Rules, log: Arc<Log>) -> Self {
        Self {
            id,
            log,
            tokens: Tokens::default(),
            whose: Whose::default(),
            rules: RwLock::new(Arc::new(Current::new(rules))),
            names: Mutex::default(),
            answers: Mutex::default(),
            connections: Mutex::default(),
            next_connection: AtomicU64::new(0),
            attachment: Mutex::default(),
        }
    }

    /// What holds now.
    pub(crate) fn rules(&self) -> Arc<Current> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other rules hold from now on. Connections that they do not allow, or treat in another
    /// manner, are cut; the others go on.
    pub(crate) fn change(&self, rules: Rules, settings: &Settings) {
        let current = Arc::new(Current::new(rules));
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = current;
        self.cut_refused(settings);
    }

    /// Cuts what is not allowed any longer.
    pub(crate) fn cut_refused(&self, settings: &Settings) {
        let rules = self.rules();
        let policy = &rules.rules.policy;
        for live in lock(&self.connections).values() {
            if !live.is_good(policy, settings) {
                live.cut.cancel();
            }
        }
    }

    /// Where to do what is to be done for new sockets. What was done for earlier ones ends.
    pub(crate) fn attach(&self) -> Attachment {
        let mut attachment = lock(&self.attachment);
        attachment.ending.cancel();
        *attachment = Attachment::default();
        attachment.clone()
    }

    /// Everything ends, and the sandbox's sockets are closed.
    pub(crate) async fn detach(&self) {
        for live in lock(&self.connections).values() {
            live.cut.cancel();
        }
        let attachment = lock(&self.attachment).clone();
        attachment.end().await;
    }

    /// Enters a connection, to be cut when the rules change. It leaves when the entry is dropped.
    pub(crate) fn enter(self: &Arc<Self>, subject: Subject, manner: Manner) -> Entered {
        let number = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        let live = Live { subject, dialled: None, manner, cut: cut.clone() };
        lock(&self.connections).insert(number, live);
        Entered { sandbox: Arc::clone(self), number, cut }
    }

    /// The address that a name has inside.
    pub(crate) fn give(&self, name: &str) -> Ipv4Addr {
        lock(&self.names).give(name)
    }

    /// The name that has an address inside.
    pub(crate) fn name_at(&self, address: Ipv4Addr) -> Option<String> {
        lock(&self.names).find(address)
    }

    /// The addresses of a name, asked for when they are not known, and whether they were.
    pub(crate) async fn resolve(
        &self,
        settings: &Settings,
        host: &HostResolvers,
        name: &str,
    ) -> (Resolved, bool) {
        let answer = self.answer(name);
        let mut is_fresh = false;
        let resolved = answer.get_or_init(|| {
            is_fresh = true;
            async { resolve(&settings.resolvers(host), name).await }
        });
        (resolved.await.clone(), is_fresh)
    }

    pub(crate) fn forget_answers(&self) {
        lock(&self.answers).clear();
    }

    /// Where the answer for a name is, or will be; those who ask at once wait for the same.
    fn answer(&self, name: &str) -> Arc<OnceCell<Resolved>> {
        let now = Instant::now();
        let is_good = |answer: &OnceCell<Resolved>| answer.get().is_none_or(|it| it.until > now);
        let mut answers = lock(&self.answers);
        if let Some(answer) = answers.get(name)
            && is_good(answer)
        {
            return Arc::clone(answer);
        }
        if answers.len() >= MOST_ANSWERS {
            answers.retain(|_, answer| is_good(answer));
        }
        if answers.len() >= MOST_ANSWERS {
            answers.clear();
        }
        let answer = Arc::<OnceCell<Resolved>>::default();
        answers.insert(name.to_owned(), Arc::clone(&answer));
        answer
    }
}

impl Current {
    fn new(rules: Rules) -> Self {
        Self { rules, leaves: Leaves::default() }
    }
}

/// Whether a connection may be made, as far as that is known before it is.
pub(crate) fn judge_subject(
    policy: &NetworkPolicy,
    settings: &Settings,
    subject: &Subject,
) -> Verdict {
    match &subject.name {
        Some(name) => settings.name(policy, name, Some(subject.port)),
        None => settings.judge(policy, subject.address, subject.port),
    }
}

/// How a connection is to be treated.
pub(crate) fn manner(policy: &NetworkPolicy, subject: &Subject) -> Manner {
    let name = subject.name.as_deref();
    let is_pair = name.is_some_and(|name| judge::pair(policy, name).is_some());
    let has_transform =
        |name: &str| policy.transforms.iter().any(|transform| transform.domain.matches(name));
    let is_changed = !is_pair && name.is_some_and(has_transform);
    Manner { is_inspected: !is_pair && (is_changed || judge::is_strict(policy)), is_changed }
}

/// A connection's place among those of its sandbox.
#[derive(Debug)]
pub(crate) struct Entered {
    sandbox: Arc<Sandbox>,
    number: u64,
    /// Says that the connection is to end.
    pub(crate) cut: CancellationToken,
}

impl Entered {
    /// Tells which address was dialled, so that a change that blocks it cuts the connection. One
    /// that came while it was dialled does so now.
    pub(crate) fn dialled(&self, address: Option<IpAddr>, settings: &Settings) {
        if let Some(live) = lock(&self.sandbox.connections).get_mut(&self.number) {
            live.dialled = address;
        }
        let rules = self.sandbox.rules();
        if let Some(live) = lock(&self.sandbox.connections).get(&self.number)
            && !live.is_good(&rules.rules.policy, settings)
        {
            live.cut.cancel();
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        lock(&self.sandbox.connections).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
