//! Sandboxes that ran before: started again with what they wrote, or ended to be started later.
//!
//! A start that fails before the new body stands leaves the sandbox as it was: its folder is changed
//! by one write of the manifest.

use std::fs;
use std::time::Duration;

use domain::{Lifetime, Limits, SandboxId};

use super::Engine;
use super::bodies::Body;
use super::clients::Waiter;
use super::lifecycle::{Plan, Sandbox};
use crate::checkpoint::WOKEN;
use crate::disk::Storage;
use crate::failure::{Failure, Kind, Step};
use crate::manifest::{self, Manifest, Process};
use crate::random::random_id;
use crate::reserves::Reserves;
use crate::verbs::{Answer, Refusal};

/// A wish to start a sandbox that is about to end.
pub(super) struct Again {
    pub(super) waiter: Waiter,
    timeout: Option<Duration>,
    reserves: Reserves,
}

impl Engine {
    /// Starts a sandbox again. Whoever asked is answered when its guest answers.
    pub(super) fn start(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        timeout: Option<Duration>,
        reserves: &Reserves,
    ) {
        self.room.leave(*reserves);
        if let Err(refusal) = self.may_start(id, timeout, reserves) {
            return self.answer(waiter, Err(refusal));
        }
        if self.is_falling(id) {
            // It is said to run only because nobody took note of its end yet.
            let again = Again { waiter, timeout, reserves: *reserves };
            if let Some(sandbox) = self.sandboxes.get_mut(id) {
                sandbox.again.push(again);
            }
            return;
        }
        if self.sandboxes.get(id).is_some_and(|sandbox| sandbox.asleep) {
            let reason = format!("sandbox `{id}` is paused: resume it, or stop it first");
            return self.answer(waiter, Err(Refusal::Conflict(reason)));
        }
        if self.is_running(id) {
            let answer = self.observe(id).map(Answer::Observed).ok_or(Refusal::NotFound);
            return self.answer(waiter, answer);
        }
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.capturing.is_some() {
            let reason =
                format!("a snapshot of sandbox `{id}` is being taken: start it after that");
            return self.answer(waiter, Err(Refusal::Conflict(reason)));
        }
        sandbox.waiting.push(waiter);
        if let Some(ending) = sandbox.ending.take() {
            sandbox.before = Some(ending);
            sandbox.limits.timeout = timeout;
            self.start_when_swept(id);
        }
    }

    /// Starts what was asked for while it was ending.
    pub(super) fn start_as_asked(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        for Again { waiter, timeout, reserves } in std::mem::take(&mut sandbox.again) {
            self.start(waiter, id, timeout, &reserves);
        }
    }

    fn is_falling(&self, id: &SandboxId) -> bool {
        let body = self.sandboxes.get(id).and_then(|sandbox| self.bodies.get(&sandbox.body?));
        body.is_some_and(Body::is_falling)
    }

    fn may_start(
        &self,
        id: &SandboxId,
        timeout: Option<Duration>,
        reserves: &Reserves,
    ) -> Result<(), Refusal> {
        let sandbox = self.find(id)?;
        if let Some(reason) = &sandbox.damage {
            return Err(Refusal::Conflict(format!(
                "what is written down about sandbox `{id}` cannot be read ({reason}), so it cannot \
                 be started: delete it, or put its files in order by hand"
            )));
        }
        if sandbox.lifetime == Lifetime::WithCaller {
            let reason = format!("sandbox `{id}` lived with a connection and left no files");
            return Err(Refusal::Conflict(reason));
        }
        let limits = Limits { timeout, ..sandbox.limits.clone() };
        limits.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        reserves.check(self.host.options.home.path())?;
        Ok(())
    }

    /// A body that is still being swept has the cgroups and the disk.
    pub(super) fn start_when_swept(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get(id) else { return };
        let wanted = sandbox.before.is_some() && sandbox.body.is_none() && !sandbox.doomed;
        // An engine that leaves begins nothing: the next one is asked again.
        let wanted = wanted && !self.leaving;
        if wanted && !self.queue.contains(id) {
            self.queue.push_back(id.clone());
        }
    }

    /// Starts a launcher on the folder of a sandbox that ran before.
    pub(super) fn launch_again(&mut self, id: &SandboxId) -> Result<(), Failure> {
        let folder = self.host.options.home.sandbox(id);
        let manifest = Manifest::read(&folder).step("read the sandbox's manifest")?;
        let Some(sandbox) = self.sandboxes.get(id) else {
            return Err(Failure::new("start the sandbox", "it is gone", Kind::Broken));
        };
        let (limits, reserved) = (sandbox.limits.clone(), sandbox.reserved);
        let sandbox_wakes = sandbox.asleep;
        let slot = random_id().step("choose a name")?.to_string();
        // Without mounts that shift ids, what it wrote is owned by the ids that it had.
        let ids = match self.host.storage(&limits) {
            Storage::Disk(_) => self.take_ids()?,
            Storage::Folder => reserved.unwrap_or_else(|| manifest.ids()),
        };
        let (owner, wake) = (Some(id.clone()), sandbox_wakes);
        // Its processes run the guest that they ran.
        let guest = wake.then(|| self.host.options.home.guests().join(&manifest.guest));
        let ground = manifest.ground();
        let (layers, disk) = (self.layers_of(&manifest), manifest.disk.clone());
        let plan = Plan { slot, folder, ids, ground, limits, owner, guest, wake, layers, disk };
        self.launch_in(plan, true).inspect_err(|_| {
            if reserved.is_none() {
                self.host.ranges.give_back(ids);
            }
        })
    }

    /// Ends a sandbox. Whoever asked is answered when nothing of it runs.
    pub(super) fn stop(&mut self, waiter: Waiter, id: &SandboxId) {
        let asked = self.ask_to_stop(id);
        match (asked, self.sandboxes.get_mut(id)) {
            (Ok(true), Some(sandbox)) => sandbox.resting.push(waiter),
            (Ok(_), _) => self.answer(waiter, Ok(Answer::Done)),
            (Err(refusal), _) => self.answer(waiter, Err(refusal)),
        }
    }

    /// Whether it takes a moment until nothing of it runs.
    fn ask_to_stop(&mut self, id: &SandboxId) -> Result<bool, Refusal> {
        let sandbox = self.find(id)?;
        if sandbox.asleep {
            return self.give_processes_up(id).map(|()| false);
        }
        if sandbox.before.is_some() {
            let reason = format!("sandbox `{id}` is being started: stop it when it runs");
            return Err(Refusal::Conflict(reason));
        }
        let is_open = sandbox.ending.is_none();
        let key = sandbox.body;
        let Some(body) = key.and_then(|key| self.bodies.get_mut(&key)) else {
            return Ok(false);
        };
        if body.sleeping.is_some() {
            let reason = format!("sandbox `{id}` is being put on the disk: stop it when it is");
            return Err(Refusal::Conflict(reason));
        }
        if is_open
            && let Err(failure) = body.order(b"S")
            && !body.has_ended()
        {
            return Err(failure.into());
        }
        body.let_go();
        Ok(true)
    }
}

/// Writes down that the sandbox stands again, and removes what says why it did not.
pub(super) fn write_manifest(
    body: &Body,
    sandbox: &Sandbox,
    processes: [Process; 2],
) -> Result<(), Failure> {
    let step = "write the sandbox's manifest";
    let before = Manifest::read(&body.folder).step(step)?;
    let ended = before.ended.clone();
    let again = manifest::Again {
        slot: body.slot.clone(),
        ids: body.ids,
        guest: body.guest.clone(),
        limits: sandbox.limits.clone(),
    };
    before.started(again, processes).write(&body.folder).step(step)?;
    let _ = fs::remove_file(body.folder.join(ended));
    if body.hold.is_none() {
        let _ = fs::remove_file(body.folder.join(WOKEN));
    }
    Ok(())
}
