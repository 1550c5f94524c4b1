//! Sandboxes that stand still, and go on.
//!
//! ```text
//!  pause: the supervisor's clock is switched off -> its cgroup is frozen -> all of it stands
//! resume: the supervisor is told its time ---------> its cgroup is thawed -> it has heard
//! ```
//!
//! Whether a sandbox stands still is nowhere written down here: its cgroup says so for as long as
//! its processes are there, to every engine that comes.

use std::time::{Duration, Instant};

use domain::{Limits, Rest, SandboxId};

use super::bodies::{Body, Stage};
use super::clients::Waiter;
use super::{Engine, Key};
use crate::failure::{Failure, Kind};
use crate::manifest::read_ending;
use crate::reserves::Reserves;
use crate::verbs::{Answer, Refusal};

/// A process that does not stand by then waits for something that cannot be interrupted.
const LONGEST_FREEZE: Duration = Duration::from_secs(5);

/// So long the engine itself waits: most sandboxes stand sooner, and nobody else's question takes
/// longer for it.
const MOMENT: Duration = Duration::from_millis(1);

/// A sandbox on its way to stand still.
pub(super) struct Pausing {
    since: Instant,
    /// Whether its cgroup was told.
    freezing: bool,
    waiting: Vec<Waiter>,
}

impl Body {
    /// Whether it stands still, or is about to.
    pub(super) fn stands_still(&self) -> bool {
        self.frozen || self.pausing.is_some()
    }

    /// Whether the loop must look again soon.
    pub(super) fn is_freezing(&self) -> bool {
        self.pausing.as_ref().is_some_and(|pausing| pausing.freezing)
    }
}

impl Engine {
    /// Lets a sandbox stand still. Whoever asked is answered when it does.
    pub(super) fn pause(&mut self, waiter: Waiter, id: &SandboxId) {
        match self.try_to_pause(waiter, id) {
            Ok(true) => self.answer(waiter, Ok(Answer::Done)),
            Ok(false) => {}
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// Whether it stands still already.
    fn try_to_pause(&mut self, waiter: Waiter, id: &SandboxId) -> Result<bool, Refusal> {
        if self.find(id)?.asleep {
            return Ok(true);
        }
        let body = self.body_of(id)?;
        if body.frozen {
            return Ok(true);
        }
        if let Some(pausing) = &mut body.pausing {
            pausing.waiting.push(waiter);
            return Ok(false);
        }
        if body.group.freezer().is_none() {
            // The same words as if it were tried, before anything is changed.
            body.group.freeze()?;
        }
        match body.order_no_time() {
            // It ended in this moment, and nobody took note yet.
            Err(_) if body.has_ended() => {
                return Err(Refusal::NotRunning(read_ending(&body.folder, &body.ended)));
            }
            ordered => ordered?,
        }
        let waiting = vec![waiter];
        body.pausing = Some(Pausing { since: Instant::now(), freezing: false, waiting });
        Ok(false)
    }

    /// The supervisor has answered: freezes the sandbox, or gives up.
    pub(super) fn freeze(&mut self, key: Key, is_off: bool) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(pausing) = body.pausing.as_mut().filter(|_| is_off) else {
            return self.give_up_pause(key, "its supervisor could not switch its clock off");
        };
        if let Err(failure) = body.group.freeze() {
            return self.give_up_pause(key, &failure.to_string());
        }
        pausing.freezing = true;
        let begun = Instant::now();
        while !body.group.comes_to_stand() && begun.elapsed() < MOMENT {
            std::thread::sleep(Duration::from_micros(50));
        }
        self.keep_pausing(key);
    }

    /// Looks whether all of it stands by now.
    pub(super) fn keep_pausing(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let is_ending = matches!(body.stage, Stage::Ending { .. });
        let Some(pausing) = &body.pausing else { return };
        if is_ending {
            // Those who wait hear how it ended.
            let waiting = body.pausing.take().map(|pausing| pausing.waiting).unwrap_or_default();
            let ending = read_ending(&body.folder, &body.ended);
            for waiter in waiting {
                self.answer(waiter, Err(Refusal::NotRunning(ending.clone())));
            }
        } else if pausing.freezing && body.group.comes_to_stand() {
            body.frozen = true;
            let waiting = body.pausing.take().map(|pausing| pausing.waiting).unwrap_or_default();
            for waiter in waiting {
                self.answer(waiter, Ok(Answer::Done));
            }
        } else if pausing.since.elapsed() > LONGEST_FREEZE {
            self.give_up_pause(key, "some of its processes do not stop");
        }
    }

    fn give_up_pause(&mut self, key: Key, cause: &str) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(pausing) = body.pausing.take() else { return };
        let _ = body.group.thaw();
        let failure = Failure::new("pause the sandbox", cause, Kind::Broken);
        for waiter in pausing.waiting {
            self.answer(waiter, Err(Refusal::Failed(failure.clone())));
        }
    }

    /// Lets a sandbox go on. Whoever asked is answered when its supervisor keeps its time again.
    pub(super) fn resume(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        timeout: Option<Duration>,
        reserves: &Reserves,
    ) {
        self.room.leave(*reserves);
        self.go_on(waiter, id, timeout);
    }

    pub(super) fn go_on(&mut self, waiter: Waiter, id: &SandboxId, timeout: Option<Duration>) {
        match self.try_to_resume(waiter, id, timeout) {
            Ok(true) => self.answer(waiter, Ok(Answer::Done)),
            Ok(false) => {}
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// Whether it goes on already.
    fn try_to_resume(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        timeout: Option<Duration>,
    ) -> Result<bool, Refusal> {
        let sandbox = self.find(id)?;
        let limits = Limits { timeout, ..sandbox.limits.clone() };
        limits.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        if sandbox.asleep {
            self.wake(waiter, id, timeout);
            return Ok(false);
        }
        let body = self.body_of(id)?;
        if let Some(sleeping) = &mut body.sleeping {
            sleeping.then_resume(waiter, timeout);
            return Ok(false);
        }
        if body.pausing.is_some() {
            let reason = format!("sandbox `{id}` is being paused: resume it when it is");
            return Err(Refusal::Conflict(reason));
        }
        if !body.frozen {
            return Ok(true);
        }
        // It hears this first, for its clock is off.
        body.order_time(timeout, Some(waiter))?;
        body.group.thaw()?;
        body.frozen = false;
        Ok(false)
    }

    /// How a sandbox is kept that stands still.
    pub(super) fn rest(&self, id: &SandboxId) -> Option<Rest> {
        let sandbox = self.sandboxes.get(id)?;
        let body = self.bodies.get(&sandbox.body?)?;
        body.frozen.then_some(Rest::Frozen { because: None })
    }

    /// The body of a sandbox that runs or stands still.
    pub(super) fn body_of(&mut self, id: &SandboxId) -> Result<&mut Body, Refusal> {
        let sandbox = self.find(id)?;
        if let Some(ending) = sandbox.known_ending() {
            return Err(Refusal::NotRunning(ending.clone()));
        }
        let key = sandbox.body.ok_or(Refusal::NotFound)?;
        self.bodies.get_mut(&key).ok_or(Refusal::NotFound)
    }
}
