//! One cell, from its turn to its end.
//!
//! ```text
//! execute ──► frames, output ──► done ──► the end is told
//!    │ its time is over, or nobody wants it: interrupted
//!    └────► still not done after a while: killed
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guest_proto::code::{ContextState, EventKind, Failure, Language, Status};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::context::Orders;
use super::execution::{Execution, Work};
use super::frame::{self, Done, Frame};
use super::kernel::News;
use super::runner::Runner;
use super::voice::Voice;

/// How long a cell has after an interrupt before its kernel is killed.
const GRACE: Duration = Duration::from_secs(3);

/// How long after an interrupt another is sent to a cell of which nothing was heard, and how
/// often: the first may have come before the kernel had begun with it, and was for nothing.
const AGAIN: Duration = Duration::from_millis(300);
const TIMES: u32 = 3;

/// How long a kernel has to get ready.
const STARTING: Duration = Duration::from_mins(1);

/// What is lost with a kernel, and what is not.
const LOST: &str = "variables and imports are lost, files are kept; the next execution starts a \
                    fresh kernel";

/// What was done about a cell that has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    /// Nothing: it may go on.
    No,
    /// It was interrupted since its time is over.
    Late,
    /// It was interrupted since nobody wants it any more.
    Unwanted,
}

/// How a cell ended.
enum Ending {
    Done(Done, Bytes),
    /// The kernel is gone, or has to go.
    Lost(String),
    /// It did not stop in time.
    Stubborn,
    /// The context is to have another kernel, or none.
    Ordered,
    /// Nobody wanted it any more before there was a kernel.
    Unwanted,
}

/// Interrupts that are sent again.
struct Insisting {
    /// The cell has said something: it has begun.
    heard: bool,
    left: u32,
    next: Instant,
}

impl Insisting {
    /// An interrupt was sent.
    fn begin(&mut self) {
        self.left = TIMES;
        self.next = Instant::now() + AGAIN;
    }

    /// Waits until another is due, which may be never.
    async fn due(&mut self) {
        if self.heard || self.left == 0 {
            return std::future::pending().await;
        }
        sleep_until(self.next).await;
        self.left -= 1;
        self.next += AGAIN;
    }
}

impl Runner {
    /// Runs an execution to its end.
    pub(super) async fn execute(&mut self, execution: &Arc<Execution>) {
        let Some(mut work) = execution.begin() else { return };
        let log = Arc::clone(&execution.log);
        let Some(started) = self.start(execution).await else { return };
        if let Err(problem) = started {
            let name = "KernelNotStarted".to_owned();
            let value = problem.clone();
            log.push(EventKind::Error(Failure { name, value, traceback: String::new() }));
            self.stand(ContextState::Dead, Some(problem.clone()));
            return execution.end(Status::Error, Some(problem));
        }
        let count = self.context.standing.borrow().execution_count + 1;
        self.context.standing.send_modify(|standing| {
            standing.execution_count = count;
            standing.state = ContextState::Busy;
            standing.reason = None;
        });
        if let Some(reason) = self.lost.take() {
            let text = format!("[the kernel was restarted: {reason}; variables are lost]\n");
            log.push(EventKind::Restarted { reason });
            log.push(EventKind::Stderr { text });
        }
        let mut voice = Voice::new(&log, &work.limits, &self.state.code.spools, &execution.id);
        for (stream, bytes) in self.background.take() {
            voice.output(stream, &bytes).await;
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.settle().await;
            kernel.send(request(count, execution.language, &work));
        }
        let mut stopping = Stopping::No;
        let ending = self.follow(execution, &mut work, &mut voice, count, &mut stopping).await;
        voice.close().await;
        let hushed = voice.hushed.take();
        self.conclude(execution, ending, stopping, work.timeout, hushed).await;
    }

    /// Has a kernel for an execution. None where it was over before there was one.
    async fn start(&mut self, execution: &Execution) -> Option<Result<(), String>> {
        let (mut orders, mut cancelled) = (self.orders.clone(), execution.cancelled.subscribe());
        let restarts = self.obeyed.restarts;
        let ordered = async {
            let is_meant = |orders: &Orders| orders.deleted || orders.restarts != restarts;
            drop(orders.wait_for(is_meant).await);
        };
        let unwanted = async { drop(cancelled.wait_for(|cancelled| *cancelled).await) };
        let ending = tokio::select! {
            biased;
            () = ordered => Ending::Ordered,
            () = unwanted => Ending::Unwanted,
            started = self.ensure_kernel() => return Some(started),
        };
        self.conclude(execution, ending, Stopping::No, None, None).await;
        None
    }

    /// Passes on what the cell says, until it is over one way or another.
    async fn follow(
        &mut self,
        execution: &Execution,
        work: &mut Work,
        voice: &mut Voice<'_>,
        count: u64,
        stopping: &mut Stopping,
    ) -> Ending {
        let mut cancelled = execution.cancelled.subscribe();
        // The time of a start is not the cell's.
        let mut started = false;
        // An interrupt that came before: sent now, it would end what is not a kernel yet.
        let mut owed = false;
        let mut deadline = Some(Instant::now() + STARTING);
        let mut insisting = Insisting { heard: false, left: 0, next: Instant::now() };
        loop {
            let Some(kernel) = &mut self.kernel else {
                return Ending::Lost("it is gone".to_owned());
            };
            if kernel.ready && !started {
                started = true;
                voice.log.push(EventKind::Started { execution_count: count });
                deadline = work.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                if owed {
                    kernel.interrupt();
                    insisting.begin();
                    if *stopping != Stopping::No {
                        deadline = Some(Instant::now() + GRACE);
                    }
                }
            }
            let is_stopping = *stopping != Stopping::No;
            let expiry = pin!(expire(deadline));
            let news = tokio::select! {
                biased;
                _ = self.orders.changed() => {
                    let orders = *self.orders.borrow_and_update();
                    if orders.deleted || orders.restarts != self.obeyed.restarts {
                        return Ending::Ordered;
                    }
                    self.obeyed.interrupts = orders.interrupts;
                    owed = !started;
                    if started {
                        kernel.interrupt();
                        insisting.begin();
                    }
                    continue;
                }
                () = expiry => {
                    if !started {
                        return Ending::Lost("it was not ready in time".to_owned());
                    }
                    if is_stopping {
                        return Ending::Stubborn;
                    }
                    *stopping = Stopping::Late;
                    kernel.interrupt();
                    insisting.begin();
                    deadline = Some(Instant::now() + GRACE);
                    continue;
                }
                _ = cancelled.wait_for(|cancelled| *cancelled), if !is_stopping => {
                    *stopping = Stopping::Unwanted;
                    owed = !started;
                    if started {
                        kernel.interrupt();
                        insisting.begin();
                        deadline = Some(Instant::now() + GRACE);
                    }
                    continue;
                }
                () = insisting.due() => {
                    kernel.interrupt();
                    continue;
                }
                Some(answer) = work.answers.recv(), if work.answered => {
                    kernel.send(frame::encode("input", &[answer.as_bytes()]));
                    continue;
                }
                news = kernel.next() => news,
            };
            insisting.heard |= started;
            match news {
                News::Frame(Frame::Done(how, payload)) => return Ending::Done(how, payload),
                News::Frame(Frame::Input(_)) if !work.answered => {
                    let refusal = b"nobody answers: this execution was asked for without input";
                    kernel.send(frame::encode("refuse", &[refusal]));
                }
                News::Frame(frame) => {
                    if matches!(frame, Frame::Input(_)) {
                        execution.asks();
                    }
                    voice.frame(frame, *stopping == Stopping::Late).await;
                }
                News::Written(stream, bytes) => voice.output(stream, &bytes).await,
                News::Ended(how) => return Ending::Lost(self.why(how)),
                News::Broken(problem) => return Ending::Lost(format!("{problem}, and was killed")),
            }
        }
    }

    /// Tells how it ended, and sees to the kernel.
    async fn conclude(
        &mut self,
        execution: &Execution,
        ending: Ending,
        stopping: Stopping,
        timeout: Option<Duration>,
        hushed: Option<Failure>,
    ) {
        let log = &execution.log;
        let limit = timeout.map_or(String::new(), |limit| format!(" of {} ms", limit.as_millis()));
        let traceback = hushed.map(|failure| failure.traceback).unwrap_or_default();
        let fail = |name: &str, value: String, traceback: String| {
            log.push(EventKind::Error(Failure { name: name.to_owned(), value, traceback }));
        };
        match (ending, stopping) {
            (Ending::Done(_, payload), Stopping::Late) => {
                let value = format!(
                    "the time{limit} was over: the code was interrupted, and nothing is lost"
                );
                self.settle(&payload);
                fail("TimeoutError", value.clone(), traceback);
                execution.end(Status::Timeout, Some(value));
            }
            (Ending::Done(how, payload), _) => {
                self.settle(&payload);
                let status = match (how, stopping) {
                    (Done::Interrupted, _) | (Done::Error, Stopping::Unwanted) => {
                        Status::Interrupted
                    }
                    (Done::Ok, _) => Status::Ok,
                    (Done::Error, _) => Status::Error,
                };
                let cancelled = stopping == Stopping::Unwanted && status == Status::Interrupted;
                execution.end(status, cancelled.then(|| "it was cancelled".to_owned()));
            }
            (Ending::Stubborn, Stopping::Late) => {
                let reason = format!(
                    "the time{limit} was over, and the code did not stop when it was interrupted"
                );
                self.lose(format!("{reason}, so it was killed")).await;
                fail("TimeoutError", format!("{reason}: the kernel was killed; {LOST}"), traceback);
                execution.end(Status::Killed, Some(reason));
            }
            (Ending::Stubborn, _) => {
                let reason = "it was cancelled and did not stop when it was interrupted".to_owned();
                self.lose(format!("{reason}, so it was killed")).await;
                fail("KernelDied", format!("{reason}: the kernel was killed; {LOST}"), traceback);
                execution.end(Status::Killed, Some(reason));
            }
            (Ending::Lost(reason), _) => {
                self.lose(reason.clone()).await;
                fail("KernelDied", format!("the kernel died: {reason}; {LOST}"), String::new());
                execution.end(Status::Died, Some(reason));
            }
            (Ending::Unwanted, _) => {
                self.stand(ContextState::Idle, None);
                execution.end(Status::Cancelled, Some("it was cancelled".to_owned()));
            }
            (Ending::Ordered, _) => {
                let is_deleted = self.orders.borrow().deleted;
                let reason = if is_deleted {
                    "the context was deleted"
                } else {
                    "the context was restarted"
                };
                fail("KernelDied", format!("{reason}; variables are lost"), String::new());
                self.obey().await;
                execution.end(Status::Killed, Some(reason.to_owned()));
            }
        }
    }

    /// The cell is done: the context waits for the next, and shares what it imported.
    fn settle(&mut self, payload: &[u8]) {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Told {
            modules: Vec<String>,
        }
        self.stand(ContextState::Idle, None);
        let told: Told = serde_json::from_slice(payload).unwrap_or_default();
        if !told.modules.is_empty() && self.context.language == Language::Python {
            let state = Arc::clone(&self.state);
            crate::spawn(async move { state.code.nurseries.share(told.modules).await });
        }
    }
}

/// The frame that asks a kernel to run a cell.
fn request(count: u64, language: Language, work: &Work) -> Bytes {
    let mut flags = String::new();
    if work.answered {
        flags.push('i');
    }
    if language == Language::Typescript {
        flags.push('t');
    }
    if flags.is_empty() {
        flags.push('-');
    }
    let variables: Vec<String> =
        work.environment.iter().map(|(name, value)| format!("{name}={value}\0")).collect();
    let words = format!("execute {count} {flags} {}", work.code.len());
    frame::encode(&words, &[work.code.as_bytes(), variables.concat().as_bytes()])
}

/// Waits for the deadline, or for ever.
async fn expire(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
