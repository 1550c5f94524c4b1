//! What is asked about a sandbox that is there: its record, its time, its end.
//!
//! One that is on its way is not there yet, and one that is being destroyed is not there any
//! more; for all that is asked here both are unknown.

use std::time::Duration;

use domain::{Lifetime, Limits, SandboxId};

use super::bodies::Obeyed;
use super::clients::Waiter;
use super::lifecycle::Sandbox;
use super::{Engine, Key};
use crate::failure::{Failure, Kind, Step};
use crate::manifest::read_ending;
use crate::record::{self, Kept};
use crate::verbs::{Answer, Record, Refusal};

/// More than this wait for the end of one sandbox only if somebody counts wrong.
const MOST_WATCHING: usize = 1024;

impl Engine {
    pub(super) fn read_record(&self, id: &SandboxId) -> Result<Record, Refusal> {
        let sandbox = self.find(id)?;
        if sandbox.lifetime == Lifetime::WithCaller {
            return Ok(Record(sandbox.record.clone()));
        }
        let text = record::read(&self.host.options.home.sandbox(id), Kept::Record);
        Ok(text.step("read the sandbox's record")?)
    }

    pub(super) fn write_record(&mut self, id: &SandboxId, record: Record) -> Result<(), Refusal> {
        let record = record.check()?;
        if self.find(id)?.lifetime == Lifetime::Kept {
            let folder = self.host.options.home.sandbox(id);
            record::write(&folder, Kept::Record, &record).step("write the sandbox's record")?;
        } else if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.record = record.0;
        }
        Ok(())
    }

    /// Lets a sandbox's time be over so long from now. Its supervisor keeps it, and the manifest
    /// still says what it was made with: no engine that starts later tells it again. Whoever asked
    /// is answered when the supervisor has it.
    pub(super) fn renew(&mut self, waiter: Waiter, id: &SandboxId, timeout: Option<Duration>) {
        if let Err(refusal) = self.try_to_renew(waiter, id, timeout) {
            self.answer(waiter, Err(refusal));
        }
    }

    fn try_to_renew(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        let sandbox = self.find(id)?;
        if let Some(ending) = sandbox.known_ending() {
            return Err(Refusal::NotRunning(ending.clone()));
        }
        // What is over at once is over in a moment.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        let limits = Limits { timeout, ..sandbox.limits.clone() };
        limits.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        if sandbox.asleep {
            return Err(Refusal::Paused);
        }
        let key = sandbox.body.ok_or(Refusal::NotFound)?;
        let body = self.bodies.get_mut(&key).ok_or(Refusal::NotFound)?;
        if body.stands_still() {
            return Err(Refusal::Paused);
        }
        match body.order_time(timeout, Some(waiter)) {
            // It ended in this moment, and nobody took note yet.
            Err(_) if body.has_ended() => {
                Err(Refusal::NotRunning(read_ending(&body.folder, &body.ended)))
            }
            ordered => Ok(ordered?),
        }
    }

    /// Passes a supervisor's answer on to whoever gave the order.
    pub(super) fn pass_on(&mut self, key: Key, heard: Obeyed) {
        match heard {
            Obeyed::ClockOff(is_off) => self.freeze(key, is_off),
            Obeyed::Yes(waiter) => self.answer(waiter, Ok(Answer::Done)),
            Obeyed::No(waiter) => {
                let cause = "its supervisor could not set its clock";
                let failure = Failure::new("set the sandbox's time", cause, Kind::Broken);
                self.answer(waiter, Err(Refusal::Failed(failure)));
            }
            // Why it ends is known when it has.
            Obeyed::TooLate(waiter) => {
                if let Some(body) = self.bodies.get_mut(&key) {
                    body.wait_for_end(waiter);
                }
            }
        }
    }

    /// Tells those who waited too long for a supervisor.
    pub(super) fn excuse(&mut self, late: Vec<Waiter>) {
        for waiter in late {
            let cause = "its supervisor does not answer";
            let failure = Failure::new("set the sandbox's time", cause, Kind::Broken);
            self.answer(waiter, Err(Refusal::Failed(failure)));
        }
    }

    /// Answers when the sandbox does not run any more.
    pub(super) fn watch(&mut self, waiter: Waiter, id: &SandboxId) {
        let ending = match self.find(id) {
            Ok(sandbox) => sandbox.ending.clone(),
            Err(refusal) => return self.answer(waiter, Err(refusal)),
        };
        if let Some(ending) = ending {
            return self.answer(waiter, Ok(Answer::Ended(ending)));
        }
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.watching.len() < MOST_WATCHING {
            sandbox.watching.push(waiter);
        } else {
            let reason = format!("{MOST_WATCHING} wait for the end of sandbox `{id}` already");
            self.answer(waiter, Err(Refusal::Invalid(reason)));
        }
    }

    /// Nobody is there any more to hear of an end.
    pub(super) fn stop_watching(&mut self, waiter: Waiter) {
        for sandbox in self.sandboxes.values_mut() {
            sandbox.watching.retain(|watching| *watching != waiter);
        }
    }

    /// A sandbox that runs or has ended.
    pub(super) fn find(&self, id: &SandboxId) -> Result<&Sandbox, Refusal> {
        let sandbox = self.sandboxes.get(id).filter(|sandbox| !sandbox.doomed);
        sandbox
            .filter(|sandbox| {
                sandbox.asleep || sandbox.known_ending().is_some() || self.is_running(id)
            })
            .ok_or(Refusal::NotFound)
    }
}
