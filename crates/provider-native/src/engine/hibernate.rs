//! Sandboxes that stand still and are put on the disk, and are woken from there.
//!
//! `checkpoint` has how; here is what becomes of the sandbox meanwhile. While it is dumped it stands
//! still, and whatever goes wrong it goes on standing still. Its network is taken off first: what
//! holds connections to the outside cannot be dumped.

use std::fs;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use domain::{Ending, Lifetime, Rest, SandboxId};

use super::bodies::Stage;
use super::clients::Waiter;
use super::{Engine, Key, log};
use crate::checkpoint::{self, ASLEEP, Sleeper, Subject, WOKEN, is_asleep};
use crate::failure::{Failure, Kind, Step};
use crate::manifest::Manifest;
use crate::verbs::{Answer, Refusal};

/// A sandbox on its way to the disk.
pub(super) struct Sleeping {
    sleeper: Sleeper,
    waiting: Vec<Waiter>,
}

impl Sleeping {
    /// Readable when the dump is over.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.sleeper.process()
    }
}

impl Engine {
    /// Puts a sandbox that stands still on the disk. Whoever asked is answered when nothing of it is
    /// in memory, or when it is known why it stays there.
    pub(super) fn hibernate(&mut self, waiter: Waiter, id: &SandboxId) {
        match self.try_to_hibernate(waiter, id) {
            Ok(Some(rest)) => self.answer(waiter, Ok(Answer::Rest(rest))),
            Ok(None) => {}
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// How it is kept, where that is known at once.
    fn try_to_hibernate(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
    ) -> Result<Option<Rest>, Refusal> {
        let sandbox = self.find(id)?;
        if sandbox.asleep {
            return Ok(Some(Rest::Hibernated));
        }
        let because = if sandbox.lifetime == Lifetime::WithCaller {
            Some("it lives with a connection")
        } else if !self.host.rights.is_root() {
            Some("soma runs as an ordinary user here, and CRIU needs root")
        } else {
            None
        };
        let body = self.body_of(id)?;
        if !body.frozen {
            let reason = format!("sandbox `{id}` is not paused: pause it first");
            return Err(Refusal::Conflict(reason));
        }
        if let Some(because) = because {
            return Ok(Some(Rest::Frozen { because: Some(because.to_owned()) }));
        }
        if let Some(sleeping) = &mut body.sleeping {
            sleeping.waiting.push(waiter);
            return Ok(None);
        }
        let Stage::Ready(reach) = &body.stage else { return Err(Refusal::NotFound) };
        let subject =
            Subject { first: reach.first, ids: body.ids, folder: &body.folder, group: &body.group };
        let sleeper = checkpoint::start(&subject)?;
        body.sleeping = Some(Sleeping { sleeper, waiting: vec![waiter] });
        self.egress.detach(id, false);
        Ok(None)
    }

    /// A dump is over.
    pub(super) fn finish_dump(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(Sleeping { sleeper, waiting }) = body.sleeping.take() else { return };
        let Some(id) = body.owner.clone() else { return };
        match sleeper.finish() {
            Ok(()) if is_asleep(&body.folder) => {
                // Nobody of them gets the processor again: they die as they stand.
                body.group.kill();
                body.frozen = false;
                body.stage = Stage::Ending { since: Instant::now() };
                let Some(sandbox) = self.sandboxes.get_mut(&id) else { return };
                sandbox.asleep = true;
                sandbox.dozing.extend(waiting);
            }
            dumped => {
                let because = dumped.err().unwrap_or_else(|| "its images are gone".to_owned());
                log(&format!("sandbox `{id}` stays in memory: {because}"));
                if body.frozen {
                    // CRIU leaves it as it found it, unless it died.
                    let _ = body.group.freeze();
                    self.attach(&id);
                }
                let rest = Rest::Frozen { because: Some(because) };
                for waiter in waiting {
                    self.answer(waiter, Ok(Answer::Rest(rest.clone())));
                }
            }
        }
    }

    /// A supervisor ended: whether its sandbox is on the disk, and not over.
    pub(super) fn fall_asleep(&mut self, key: Key) -> bool {
        let Some(body) = self.bodies.get(&key) else { return false };
        let Some(id) = body.owner.clone().filter(|_| is_asleep(&body.folder)) else { return false };
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return false };
        sandbox.asleep = true;
        if sandbox.waking {
            let cause = "it was restored and ended before it ran";
            let failure = Failure::new("wake the sandbox", cause, Kind::Broken);
            self.give_up(&id, &failure);
        }
        true
    }

    /// Those who waited hear that nothing of it is in memory.
    pub(super) fn tell_dozing(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        for waiter in std::mem::take(&mut sandbox.dozing) {
            self.answer(waiter, Ok(Answer::Rest(Rest::Hibernated)));
        }
    }

    /// Wakes a sandbox. Whoever asked is answered when it runs.
    pub(super) fn wake(&mut self, waiter: Waiter, id: &SandboxId, timeout: Option<Duration>) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        sandbox.waiting.push(waiter);
        sandbox.waking = true;
        sandbox.limits.timeout = timeout;
        self.wake_when_swept(id);
    }

    /// A body that is still being swept has the disk.
    pub(super) fn wake_when_swept(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get(id) else { return };
        let wanted = sandbox.waking && sandbox.asleep && sandbox.body.is_none();
        if wanted && !sandbox.doomed && !self.leaving && !self.queue.contains(id) {
            self.queue.push_back(id.clone());
        }
    }

    /// Lets a sandbox run that was restored and is written down.
    pub(super) fn let_run(&mut self, key: Key, id: &SandboxId) {
        let Some(hold) = self.bodies.get_mut(&key).and_then(|body| {
            body.used_up = body.hold.is_some();
            body.hold.take()
        }) else {
            return;
        };
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            (sandbox.asleep, sandbox.waking) = (false, false);
        }
        // The launcher settles the folder before anything runs.
        if let Err(error) = fs::File::create(self.host.options.home.sandbox(id).join(WOKEN)) {
            log(&format!("that `{id}` was restored is not written down: {error}"));
        }
        // A launcher that is gone is noticed as such.
        let _ = fs::File::from(hold).write_all(b"g");
    }

    /// Gives the processes of a sandbox up that are on the disk; its files stay.
    pub(super) fn give_processes_up(&mut self, id: &SandboxId) -> Result<(), Refusal> {
        let step = "give its processes up";
        let home = &self.host.options.home;
        let folder = home.sandbox(id);
        if self.sandboxes.get(id).is_some_and(|sandbox| sandbox.waking || sandbox.body.is_some()) {
            let reason = format!("sandbox `{id}` is on its way: stop it when it is there");
            return Err(Refusal::Conflict(reason));
        }
        let manifest = Manifest::read(&folder).step(step)?;
        let ended =
            serde_json::to_vec(&Ending::Stopped).map_err(std::io::Error::from).step(step)?;
        fs::write(folder.join(&manifest.ended), ended).step(step)?;
        let aside = home.prepared().join(format!("{id}.{ASLEEP}"));
        fs::rename(folder.join(ASLEEP), &aside).step(step)?;
        crate::durable::settle(&folder).step(step)?;
        let _ = fs::remove_file(folder.join(WOKEN));
        self.remove(aside, None);
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.asleep = false;
        }
        self.note_end(id, &Ending::Stopped);
        Ok(())
    }
}
