//! The processes that the guest started, those that ended a short while ago included.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::keepers::Keepers;
use super::running::Process;
use super::transcript::Budget;

/// How long the end of a process can be asked for: longer than a daemon is away while it is
/// upgraded.
const REMEMBERED: Duration = Duration::from_mins(15);

/// As many ended processes as are remembered, so that many short ones take no more than this.
const MOST_ENDED: usize = 1024;

/// The table of processes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The keepers of the processes, those that outlived their command included.
    pub(crate) keepers: Keepers,
    inner: Mutex<Inner>,
    /// What is kept of the output of all of them.
    pub(super) budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Inner {
    by_pid: HashMap<u32, Arc<Process>>,
    /// In the order in which they ended.
    ended: VecDeque<(Instant, Arc<Process>)>,
}

/// Which process is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selector {
    Pid(u32),
    Tag(String),
}

impl Table {
    /// Adds a process. An ended one that had the same pid is forgotten.
    pub(super) fn add(&self, process: Arc<Process>) {
        self.lock().by_pid.insert(process.pid, process);
    }

    /// Notes that a process is over, and forgets it after a while; its output sooner, when too
    /// much is kept of all of them.
    pub(super) fn ended(&self, process: Arc<Process>) {
        let mut inner = self.lock();
        inner.ended.push_back((Instant::now(), process));
        for (_, process) in &inner.ended {
            if !self.budget.is_crowded() {
                break;
            }
            process.audience.forget();
        }
    }

    /// Finds a process. Where several have the same tag, one that runs is preferred.
    pub(super) fn find(&self, selector: &Selector) -> Option<Arc<Process>> {
        let inner = self.lock();
        match selector {
            Selector::Pid(pid) => inner.by_pid.get(pid).cloned(),
            Selector::Tag(tag) => inner
                .by_pid
                .values()
                .filter(|process| process.tag.as_ref() == Some(tag))
                .min_by_key(|process| process.audience.ending().is_some())
                .cloned(),
        }
    }

    /// The processes that are not over, by pid.
    pub(super) fn running(&self) -> Vec<Arc<Process>> {
        let inner = self.lock();
        let mut running: Vec<_> = inner
            .by_pid
            .values()
            .filter(|process| process.audience.ending().is_none())
            .cloned()
            .collect();
        running.sort_by_key(|process| process.pid);
        running
    }

    /// Kills all that runs, with everything below it.
    pub(crate) fn kill_all(&self) {
        for process in self.running() {
            // One that ended in between needs no killing.
            let _ = process.kill();
        }
    }

    /// The table, without those that ended too long ago.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.ended.len() > MOST_ENDED
            || inner.ended.front().is_some_and(|(when, _)| when.elapsed() > REMEMBERED)
        {
            let Some((_, process)) = inner.ended.pop_front() else { break };
            // Its pid may belong to another one by now.
            if inner.by_pid.get(&process.pid).is_some_and(|known| Arc::ptr_eq(known, &process)) {
                inner.by_pid.remove(&process.pid);
            }
        }
        inner
    }
}
