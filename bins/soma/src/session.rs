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
//! The sandbox is bound to this process ([`Lifetime::WithCaller`](domain::Lifetime)), so that
//! it is also gone when this process is killed.

mod ending;
pub(crate) mod input;
mod interrupts;
mod options;
mod passing;
mod plan;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::SandboxId;
use guest_proto::client::{Ended, Event, Running};
use guest_proto::{GuestClient, GuestError};
use provider::{Condition, Observed, Provider};

use crate::failure::{Failure, SOMA_FAILED};
use crate::native;
use crate::output::{Broken, Console};
pub(crate) use interrupts::{Interrupt, Interrupts};
pub(crate) use options::{SandboxOptions, utf8};
pub(crate) use passing::pass_output;
pub(crate) use plan::Plan;

/// How long the destruction of a sandbox is waited for. Its engine goes on with it when this
/// process is gone.
const DESTRUCTION: Duration = Duration::from_secs(20);

/// How long a provider may take to say what became of a sandbox.
const LOOK: Duration = Duration::from_secs(2);

/// One sandbox for one command.
pub(crate) struct Session {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) id: SandboxId,
    pub(crate) plan: Plan,
}

/// A command that runs, for whoever attends to it.
pub(crate) struct Live<'a> {
    pub(crate) id: &'a SandboxId,
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

/// Carries a plan out in a sandbox of this home, with the standard outputs of this program, and
/// returns the exit code. `attend` looks after the command from its start to its end.
pub(crate) fn run(
    home: &Path,
    plan: Plan,
    attend: impl AsyncFnOnce(Live<'_>) -> Result<Outcome, Failure>,
) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::own(&error))?;
    let outcome = runtime.block_on(async {
        let provider = native::open(home)?;
        let interrupts = Interrupts::listen().map_err(|error| Failure::own(&error))?;
        let own =
            |descriptor: std::io::Result<OwnedFd>| descriptor.map_err(|error| Failure::own(&error));
        let stdout = own(std::io::stdout().as_fd().try_clone_to_owned())?;
        let stderr = own(std::io::stderr().as_fd().try_clone_to_owned())?;
        let console = Console::new(stdout, stderr).map_err(|error| Failure::own(&error))?;
        let session = Session { provider, id: native::random_id()?, plan };
        session.run(console, interrupts, attend).await
    });
    // Nothing is left that is worth waiting for.
    runtime.shutdown_background();
    outcome
}

impl Session {
    /// Makes the sandbox, runs the command, destroys the sandbox, and returns the exit code.
    pub(crate) async fn run(
        &self,
        console: Console,
        mut interrupts: Interrupts,
        attend: impl AsyncFnOnce(Live<'_>) -> Result<Outcome, Failure>,
    ) -> Result<u8, Failure> {
        // When this fails there is no sandbox, or it goes with this program.
        let judged = match self.live(&console, &mut interrupts, attend).await? {
            Outcome::Ended(ended) => ending::of_command(&ended, &self.plan),
            Outcome::Interrupted(interrupt) => {
                // Whoever pressed the keys does not wait for a slow reader of the output.
                return self.destroy(&mut interrupts).await.map(|()| interrupt.code());
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
        let destroyed = self.destroy(&mut interrupts).await;
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
        let guest = provider::guest(Arc::clone(&self.provider), self.id.clone());
        let begin = async {
            self.provider.create(&self.id, &self.plan.spec).await?;
            Ok::<_, Failure>(start(&guest, &self.plan).await)
        };
        let started = tokio::select! {
            biased;
            interrupt = interrupts.next() => return Ok(Outcome::Interrupted(interrupt)),
            started = begin => started?,
        };
        match started {
            Ok((pid, running)) => {
                let guest = &guest;
                attend(Live { id: &self.id, guest, pid, running, console, interrupts }).await
            }
            Err(error) => Ok(Outcome::Guest(error)),
        }
    }

    /// What became of the sandbox. Its guest may be gone a moment before the provider knows why.
    async fn look(&self) -> Option<Observed> {
        for _ in 0..20 {
            let seen = self.provider.inspect(&self.id).await.ok()?;
            if seen.condition != Condition::Running {
                return Some(seen);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.provider.inspect(&self.id).await.ok()
    }

    /// Destroys the sandbox. One more Ctrl-C leaves that to the engine.
    async fn destroy(&self, interrupts: &mut Interrupts) -> Result<(), Failure> {
        tokio::select! {
            destroyed = self.provider.destroy(&self.id) => destroyed.map_err(Failure::from),
            _ = interrupts.next() => Ok(()),
            () = tokio::time::sleep(DESTRUCTION) => Err(Failure::new(
                SOMA_FAILED,
                format!("the sandbox `{}` takes long to go; its engine goes on with it", self.id),
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
