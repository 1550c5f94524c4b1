//! One sandbox for one command: what `soma run` and `soma shell` have in common.
//!
//! The story, one file per part:
//!
//! 1. [`options`]: what can be typed about a sandbox becomes a [`Plan`], or is refused before
//!    anything is made;
//! 2. here: the sandbox is made, the command runs in it, the sandbox is destroyed, whatever
//!    happens in between;
//! 3. while it runs, it is up to each of them what its input, its output and Ctrl-C mean;
//!    [`input`] and [`passing`] have what they share;
//! 4. [`ending`]: how it ended becomes an exit code and perhaps a message.
//!
//! A sandbox that is made for it is bound to this process, so that it is also gone when this
//! process is killed. A sandbox that was there before stays ([`ground`]).

mod ending;
mod ground;
pub(crate) mod input;
mod interrupts;
mod network;
mod options;
mod passing;
mod plan;

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use guest_proto::client::{Ended, Event, Running};
use guest_proto::{GuestClient, GuestError};

use crate::failure::{Failure, SOMA_FAILED};
use crate::output::{Broken, Console};
pub(crate) use ground::{Entered, Existing, Fresh, Ground, Seen, wish};
pub(crate) use interrupts::{Interrupt, Interrupts};
pub(crate) use options::{LimitOptions, SandboxOptions, environment, utf8};
pub(crate) use passing::pass_output;
pub(crate) use plan::Plan;

/// How long the destruction of a sandbox is waited for. The daemon goes on with it when this
/// process is gone.
const DESTRUCTION: Duration = Duration::from_secs(20);

/// How long the daemon may take to say what became of a sandbox.
const LOOK: Duration = Duration::from_secs(2);

/// One sandbox for one command.
pub(crate) struct Session {
    ground: Box<dyn Ground>,
    plan: Plan,
    /// The sandbox, once it can be used.
    entered: OnceCell<Entered>,
    /// The command, while it may run.
    pid: Cell<Option<u32>>,
}

/// A command that runs, for whoever attends to it.
pub(crate) struct Live<'a> {
    pub(crate) id: &'a str,
    pub(crate) guest: &'a GuestClient,
    pub(crate) pid: u32,
    pub(crate) running: Running,
    pub(crate) console: &'a Console,
    pub(crate) interrupts: &'a mut Interrupts,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It ended by itself.
    Ended(Ended),
    /// Somebody at the keyboard had enough.
    Interrupted(Interrupt),
    /// Nobody takes its output any more.
    Broken(Broken),
    /// The guest could not start it, ended it, or went away.
    Guest(GuestError),
}

impl From<GuestError> for Outcome {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

impl From<Broken> for Outcome {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Carries a plan out on this ground, with the standard outputs of this program, and returns the
/// exit code. `attend` looks after the command from its start to its end.
pub(crate) async fn run(
    ground: impl Ground + 'static,
    plan: Plan,
    attend: impl AsyncFnOnce(Live<'_>) -> Result<Outcome, Failure>,
) -> Result<u8, Failure> {
    let interrupts = Interrupts::listen().map_err(|error| Failure::own(&error))?;
    let own =
        |descriptor: std::io::Result<OwnedFd>| descriptor.map_err(|error| Failure::own(&error));
    let stdout = own(std::io::stdout().as_fd().try_clone_to_owned())?;
    let stderr = own(std::io::stderr().as_fd().try_clone_to_owned())?;
    let console = Console::new(stdout, stderr).map_err(|error| Failure::own(&error))?;
    Session::new(Box::new(ground), plan).run(console, interrupts, attend).await
}

impl Session {
    pub(crate) fn new(ground: Box<dyn Ground>, plan: Plan) -> Self {
        Self { ground, plan, entered: OnceCell::new(), pid: Cell::new(None) }
    }

    /// Makes the sandbox, runs the command, destroys the sandbox, and returns the exit code.
    pub(crate) async fn run(
        &self,
        console: Console,
        mut interrupts: Interrupts,
        attend: impl AsyncFnOnce(Live<'_>) -> Result<Outcome, Failure>,
    ) -> Result<u8, Failure> {
        // When this fails there is no sandbox, or it goes with this program.
        let judged = match self.live(&console, &mut interrupts, attend).await? {
            Outcome::Ended(ended) => {
                self.pid.set(None);
                ending::of_command(&ended, &self.plan)
            }
            Outcome::Interrupted(interrupt) => {
                // Whoever pressed the keys does not wait for a slow reader of the output.
                return self.leave(&mut interrupts).await.map(|()| interrupt.code());
            }
            Outcome::Broken(broken) => Err(broken.into()),
            Outcome::Guest(error) => {
                let seen = tokio::select! {
                    seen = self.look() => seen,
                    interrupt = interrupts.next() => return Ok(interrupt.code()),
                    () = tokio::time::sleep(LOOK) => None,
                };
                Err(ending::of_guest(&error, &self.plan, seen))
            }
        };
        let destroyed = self.leave(&mut interrupts).await;
        let written = tokio::select! {
            written = console.finish() => written,
            interrupt = interrupts.next() => return Ok(interrupt.code()),
        };
        // What the command's own end says comes first; then that its output is not complete.
        let code = judged?;
        written.map_err(Failure::from)?;
        destroyed.map(|()| code)
    }

    async fn live(
        &self,
        console: &Console,
        interrupts: &mut Interrupts,
        attend: impl AsyncFnOnce(Live<'_>) -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let begin = async {
            let entered = self.ground.enter(&self.plan.spec).await?;
            let entered = self.entered.get_or_init(|| entered);
            Ok::<_, Failure>((entered, start(&entered.guest, &self.plan).await))
        };
        let (entered, started) = tokio::select! {
            biased;
            interrupt = interrupts.next() => return Ok(Outcome::Interrupted(interrupt)),
            started = begin => started?,
        };
        match started {
            Ok((pid, running)) => {
                self.pid.set(Some(pid));
                let Entered { id, guest } = entered;
                attend(Live { id, guest, pid, running, console, interrupts }).await
            }
            Err(error) => Ok(Outcome::Guest(error)),
        }
    }

    /// What became of the sandbox. Its guest may be gone a moment before the daemon knows why.
    async fn look(&self) -> Option<Seen> {
        let id = &self.entered.get()?.id;
        for _ in 0..20 {
            let seen = self.ground.look(id).await?;
            if seen != Seen::Running {
                return Some(seen);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.ground.look(id).await
    }

    /// Leaves nothing behind. One more Ctrl-C leaves that to the daemon.
    async fn leave(&self, interrupts: &mut Interrupts) -> Result<(), Failure> {
        // What is being made goes when nobody waits for it any more.
        let Some(entered) = self.entered.get() else { return Ok(()) };
        tokio::select! {
            left = self.ground.leave(entered, self.pid.get()) => left,
            _ = interrupts.next() => Ok(()),
            () = tokio::time::sleep(DESTRUCTION) => Err(Failure::new(
                SOMA_FAILED,
                format!("sandbox `{}` takes long to go; the daemon goes on with it", entered.id),
            )),
        }
    }
}

/// Starts the command and waits until the guest says that it runs.
async fn start(guest: &GuestClient, plan: &Plan) -> Result<(u32, Running), GuestError> {
    let mut running = guest.start(plan.start.clone()).await?;
    match running.next().await? {
        Some(Event::Started { pid }) => Ok((pid, running)),
        _ => Err(no_start()),
    }
}

fn no_start() -> GuestError {
    let message = "it does not say that the command started".to_owned();
    GuestError::Unavailable { message }
}
