//! How sandboxes and their bodies end, and what is done with what they leave.
//!
//! An end begins with a kill and is over when nothing lives: then the supervisor is reaped, the
//! cgroups are gone, and a process of its own removes the files, or they are kept.

use std::os::fd::AsFd;
use std::path::Path;

use domain::{Lifetime, SandboxId};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::bodies::{Body, Stage, remove_folder};
use super::{Engine, Key, log};
use crate::failure::{Failure, Kind, Step};
use crate::manifest::read_ending;
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
        let waiting = std::mem::take(&mut sandbox.waiting);
        sandbox.doomed = true;
        match sandbox.body {
            Some(key) => self.bodies.get_mut(&key).into_iter().for_each(Body::kill),
            None => self.remove(&self.host.options.home.sandbox(id), Some(id.clone())),
        }
        let cause = "it was destroyed meanwhile";
        let failure = Failure::new("make the sandbox", cause, Kind::Broken);
        for waiter in waiting {
            self.answer(waiter, Err(Refusal::Failed(failure.clone())), &[]);
        }
    }

    /// A supervisor ended, and with it its sandbox.
    pub(super) fn bury(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        if body.is_launching() {
            // Its last words may still be on the line.
            self.hear_launcher(key);
        }
        if let Some(body) = self.bodies.get_mut(&key) {
            body.reap();
        }
    }

    /// Nothing of a body lives any more: keep the sandbox's files or remove them.
    pub(super) fn sweep(&mut self, key: Key) {
        let Some(body) = self.bodies.remove(&key) else { return };
        self.host.ranges.give_back(body.base_id);
        let Some(id) = body.owner else {
            return self.remove(&body.folder, None);
        };
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return };
        sandbox.body = None;
        if !sandbox.doomed {
            sandbox.ending = Some(read_ending(&body.folder));
        } else if sandbox.lifetime == Lifetime::Kept {
            self.remove(&body.folder, Some(id));
        } else {
            // No engine would ever take its folder for a sandbox: nobody need wait for that.
            self.forget(Some(id), &Ok(Answer::Done));
            self.remove(&body.folder, None);
        }
    }

    /// Removes the files of what does not run.
    pub(super) fn remove(&mut self, folder: &Path, id: Option<SandboxId>) {
        match remove_folder(folder).step("remove the sandbox's folder") {
            Ok(sweeper) => self.sweepers.push((sweeper, id)),
            Err(failure) => {
                log(&failure.to_string());
                self.forget(id, &Err(Refusal::Failed(failure)));
            }
        }
    }

    /// A process that removed a folder has ended.
    pub(super) fn finish_sweeping(&mut self, index: usize) {
        if index >= self.sweepers.len() {
            return;
        }
        let (sweeper, id) = self.sweepers.remove(index);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(sweeper.as_fd()), options).ok().flatten();
        if status.and_then(|status| status.exit_status()) == Some(0) {
            return self.forget(id, &Ok(Answer::Done));
        }
        let cause = "the host's file system refused it; its files are still there";
        let failure = Failure::new("remove a sandbox's folder", cause, Kind::Broken);
        log(&failure.to_string());
        self.forget(id, &Err(Refusal::Failed(failure)));
    }

    fn forget(&mut self, id: Option<SandboxId>, answer: &Result<Answer, Refusal>) {
        if let Some(id) = id {
            self.answer_waiting(&id, answer);
            self.sandboxes.remove(&id);
        }
    }
}
