//! The sandbox around a command: made, used, destroyed.

use std::sync::Arc;
use std::time::Duration;

use domain::SandboxId;
use provider::{Condition, Observed, Provider};

use super::arguments::Plan;
use super::ending;
use super::follow::{Outcome, follow};
use super::input::Input;
use super::interrupts::Interrupts;
use crate::failure::{Failure, SOMA_FAILED};
use crate::output::Console;

/// How long the destruction of a sandbox is waited for. Its engine goes on with it when this
/// process is gone.
const DESTRUCTION: Duration = Duration::from_secs(20);

/// How long a provider may take to say what became of a sandbox.
const LOOK: Duration = Duration::from_secs(2);

/// One sandbox for one command.
pub(super) struct Session {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) id: SandboxId,
    pub(super) plan: Plan,
}

impl Session {
    /// Makes the sandbox, runs the command, destroys the sandbox, and returns the exit code.
    pub(super) async fn run(
        &self,
        console: Console,
        input: Input,
        mut interrupts: Interrupts,
    ) -> Result<u8, Failure> {
        let outcome = self.live(&console, input, &mut interrupts).await;
        let judged = match outcome? {
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
        input: Input,
        interrupts: &mut Interrupts,
    ) -> Result<Outcome, Failure> {
        let guest = provider::guest(Arc::clone(&self.provider), self.id.clone());
        let mut start = self.plan.start.clone();
        start.stdin = input.is_open();
        let begin = async {
            self.provider.create(&self.id, &self.plan.spec).await?;
            Ok::<_, Failure>(guest.start(start).await)
        };
        let running = tokio::select! {
            biased;
            interrupt = interrupts.next() => return Ok(Outcome::Interrupted(interrupt)),
            running = begin => running?,
        };
        Ok(match running {
            Ok(running) => follow(&guest, running, console, input, interrupts).await,
            Err(error) => Outcome::Guest(error),
        })
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
