//! Executions: what was asked for, how it stands, and those that were a short while ago.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest_proto::code::{EventKind, Language, Limits, Status, Summary};
use tokio::sync::{mpsc, watch};

use super::log::Log;
use super::text;
use crate::process::Budget;

/// As many ended executions as are remembered.
const MOST_ENDED: usize = 64;

/// As much code as may wait, in bytes, of all executions together.
const MOST_WAITING: usize = 48 << 20;

/// The longest answer to a question, in bytes.
const LONGEST_ANSWER: usize = 1 << 20;

/// What an execution is to do.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) code: String,
    pub(super) environment: BTreeMap<String, String>,
    /// None is for ever.
    pub(super) timeout: Option<Duration>,
    pub(super) limits: Limits,
    /// Somebody answers its questions.
    pub(super) answered: bool,
    /// Where the answers come from.
    pub(super) answers: mpsc::Receiver<String>,
}

/// One execution. It belongs to the sandbox and not to who asked for it.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) language: Language,
    pub(super) log: Arc<Log>,
    created_at: String,
    status: Mutex<Status>,
    work: Mutex<Option<Work>>,
    answers: mpsc::Sender<String>,
    /// It has asked something that nobody has answered.
    asks: AtomicBool,
    /// Set when nobody wants it any more.
    pub(super) cancelled: watch::Sender<bool>,
    waiting: Arc<AtomicUsize>,
    weight: usize,
}

impl Execution {
    /// How it stands.
    pub(super) fn status(&self) -> Status {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins it: gives out what is to be done, once, and not when it was cancelled before.
    pub(super) fn begin(&self) -> Option<Work> {
        let work = self.take_work()?;
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Status::Running;
        Some(work)
    }

    /// Ends it.
    pub(super) fn end(&self, status: Status, reason: Option<String>) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        self.log.push(EventKind::End { status, reason });
    }

    /// Cancels it: at once where it waits, by an interrupt where it runs.
    pub(super) fn cancel(&self, reason: &str) {
        self.cancelled.send_replace(true);
        if self.take_work().is_some() {
            self.end(Status::Cancelled, Some(reason.to_owned()));
        }
    }

    /// It asks something.
    pub(super) fn asks(&self) {
        self.asks.store(true, Ordering::Relaxed);
    }

    /// Gives an answer to a question; says why not, where that makes no sense.
    pub(super) fn answer(&self, text: String) -> Result<(), &'static str> {
        if self.log.is_over() {
            return Err("the execution is over");
        }
        if text.len() > LONGEST_ANSWER {
            return Err("the answer is longer than a mebibyte");
        }
        if !self.asks.swap(false, Ordering::Relaxed) {
            return Err("the execution asks nothing");
        }
        self.answers.try_send(text).map_err(|_| "the execution has answers that it did not read")
    }

    /// A line about it.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            id: self.id.clone(),
            context_id: self.context_id.clone(),
            language: self.language,
            status: self.status(),
            events: self.log.count(),
            created_at: self.created_at.clone(),
        }
    }

    fn take_work(&self) -> Option<Work> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        if work.is_some() {
            self.waiting.fetch_sub(self.weight, Ordering::Relaxed);
        }
        work
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.take_work();
    }
}

/// What somebody asks an execution for, checked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) code: String,
    pub(super) language: Language,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) timeout: Option<Duration>,
    pub(super) limits: Limits,
    pub(super) answered: bool,
}

/// The executions that are known.
#[derive(Debug, Default)]
pub(super) struct Executions {
    all: Mutex<VecDeque<Arc<Execution>>>,
    budget: Arc<Budget>,
    waiting: Arc<AtomicUsize>,
}

impl Executions {
    /// A new execution in a context, which waits for its turn; none when too much waits.
    pub(super) fn add(&self, context_id: &str, asked: Asked) -> Option<Arc<Execution>> {
        let variables = asked.environment.iter().map(|(name, value)| name.len() + value.len() + 64);
        let weight = asked.code.len() + variables.sum::<usize>();
        if self.waiting.load(Ordering::Relaxed) + weight > MOST_WAITING {
            return None;
        }
        self.waiting.fetch_add(weight, Ordering::Relaxed);
        let Asked { code, language, environment, timeout, limits, answered } = asked;
        let (answers, receiver) = mpsc::channel(8);
        let work = Work { code, environment, timeout, limits, answered, answers: receiver };
        let execution = Arc::new(Execution {
            id: super::new_id(),
            context_id: context_id.to_owned(),
            language,
            log: Arc::new(Log::new(Arc::clone(&self.budget))),
            created_at: text::now(),
            status: Mutex::new(Status::Queued),
            work: Mutex::new(Some(work)),
            answers,
            asks: AtomicBool::new(false),
            cancelled: watch::Sender::new(false),
            waiting: Arc::clone(&self.waiting),
            weight,
        });
        execution.log.push(EventKind::Accepted {
            execution_id: execution.id.clone(),
            context_id: context_id.to_owned(),
            language,
        });
        self.keep(Arc::clone(&execution));
        Some(execution)
    }

    /// An execution by its name.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Execution>> {
        self.lock().iter().find(|execution| execution.id == id).cloned()
    }

    /// Lines about all, the newest last.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        self.lock().iter().map(|execution| execution.summary()).collect()
    }

    fn keep(&self, execution: Arc<Execution>) {
        let mut all = self.lock();
        all.push_back(execution);
        let mut ended = all.iter().filter(|one| one.log.is_over()).count();
        all.retain(|one| {
            let goes = ended > MOST_ENDED && one.log.is_over();
            ended -= usize::from(goes);
            !goes
        });
        // Those that ended make room for those that run.
        for one in all.iter().filter(|one| one.log.is_over()) {
            if !self.budget.is_crowded() {
                break;
            }
            one.log.forget();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Execution>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
