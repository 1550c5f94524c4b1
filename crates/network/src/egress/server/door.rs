//! The way to the engine, for connections into sandboxes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::SandboxId;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::attach::FromEgress;
use crate::egress::packets::Packets;

const PATIENCE: Duration = Duration::from_secs(10);
/// Questions that wait for an answer at a time.
const MOST_WAITING: usize = 1024;

type Answer = Result<OwnedFd, String>;

/// The engines that are connected, of which the newest is asked.
#[derive(Debug, Default)]
pub(crate) struct EngineDoor(Mutex<Door>);

#[derive(Debug, Default)]
struct Door {
    engines: Vec<Arc<Packets>>,
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
}

impl EngineDoor {
    /// Has the engine connect to a port inside another sandbox.
    pub(crate) async fn dial(&self, sandbox: &SandboxId, port: u16) -> Answer {
        let sandbox = sandbox.clone();
        self.ask(|number| FromEgress::Dial { number, sandbox, port }).await
    }

    /// Has the engine connect to where a guest tells whose a connection is.
    pub(crate) async fn whose(&self, sandbox: &SandboxId) -> Answer {
        let sandbox = sandbox.clone();
        self.ask(|number| FromEgress::Whose { number, sandbox }).await
    }

    async fn ask(&self, question: impl FnOnce(u64) -> FromEgress) -> Answer {
        let (sender, answer) = oneshot::channel();
        let (engine, number) = {
            let mut door = self.lock();
            if door.waiting.len() >= MOST_WAITING {
                return Err("too many connections to sandboxes are being made".to_owned());
            }
            let engine = door.engines.last().cloned();
            let engine = engine.ok_or("no engine is there to reach other sandboxes")?;
            door.next += 1;
            let number = door.next;
            door.waiting.insert(number, sender);
            (engine, number)
        };
        let ask = async {
            engine.send(&question(number), &[]).await.map_err(|error| error.to_string())?;
            answer.await.map_err(|_| "the engine is gone".to_owned())?
        };
        let asked = timeout(PATIENCE, ask).await;
        self.lock().waiting.remove(&number);
        asked.map_err(|_| "the engine did not answer in time".to_owned())?
    }

    pub(super) fn enter(&self, engine: Arc<Packets>) {
        self.lock().engines.push(engine);
    }

    pub(super) fn leave(&self, engine: &Arc<Packets>) {
        self.lock().engines.retain(|other| !Arc::ptr_eq(other, engine));
    }

    /// The engine's answer, which somebody may still wait for.
    pub(super) fn answered(&self, number: u64, answer: Answer) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Door> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
