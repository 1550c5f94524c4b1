//! Contexts: what users see of kernels, and the orders that a kernel's task gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use guest_proto::code::{Completions, Context as Shown, ContextState, Language};
use tokio::sync::{mpsc, oneshot, watch};

use super::execution::Execution;

/// As many executions as wait in one context.
pub(super) const QUEUE: usize = 64;

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) language: Language,
    pub(super) cwd: String,
    /// Variables beside those of the sandbox.
    pub(super) environment: BTreeMap<String, String>,
    /// Nobody asked for it by itself: it came with an execution, and goes when room is needed.
    pub(super) passing: bool,
    created_at: String,
    queue: mpsc::Sender<Job>,
    pub(super) orders: watch::Sender<Orders>,
    pub(super) standing: watch::Sender<Standing>,
}

/// What a context's task has to do, in turn.
#[derive(Debug)]
pub(super) enum Job {
    Execute(Arc<Execution>),
    Complete { code: String, cursor: u64, answer: oneshot::Sender<Result<Completions, String>> },
}

/// What it has to do at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Orders {
    /// As many times the cell was to be interrupted.
    pub(super) interrupts: u64,
    /// As many times the kernel was to be replaced.
    pub(super) restarts: u64,
    /// It shall be no more.
    pub(super) deleted: bool,
}

/// How it stands.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) state: ContextState,
    pub(super) reason: Option<String>,
    pub(super) execution_count: u64,
    /// As many orders to restart were obeyed.
    pub(super) restarts: u64,
    /// It is doing something, or about to.
    pub(super) working: bool,
    /// When it was last used.
    pub(super) used: Instant,
}

/// What a context's task holds of it.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) queue: mpsc::Receiver<Job>,
    pub(super) orders: watch::Receiver<Orders>,
}

impl Context {
    /// A context whose kernel was not started yet.
    pub(super) fn new(
        id: String,
        language: Language,
        cwd: String,
        environment: BTreeMap<String, String>,
        passing: bool,
    ) -> (Arc<Self>, Ends) {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (orders, ordered) = watch::channel(Orders::default());
        let standing = Standing {
            state: ContextState::Starting,
            reason: None,
            execution_count: 0,
            restarts: 0,
            working: false,
            used: Instant::now(),
        };
        let created_at = super::text::now();
        let standing = watch::Sender::new(standing);
        let context =
            Self { id, language, cwd, environment, passing, created_at, queue, orders, standing };
        (Arc::new(context), Ends { queue: jobs, orders: ordered })
    }

    /// Gives it something to do; the job comes back when too much waits.
    pub(super) fn ask(&self, job: Job) -> Result<(), Job> {
        self.standing.send_modify(|standing| standing.used = Instant::now());
        self.queue.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job) => job,
        })
    }

    /// Whether it does nothing and has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.capacity() == QUEUE && !self.standing.borrow().working
    }

    /// Interrupts its cell.
    pub(super) fn interrupt(&self) {
        self.orders.send_modify(|orders| orders.interrupts += 1);
    }

    /// Replaces its kernel, and waits until the old one is gone.
    pub(super) async fn restart(&self) {
        let mut wanted = 0;
        self.orders.send_modify(|orders| {
            orders.restarts += 1;
            wanted = orders.restarts;
        });
        let mut standing = self.standing.subscribe();
        let _ = standing.wait_for(|standing| standing.restarts >= wanted).await;
    }

    /// As users see it.
    pub(super) fn shown(&self) -> Shown {
        let standing = self.standing.borrow();
        Shown {
            id: self.id.clone(),
            language: self.language,
            cwd: self.cwd.clone(),
            state: standing.state,
            reason: standing.reason.clone(),
            execution_count: standing.execution_count,
            created_at: self.created_at.clone(),
            dependencies: None,
        }
    }
}
