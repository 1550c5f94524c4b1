//! Watches the system calls of a running program, and does something at the N-th of them.
//!
//! The very program that is shipped is watched, from outside, by `ptrace`. All that is asked of
//! the kernel about a traced thread has to come from the thread that traces it, so a [`Tracer`] is
//! a thread of its own. When it ends, for whatever reason, the kernel lets go of all that it
//! traced.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sys_linux::trace::{self, Followed, News};

use super::system_call::SystemCall;

/// How long the kernel is not asked for news when there were none.
const PAUSE: Duration = Duration::from_micros(100);

/// How long a program that is to be traced may take to be.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whose calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// Those of all threads of this process.
    Process(u32),
    /// Those of the processes that this one forks from now on.
    ChildrenOf(u32),
}

/// Which calls are counted.
#[derive(Debug, Clone)]
pub(super) enum Counted {
    All,
    /// Those that write what is kept in this folder.
    Writes(PathBuf),
    /// Those that want another descriptor.
    Descriptors,
}

/// What is done when the number is reached.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    /// Nothing, ever.
    Count,
    /// Whoever made the call dies before it is made.
    Die,
    /// Another process dies before it is made.
    Kill(u32),
    /// The call fails, and those after it too when that is the fault's nature.
    Fail { error: i32, lasting: bool },
}

/// What a tracer is to do.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) watched: Watched,
    pub(super) counted: Counted,
    pub(super) at: u64,
    pub(super) deed: Deed,
}

/// What a tracer saw.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    /// How many calls were counted.
    pub(super) calls: u64,
    /// The call at which the deed was done, and by which process; none when it never was.
    pub(super) struck: Option<String>,
}

/// A thread that traces. It lets go when it is dropped.
pub(super) struct Tracer {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

impl Tracer {
    /// Begins to trace, and returns when every call from now on is counted.
    pub(super) fn begin(plan: Plan) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let (ready, begun): (Sender<()>, Receiver<()>) = channel();
        let until = Arc::clone(&ending);
        let thread = std::thread::spawn(move || Tracing::new(plan, ready).run(&until));
        begun.recv_timeout(PATIENCE).unwrap();
        Self { ending, thread: Some(thread) }
    }

    /// Lets go, and says what was seen.
    pub(super) fn end(mut self) -> Seen {
        self.let_go().unwrap()
    }

    fn let_go(&mut self) -> Option<Seen> {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// What the thread does.
struct Tracing {
    plan: Plan,
    /// Threads that were seized and have not stopped for it yet.
    awaited: BTreeSet<i32>,
    ready: Option<Sender<()>>,
    /// Threads that are within a call.
    inside: BTreeSet<i32>,
    seen: Seen,
}

impl Tracing {
    fn new(plan: Plan, ready: Sender<()>) -> Self {
        Self {
            plan,
            awaited: BTreeSet::new(),
            ready: Some(ready),
            inside: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    fn run(mut self, until: &AtomicBool) -> Seen {
        self.seize();
        while !until.load(Ordering::Relaxed) {
            match trace::news() {
                Ok(Some(news)) => self.attend(news),
                // Nothing happened, or all are gone.
                Ok(None) | Err(_) => std::thread::sleep(PAUSE),
            }
            if self.awaited.is_empty()
                && let Some(ready) = self.ready.take()
            {
                let _ = ready.send(());
            }
        }
        self.seen
    }

    /// Takes every thread of the program, also those that begin meanwhile.
    fn seize(&mut self) {
        let (process, followed) = match self.plan.watched {
            Watched::Process(process) => (process, Followed::Threads),
            Watched::ChildrenOf(process) => (process, Followed::Children),
        };
        let mut known = BTreeSet::new();
        loop {
            let threads = threads_of(process);
            let new: Vec<i32> = threads.difference(&known).copied().collect();
            if new.is_empty() {
                return;
            }
            for thread in new {
                known.insert(thread);
                // One that began meanwhile is ours already, or is gone.
                if trace::seize(thread, followed).is_ok() && trace::interrupt(thread).is_ok() {
                    self.awaited.insert(thread);
                }
            }
        }
    }

    fn attend(&mut self, news: News) {
        match news {
            News::Call(thread) => self.attend_call(thread),
            News::Stopped(thread) => {
                if !self.awaited.remove(&thread) {
                    self.greet(thread);
                }
                self.resume(thread, 0);
            }
            News::Made(thread) => self.resume(thread, 0),
            News::Ending(thread) => {
                // Whoever waits for its end would see it before it can be waited for.
                self.inside.remove(&thread);
                let _ = trace::let_go(thread);
            }
            News::Signal(thread, signal) => self.resume(thread, signal),
            News::Gone(thread) => {
                self.awaited.remove(&thread);
                self.inside.remove(&thread);
            }
        }
    }

    /// A new thread or process has come to us by itself. What a child forks is not followed.
    fn greet(&self, thread: i32) {
        if let Watched::ChildrenOf(_) = self.plan.watched {
            let _ = trace::follow(thread, Followed::Nobody);
        }
    }

    fn attend_call(&mut self, thread: i32) {
        let was_inside = self.inside.remove(&thread);
        let call = if was_inside { None } else { SystemCall::beginning(thread) };
        if let Some(call) = call {
            self.inside.insert(thread);
            let counts = match &self.plan.counted {
                Counted::All => true,
                Counted::Writes(folder) => call.writes_below(folder),
                Counted::Descriptors => call.opens(),
            };
            if counts {
                self.seen.calls += 1;
                self.strike(thread, &call);
            }
        }
        self.resume(thread, 0);
    }

    fn strike(&mut self, thread: i32, call: &SystemCall) {
        let (calls, at) = (self.seen.calls, self.plan.at);
        let is_due = match self.plan.deed {
            Deed::Count => false,
            Deed::Fail { lasting: true, .. } => calls >= at,
            _ => calls == at,
        };
        if !is_due {
            return;
        }
        self.seen.struck.get_or_insert_with(|| call.describe());
        match self.plan.deed {
            Deed::Count => {}
            Deed::Fail { error, .. } => call.fail(error),
            Deed::Die => kill(process_of(thread)),
            Deed::Kill(process) => kill(process.cast_signed()),
        }
    }

    fn resume(&self, thread: i32, signal: i32) {
        let is_parent = matches!(self.plan.watched, Watched::ChildrenOf(parent)
            if process_of(thread) == parent.cast_signed());
        // One that is being killed cannot be told, and need not be.
        let _ = trace::go_on(thread, !is_parent, signal);
    }
}

fn kill(process: i32) {
    if let Some(process) = Pid::from_raw(process) {
        let _ = kill_process(process, Signal::KILL);
    }
}

fn threads_of(process: u32) -> BTreeSet<i32> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The process that a thread belongs to.
fn process_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    number.unwrap_or(thread)
}
