//! Sandboxes that stand still and are put on the disk, and are woken from there.
//!
//! `checkpoint` has how; here is what becomes of the sandbox meanwhile. While it is dumped it stands
//! still, and whatever goes wrong it goes on standing still. Its network is taken off first: what
//! holds connections to the outside cannot be dumped.

use std::fs;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::{Ending, Lifetime, Rest, SandboxId};

use super::bodies::{Body, Stage};
use super::clients::Waiter;
use super::{Engine, Key, log};
use crate::checkpoint::{self, ASLEEP, NEW, Sleeper, Subject, WOKEN, is_asleep};
use crate::failure::{Failure, Kind, Step};
use crate::manifest::Manifest;
use crate::reserves::{Reserves, Room, rounded};
use crate::verbs::{Answer, Refusal};

/// A sandbox on its way to the disk.
pub(super) struct Sleeping {
    sleeper: Sleeper,
    waiting: Vec<Waiter>,
    /// Who wants it to go on for so long, when it is over.
    resuming: Vec<(Waiter, Option<Duration>)>,
}

impl Sleeping {
    fn new(sleeper: Sleeper, waiting: Vec<Waiter>) -> Self {
        Self { sleeper, waiting, resuming: Vec::new() }
    }

    /// Has it go on when the dump is over, which cannot be broken off.
    pub(super) fn then_resume(&mut self, waiter: Waiter, timeout: Option<Duration>) {
        self.resuming.push((waiter, timeout));
    }

    /// Readable when the dump is over.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.sleeper.process()
    }
}

impl Engine {
    /// Puts a sandbox that stands still on the disk. Whoever asked is answered when nothing of it is
    /// in memory, or when it is known why it stays there.
    pub(super) fn hibernate(&mut self, waiter: Waiter, id: &SandboxId, reserves: &Reserves) {
        self.room.leave(*reserves);
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
        let (home, reserves) = (self.host.options.home.clone(), self.room.reserves());
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
        if let Some(because) = no_room_for(body, home.path(), reserves) {
            return Ok(Some(Rest::Frozen { because: Some(because) }));
        }
        let Some(subject) = subject_of(body) else { return Err(Refusal::NotFound) };
        // What an earlier one left would be taken for this one's.
        let left = put_aside(&home.prepared(), &body.folder, id);
        let sleeper = checkpoint::start(&subject)?;
        body.sleeping = Some(Sleeping::new(sleeper, vec![waiter]));
        self.egress.detach(id, false);
        if let Some(left) = left {
            self.remove(left, None);
        }
        Ok(None)
    }

    /// A dump of an earlier engine's is not over, or was interrupted. Until that is known the sandbox
    /// is one that stands still.
    pub(super) fn follow_dump(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        body.frozen = true;
        match subject_of(body).map(|subject| checkpoint::follow(&subject)) {
            Some(Ok(sleeper)) => {
                body.sleeping = Some(Sleeping::new(sleeper, Vec::new()));
            }
            Some(Err(failure)) => {
                log(&failure.to_string());
                let _ = body.group.freeze();
            }
            None => {}
        }
    }

    /// A dump is over.
    pub(super) fn finish_dump(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(Sleeping { sleeper, waiting, resuming }) = body.sleeping.take() else { return };
        if sleeper.was_killed()
            && let Some(Ok(sleeper)) = subject_of(body).map(|subject| checkpoint::follow(&subject))
        {
            // CRIU may still be at work.
            body.sleeping = Some(Sleeping { sleeper, waiting, resuming });
            return;
        }
        let Some(id) = body.owner.clone() else { return };
        match sleeper.finish() {
            Ok(()) if is_asleep(&body.folder) => {
                // Nobody of them gets the processor again: they die as they stand.
                body.group.kill();
                (body.frozen, body.dumped) = (false, true);
                body.stage = Stage::Ending { since: Instant::now() };
                let Some(sandbox) = self.sandboxes.get_mut(&id) else { return };
                sandbox.asleep = true;
                sandbox.dozing.extend(waiting);
            }
            dumped => {
                let because = dumped.err().unwrap_or_else(|| "its images are gone".to_owned());
                log(&format!("sandbox `{id}` stays in memory: {because}"));
                let is_frozen = body.frozen;
                if is_frozen && let Err(failure) = body.group.freeze() {
                    // CRIU leaves it as it found it, unless it died.
                    log(&failure.to_string());
                }
                let left = put_aside(&self.host.options.home.prepared(), &body.folder, &id);
                if let Some(left) = left {
                    self.remove(left, None);
                }
                if is_frozen {
                    self.attach(&id);
                }
                let rest = Rest::Frozen { because: Some(because) };
                for waiter in waiting {
                    self.answer(waiter, Ok(Answer::Rest(rest.clone())));
                }
            }
        }
        for (waiter, timeout) in resuming {
            self.go_on(waiter, &id, timeout);
        }
    }

    /// A supervisor ended: whether its sandbox is on the disk, and not over.
    pub(super) fn fall_asleep(&mut self, key: Key) -> bool {
        let Some(body) = self.bodies.get(&key) else { return false };
        let Some(id) = body.owner.clone().filter(|_| is_asleep(&body.folder)) else { return false };
        // Who waits for one that was dumped just now has it woken when this body is swept, and whoever
        // waits since this one was given up waits for the next.
        let is_not_this_one = body.dumped || body.disowned;
        let Some(sandbox) = self.sandboxes.get_mut(&id) else { return false };
        sandbox.asleep = true;
        if sandbox.waking && !is_not_this_one {
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
        if sandbox.capturing.is_some() {
            let reason =
                format!("a snapshot of sandbox `{id}` is being taken: resume it after that");
            return self.answer(waiter, Err(Refusal::Conflict(reason)));
        }
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
        let ended = serde_json::to_vec(&Ending::Stopped).map_err(io::Error::from).step(step)?;
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

/// Why the host's disk cannot take what a body holds in memory, beside what is left to the host.
fn no_room_for(body: &Body, home: &Path, reserves: Reserves) -> Option<String> {
    let (room, holds) = (Room::on(home)?, body.group.memory_in_use()?);
    let reserve = reserves.of_disk(room.size);
    if room.left.0 >= holds.0.saturating_add(reserve.0) {
        return None;
    }
    let [left, holds, reserve] = [room.left, holds, reserve].map(rounded);
    Some(format!(
        "the host has {left} of disk left, the sandbox holds {holds} in memory, and {reserve} are \
         kept for the host: delete sandboxes, free some, or set `reserve_disk` lower"
    ))
}

/// What CRIU is to know of a body.
fn subject_of(body: &Body) -> Option<Subject<'_>> {
    let Stage::Ready(reach) = &body.stage else { return None };
    let (folder, group) = (&body.folder, &body.group);
    Some(Subject { first: reach.first, ids: body.ids, folder, group })
}

/// Takes what a dump that failed has written out of the sandbox's folder, to be removed.
pub(super) fn put_aside(prepared: &Path, folder: &Path, id: &SandboxId) -> Option<PathBuf> {
    let aside = prepared.join(format!("{id}.{NEW}"));
    match fs::rename(folder.join(NEW), &aside) {
        Ok(()) => Some(aside),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            // One that could not be removed yet is in the way: there is nothing of worth in it.
            log(&format!("a dump of `{id}` is removed in place: {error}"));
            let _ = crate::remove::remove(&folder.join(NEW));
            None
        }
    }
}
