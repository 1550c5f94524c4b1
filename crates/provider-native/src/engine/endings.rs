//! How sandboxes and their bodies end, and what is done with what they leave.
//!
//! An end begins with a kill and is over when nothing lives: then the supervisor is reaped, the
//! cgroups are gone, and a process of its own removes the files, or they are kept.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use domain::{Ending, Lifetime, SandboxId};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::adopt::MOMENT;
use super::bodies::{Body, Stage, remove_folder};
use super::lifecycle::Sandbox;
use super::{Engine, Key, log};
use crate::durable;
use crate::failure::{Failure, Kind};
use crate::manifest::read_ending;
use crate::remove::remove;
use crate::verbs::{Answer, Refusal};

impl Engine {
    /// Ends what nobody owns. Sandboxes that are kept go on without an engine.
    pub(super) fn begin_to_leave(&mut self) {
        self.leaving = true;
        let doomed: Vec<SandboxId> = self
            .sandboxes
            .iter()
            .filter(|(_, sandbox)| sandbox.lifetime == Lifetime::WithCaller)
            .map(|(id, _)| id.clone())
            .collect();
        for id in doomed {
            self.doom(&id);
        }
        let failure = Failure::new("make the sandbox", "the engine leaves", Kind::NoCapacity);
        for id in std::mem::take(&mut self.queue) {
            self.give_up(&id, &failure);
        }
        for body in self.bodies.values_mut() {
            if body.owner.is_none() || body.is_launching() {
                body.kill();
            }
        }
        self.abandon_all_imports();
        // What is left and lives is somebody's, and its supervisor knows that it is kept.
        self.bodies.retain(|_, body| matches!(body.stage, Stage::Ending { .. }));
    }

    /// Begins to destroy a sandbox. Those who wait are answered when nothing is left of it.
    pub(super) fn doom(&mut self, id: &SandboxId) {
        self.queue.retain(|queued| queued != id);
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        if sandbox.doomed {
            return;
        }
        // Whoever still waits for it to come to be hears that it was destroyed.
        let mut waiting = std::mem::take(&mut sandbox.waiting);
        waiting.extend(std::mem::take(&mut sandbox.again).iter().map(|again| again.waiter));
        let mut watching = std::mem::take(&mut sandbox.watching);
        watching.append(&mut sandbox.resting);
        watching.append(&mut sandbox.dozing);
        sandbox.doomed = true;
        match sandbox.body {
            Some(key) => self.bodies.get_mut(&key).into_iter().for_each(Body::kill),
            None if sandbox.lifetime == Lifetime::Kept => self.remove_sandbox(id),
            // Whatever it had is being removed already.
            None => self.forget(id, &Ok(Answer::Done)),
        }
        let cause = "it was destroyed meanwhile";
        let failure = Failure::new("make the sandbox", cause, Kind::Broken);
        for waiter in waiting {
            self.answer(waiter, Err(Refusal::Failed(failure.clone())));
        }
        for waiter in watching {
            self.answer(waiter, Err(Refusal::NotFound));
        }
    }

    /// A supervisor ended, and with it its sandbox.
    pub(super) fn bury(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        if body.is_launching() {
            // Its last words may still be on the line.
            self.hear_launcher(key);
        }
        let Some(body) = self.bodies.get_mut(&key) else { return };
        body.reap();
        let ending = read_ending(&body.folder, &body.ended);
        let (waiting, disowned) = (body.give_up_orders(true), body.disowned);
        for waiter in waiting {
            self.answer(waiter, Err(Refusal::NotRunning(ending.clone())));
        }
        if self.fall_asleep(key) {
            return;
        }
        if disowned {
            // Its owner may have another one on its way by now.
            return;
        }
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(id) = body.owner.clone() else { return };
        let unmade = |sandbox: &Sandbox| {
            let made = sandbox.before.is_none() && sandbox.waiting.is_empty();
            !sandbox.doomed && !made && sandbox.ending.is_none()
        };
        if !self.leaving && self.sandboxes.get(&id).is_some_and(unmade) {
            body.disown();
            let cause = "its launcher did not come to an end";
            self.give_up(&id, &Failure::new("launch a sandbox", cause, Kind::Broken));
        } else {
            self.note_end(&id, &ending);
            self.start_as_asked(&id);
        }
    }

    /// A sandbox ended by itself. Its files stay, and it is one that ended from now on.
    pub(super) fn note_end(&mut self, id: &SandboxId, ending: &Ending) {
        let is_told = |sandbox: &&mut Sandbox| !sandbox.doomed && sandbox.ending.is_none();
        let Some(sandbox) = self.sandboxes.get_mut(id).filter(is_told) else {
            return;
        };
        sandbox.ending = Some(ending.clone());
        for waiter in std::mem::take(&mut sandbox.watching) {
            self.answer(waiter, Ok(Answer::Ended(ending.clone())));
        }
    }

    /// Nothing of a body lives any more: keep the sandbox's files or remove them.
    pub(super) fn sweep(&mut self, key: Key) {
        let Some(body) = self.bodies.remove(&key) else { return };
        let sandbox = body.owner.as_ref().and_then(|id| self.sandboxes.get_mut(id));
        let reserved = sandbox.as_ref().and_then(|sandbox| sandbox.reserved);
        if reserved.is_none() {
            self.host.ranges.give_back(body.ids);
        }
        let Some(id) = body.owner else {
            return self.remove(body.folder, None);
        };
        let Some(sandbox) = sandbox else { return };
        sandbox.body = None;
        let doomed = sandbox.doomed;
        self.egress.detach(&id, doomed || sandbox.lifetime == Lifetime::WithCaller);
        let resting = std::mem::take(&mut sandbox.resting);
        match (sandbox.lifetime, doomed) {
            (Lifetime::Kept, true) => self.remove_sandbox(&id),
            (Lifetime::Kept, false) => {
                self.start_when_swept(&id);
                self.wake_when_swept(&id);
            }
            // No engine would ever take its folder for a sandbox: nobody need wait for that.
            (Lifetime::WithCaller, _) => {
                if doomed {
                    self.forget(&id, &Ok(Answer::Done));
                }
                self.remove(body.folder, None);
            }
        }
        for waiter in resting {
            self.answer(waiter, Ok(Answer::Done));
        }
        self.tell_dozing(&id);
    }

    /// Removes the files of a sandbox that does not run. With one step they are not to be found as
    /// a sandbox any more, so that none is ever found in half.
    fn remove_sandbox(&mut self, id: &SandboxId) {
        let home = &self.host.options.home;
        let aside = home.prepared().join(format!("{id}.removed"));
        match fs::rename(home.sandbox(id), &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.keep_remains(home.sandbox(id), Some(id.clone()), &error.to_string());
            }
            _ => self.remove(aside, Some(id.clone())),
        }
    }

    /// Removes the files of what does not run. The name is whose they are and who hears of it.
    pub(super) fn remove(&mut self, folder: PathBuf, id: Option<SandboxId>) {
        match remove_folder(&folder) {
            Ok(process) => self.sweepers.push(Sweeper { process, folder, id }),
            Err(error) => self.keep_remains(folder, id, &error.to_string()),
        }
    }

    /// A process that removed a folder has ended.
    pub(super) fn finish_sweeping(&mut self, index: usize) {
        if index >= self.sweepers.len() {
            return;
        }
        let Sweeper { process, folder, id } = self.sweepers.remove(index);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(process.as_fd()), options).ok().flatten();
        if status.and_then(|status| status.exit_status()) != Some(0) {
            return self.keep_remains(folder, id, "the host's file system refuses it");
        }
        let Some(id) = id else { return };
        // Whoever is told that it is gone does not meet it again after the host's death.
        if let Err(error) = durable::settle(&self.host.options.home.sandboxes()) {
            log(&format!("that `{id}` is gone may not be on the disk yet: {error}"));
        }
        if let Some(ids) = self.sandboxes.get_mut(&id).and_then(|sandbox| sandbox.reserved.take()) {
            self.host.ranges.give_back(ids);
        }
        let was_damaged = self.sandboxes.get(&id).is_some_and(|sandbox| sandbox.damage.is_some());
        self.forget(&id, &Ok(Answer::Done));
        self.remove_unused_snapshots();
        if was_damaged {
            // Now it can be told what is nobody's.
            self.remove_orphans(MOMENT);
        }
    }

    /// What could not be removed: a sandbox's files stay a sandbox, which can be destroyed once
    /// more; other files are tried again later.
    fn keep_remains(&mut self, folder: PathBuf, id: Option<SandboxId>, cause: &str) {
        let step = format!("remove `{}`", folder.display());
        let failure = Failure::new(step, cause, Kind::Broken);
        log(&failure.to_string());
        let Some(id) = id else {
            self.remains.push(folder);
            self.remove_remains_after = Instant::now() + REMOVE_AGAIN;
            return;
        };
        // What could not be removed is a sandbox again, and can be destroyed once more.
        let place = self.host.options.home.sandbox(&id);
        if folder != place && fs::rename(&folder, &place).is_err() {
            log(&format!("`{}` stays where it is", folder.display()));
        }
        if let Some(sandbox) = self.sandboxes.get_mut(&id) {
            sandbox.doomed = false;
            sandbox.before = None;
            sandbox.ending.get_or_insert(Ending::Stopped);
        }
        self.answer_waiting(&id, &Err(Refusal::Failed(failure)));
    }

    /// Tries again what could not be removed.
    pub(super) fn remove_remains(&mut self) {
        if !self.remains.is_empty() && Instant::now() >= self.remove_remains_after {
            for folder in std::mem::take(&mut self.remains) {
                self.remove(folder, None);
            }
        }
    }

    /// The same before the engine leaves: what still stays is for the next one, which removes
    /// whatever nobody owns.
    pub(super) fn remove_remains_at_last(&mut self) {
        for folder in std::mem::take(&mut self.remains) {
            if let Err(error) = remove(&folder) {
                log(&format!("`{}` is left for the next engine: {error}", folder.display()));
            }
        }
    }

    fn forget(&mut self, id: &SandboxId, answer: &Result<Answer, Refusal>) {
        self.egress.detach(id, true);
        self.answer_waiting(id, answer);
        self.sandboxes.remove(id);
    }
}

/// A process that removes a folder.
pub(super) struct Sweeper {
    pub(super) process: OwnedFd,
    pub(super) folder: PathBuf,
    /// Whose folder it is, when somebody waits for its end.
    id: Option<SandboxId>,
}

/// After files could not be removed, the next attempt waits: the host may have to be mended.
const REMOVE_AGAIN: Duration = Duration::from_secs(10);
