//! The task of one context: it has the kernel, and does one thing after the other.
//!
//! Between cells it listens too: to orders, to what the kernel writes in the background, and to
//! its end. What is written between cells is told with the next cell.

use std::sync::Arc;

use guest_proto::code::{Completions, ContextState, Status};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, timeout};

use super::background::Background;
use super::context::{Context, Ends, Job, Orders};
use super::frame::{self, Frame};
use super::kernel::{How, Kernel, News};
use super::start::{missing, start};
use crate::process::{Before, Exit};
use crate::state::State;

/// How long completions may take.
const COMPLETING: Duration = Duration::from_secs(5);

/// What a context's task has.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) state: Arc<State>,
    pub(super) context: Arc<Context>,
    pub(super) kernel: Option<Kernel>,
    /// Why the kernel before is gone, until somebody was told.
    pub(super) lost: Option<String>,
    /// What was written between cells.
    pub(super) background: Background,
    queue: mpsc::Receiver<Job>,
    pub(super) orders: watch::Receiver<Orders>,
    /// The orders that were obeyed.
    pub(super) obeyed: Orders,
    /// What was counted when the kernel was started.
    pub(super) before: Before,
}

/// What came while nothing ran.
enum Heard {
    Order,
    Job(Option<Job>),
    News(News),
}

impl Runner {
    /// The task of a context that was just made.
    pub(super) fn new(state: Arc<State>, context: Arc<Context>, ends: Ends) -> Self {
        Self {
            state,
            context,
            kernel: None,
            lost: None,
            background: Background::default(),
            queue: ends.queue,
            orders: ends.orders,
            obeyed: Orders::default(),
            before: Before::now(),
        }
    }

    /// Serves until the context is deleted.
    pub(super) async fn run(mut self) {
        loop {
            let heard = tokio::select! {
                biased;
                _ = self.orders.changed() => Heard::Order,
                job = self.queue.recv() => Heard::Job(job),
                news = next(&mut self.kernel) => Heard::News(news),
            };
            match heard {
                Heard::Order => {
                    if self.obey().await {
                        return self.close();
                    }
                }
                Heard::Job(Some(job)) => {
                    self.context.standing.send_modify(|standing| standing.working = true);
                    self.work(job).await;
                    self.context.standing.send_modify(|standing| standing.working = false);
                }
                Heard::Job(None) => return self.close(),
                Heard::News(news) => self.hear(news).await,
            }
            if self.orders.borrow().deleted {
                self.obey().await;
                return self.close();
            }
        }
    }

    async fn work(&mut self, job: Job) {
        match job {
            Job::Execute(execution) => self.execute(&execution).await,
            Job::Complete { code, cursor, answer } => {
                let completed = self.complete(&code, cursor).await;
                // Who asked may have gone.
                let _ = answer.send(completed);
            }
        }
    }

    /// Starts a kernel where there is none.
    pub(super) async fn ensure_kernel(&mut self) -> Result<(), String> {
        if self.kernel.is_some() {
            return Ok(());
        }
        self.stand(ContextState::Starting, None);
        self.before = Before::now();
        self.kernel = Some(start(&self.state, &self.context).await?);
        Ok(())
    }

    /// Obeys what was ordered; true when that is the end.
    pub(super) async fn obey(&mut self) -> bool {
        let orders = *self.orders.borrow_and_update();
        if orders.deleted || orders.restarts != self.obeyed.restarts {
            if let Some(kernel) = self.kernel.take() {
                kernel.kill().await;
            }
            self.lost = None;
            self.background = Background::default();
            self.context.standing.send_modify(|standing| {
                standing.state = ContextState::Starting;
                standing.reason = None;
                standing.execution_count = 0;
                standing.restarts = orders.restarts;
            });
        }
        // Nothing runs here that an interrupt could be for.
        self.obeyed = orders;
        orders.deleted
    }

    /// The kernel is gone: remembers why, and clears up after it.
    pub(super) async fn lose(&mut self, reason: String) {
        if let Some(kernel) = self.kernel.take() {
            kernel.kill().await;
        }
        self.stand(ContextState::Dead, Some(reason.clone()));
        // A fresh kernel counts anew.
        self.context.standing.send_modify(|standing| standing.execution_count = 0);
        self.lost = Some(reason);
    }

    /// Says how the context stands.
    pub(super) fn stand(&self, state: ContextState, reason: Option<String>) {
        self.context.standing.send_modify(|standing| {
            standing.state = state;
            standing.reason = reason;
        });
    }

    /// Why a kernel has ended.
    pub(super) fn why(&self, how: How) -> String {
        let exit = match how {
            How::NotExecuted(_) => return missing(self.context.language),
            How::Unknown => return "it ended, and nobody saw how".to_owned(),
            How::Exit(exit) => exit,
        };
        if self.before.blame(exit) == Some(domain::Cause::OutOfMemory) {
            return "out of memory".to_owned();
        }
        match exit {
            Exit::Code(code) => format!("it left with exit code {code}"),
            Exit::Signal(signal) => format!("it was ended by signal {signal}"),
        }
    }

    /// Takes what the kernel says between cells.
    async fn hear(&mut self, news: News) {
        match news {
            News::Frame(Frame::Output(stream, bytes)) | News::Written(stream, bytes) => {
                self.background.put(stream, &bytes);
            }
            News::Frame(_) => {}
            News::Ended(how) => {
                let why = self.why(how);
                self.lose(why).await;
            }
            News::Broken(problem) => self.lose(format!("{problem}, and was killed")).await,
        }
    }

    async fn complete(&mut self, code: &str, cursor: u64) -> Result<Completions, String> {
        self.ensure_kernel().await?;
        let Some(kernel) = &mut self.kernel else { return Ok(Completions::default()) };
        kernel.send(frame::encode(&format!("complete {cursor}"), &[code.as_bytes()]));
        let (mut ending, background) = (None, &mut self.background);
        let answer = async {
            loop {
                match kernel.next().await {
                    News::Frame(Frame::Completions(payload)) => break Some(payload),
                    News::Frame(Frame::Output(stream, bytes)) | News::Written(stream, bytes) => {
                        background.put(stream, &bytes);
                    }
                    News::Frame(_) => {}
                    news @ (News::Ended(_) | News::Broken(_)) => {
                        ending = Some(news);
                        break None;
                    }
                }
            }
        };
        let answer = timeout(COMPLETING, answer).await;
        if let Some(ending) = ending {
            self.hear(ending).await;
        }
        let text = match answer {
            Ok(Some(payload)) => payload,
            Ok(None) => return Err("the kernel has ended".to_owned()),
            Err(_) => {
                // It would take what it says later for an answer to something else.
                self.lose("it did not answer and was killed".to_owned()).await;
                return Err("the kernel did not answer in time".to_owned());
            }
        };
        self.stand(ContextState::Idle, None);
        serde_json::from_slice(&text).map_err(|_| "the kernel's answer makes no sense".to_owned())
    }

    /// Nobody will do what still waits.
    fn close(mut self) {
        self.queue.close();
        while let Ok(job) = self.queue.try_recv() {
            if let Job::Execute(execution) = job
                && execution.begin().is_some()
            {
                execution.end(Status::Cancelled, Some("the context was deleted".to_owned()));
            }
        }
    }
}

/// The next thing that a kernel says; nothing, for ever, where there is none.
async fn next(kernel: &mut Option<Kernel>) -> News {
    match kernel {
        Some(kernel) => kernel.next().await,
        None => std::future::pending().await,
    }
}
