//! Sandboxes captured, made from what was captured, and brought back to it.
//!
//! `snapshot` has how; here is who may when, and what becomes of snapshots that nobody needs.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use domain::{Ending, Lifetime, SandboxId, SnapshotId};

use super::clients::Waiter;
use super::errand::Errand;
use super::lifecycle::Sandbox;
use super::{Engine, log};
use crate::checkpoint::is_asleep;
use crate::disk::Storage;
use crate::failure::{Failure, Kind, Step};
use crate::launch::Layer;
use crate::manifest::Manifest;
use crate::random::random_id;
use crate::snapshot::{self, Keeping, MOST_LAYERS, New, Sealed, Wanted};
use crate::verbs::{Answer, ListedSnapshot, Record, Refusal};

/// More snapshots than this are more than a list can show.
const MOST_SNAPSHOTS: usize = 1024;

/// So many of the sandboxes of a snapshot are named.
const MOST_NAMED: usize = 5;

/// A snapshot that is being taken.
pub(super) struct Capturing {
    errand: Errand,
    snapshot: SnapshotId,
    waiting: Vec<Waiter>,
}

impl Capturing {
    /// Readable when it is over.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.errand.process()
    }
}

impl Engine {
    /// Takes a snapshot of a sandbox of which nothing is in memory.
    pub(super) fn capture(&mut self, waiter: Waiter, id: &SandboxId, wanted: Wanted) {
        match self.try_to_capture(waiter, id, wanted) {
            Ok(true) => self.answer(waiter, Ok(Answer::Done)),
            Ok(false) => {}
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// Whether it is there already.
    fn try_to_capture(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        mut wanted: Wanted,
    ) -> Result<bool, Refusal> {
        wanted.record = wanted.record.check()?;
        let home = self.host.options.home.clone();
        let all = self.snapshots_there()?;
        if all.iter().any(|sealed| sealed.id == wanted.id) {
            return Ok(true);
        }
        if all.len() >= MOST_SNAPSHOTS {
            let cause = format!("there are {MOST_SNAPSHOTS} of them: remove some");
            return Err(Failure::new("take another snapshot", cause, Kind::NoCapacity).into());
        }
        self.is_capturable(id)?;
        let manifest = Manifest::read(&home.sandbox(id)).step(STEP)?;
        if manifest.layers.len() >= MOST_LAYERS {
            let reason = format!(
                "sandbox `{id}` stands on {MOST_LAYERS} snapshots already, which is the most: make a \
                 new one and copy its files over"
            );
            return Err(Refusal::Conflict(reason));
        }
        let sandbox = self.sandboxes.get_mut(id).ok_or(Refusal::NotFound)?;
        if let Some(capturing) = &mut sandbox.capturing {
            if capturing.snapshot == wanted.id {
                capturing.waiting.push(waiter);
                return Ok(false);
            }
            let reason = format!("another snapshot of sandbox `{id}` is being taken: wait for it");
            return Err(Refusal::Conflict(reason));
        }
        let (folder, snapshot) = (home.sandbox(id), wanted.id.clone());
        let errand = Errand::start(STEP, || snapshot::capture(&home, &folder, &wanted))?;
        sandbox.capturing = Some(Capturing { errand, snapshot, waiting: vec![waiter] });
        Ok(false)
    }

    fn is_capturable(&self, id: &SandboxId) -> Result<(), Refusal> {
        let sandbox = self.find(id)?;
        if self.host.storage(&sandbox.limits) == Storage::Folder {
            let cause = "an ordinary user's sandboxes have no disks of their own that could be \
                         sealed: run soma as root";
            return Err(Failure::new(STEP, cause, Kind::Unsupported).into());
        }
        let rests = sandbox.asleep || sandbox.ending.is_some();
        let is_kept = sandbox.lifetime == Lifetime::Kept && sandbox.damage.is_none();
        if !rests || sandbox.body.is_some() || sandbox.waking || !is_kept {
            let reason = format!(
                "something of sandbox `{id}` is in memory: put it on the disk, or stop it first"
            );
            return Err(Refusal::Conflict(reason));
        }
        Ok(())
    }

    /// Taking a snapshot is over.
    pub(super) fn finish_capture(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        let Some(Capturing { errand, waiting, .. }) = sandbox.capturing.take() else { return };
        let captured = errand.finish(STEP);
        if captured.is_err() {
            // What was killed in the middle is finished or undone before anybody goes on.
            let home = &self.host.options.home;
            if let Err(error) = snapshot::settle(home, &home.sandbox(id)) {
                log(&format!("a snapshot of `{id}` is neither there nor gone: {error}"));
            }
        }
        for waiter in waiting {
            let answer = captured.clone().map(|()| Answer::Done);
            self.answer(waiter, answer.map_err(Refusal::Failed));
        }
    }

    /// A sandbox that is to be what a snapshot was; it is found from now on, and not awake yet.
    pub(super) fn make_from(
        &mut self,
        id: &SandboxId,
        mut sandbox: Sandbox,
        origin: &SnapshotId,
    ) -> Result<(), Refusal> {
        let step = "make a sandbox from the snapshot";
        let home = &self.host.options.home;
        if self.host.storage(&sandbox.limits) == Storage::Folder {
            let cause = "an ordinary user's sandboxes have no disks of their own";
            return Err(Failure::new(step, cause, Kind::Unsupported).into());
        }
        if sandbox.lifetime != Lifetime::Kept {
            let reason = "what is made from a snapshot is kept, and does not go with a connection";
            return Err(Refusal::Invalid(reason.to_owned()));
        }
        let sealed = self.find_snapshot(origin)?;
        let new = New {
            id: id.clone(),
            slot: random_id().step(step)?.to_string(),
            limits: sandbox.limits.clone(),
            unenforced: sandbox.unenforced.clone(),
            record: Record(std::mem::take(&mut sandbox.record)),
            network: sandbox.network.clone(),
        };
        snapshot::furnish(home, &sealed, new).step(step)?;
        sandbox.template = sealed.template;
        sandbox.newborn = true;
        if sealed.memory {
            (sandbox.asleep, sandbox.waking) = (true, true);
        } else {
            sandbox.before = Some(Ending::Stopped);
        }
        self.sandboxes.insert(id.clone(), sandbox);
        self.queue.push_back(id.clone());
        Ok(())
    }

    /// Makes a sandbox that does not run what a snapshot was.
    pub(super) fn roll_back(&mut self, id: &SandboxId, origin: &SnapshotId) -> Result<(), Refusal> {
        let step = "bring the sandbox back";
        self.is_capturable(id)?;
        let sealed = self.find_snapshot(origin)?;
        let home = &self.host.options.home;
        let folder = home.sandbox(id);
        snapshot::roll_back(home, &folder, origin).step(step)?;
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return Err(Refusal::NotFound) };
        sandbox.template = sealed.template;
        sandbox.asleep = is_asleep(&folder);
        sandbox.ending = (!sandbox.asleep).then_some(Ending::Stopped);
        self.remove_unused_snapshots();
        Ok(())
    }

    /// What is there, for whoever may see it.
    pub(super) fn list_snapshots(&self) -> Result<Vec<ListedSnapshot>, Refusal> {
        let home = &self.host.options.home;
        let manifests = self.manifests();
        let all =
            self.snapshots_there()?.into_iter().filter(|sealed| sealed.keeping == Keeping::Wanted);
        let listed = all.map(|sealed| ListedSnapshot {
            memory: sealed.memory,
            bytes: Sealed::bytes(&home.snapshot(&sealed.id)),
            sandboxes: made_from(&manifests, &sealed.id),
            layers: sealed.layers,
            id: sealed.id,
        });
        Ok(listed.collect())
    }

    pub(super) fn read_snapshot(&self, id: &SnapshotId) -> Result<Record, Refusal> {
        Ok(self.find_snapshot(id)?.record)
    }

    /// Removes a snapshot that no sandbox was made from. Its disk stays as long as some stand on it.
    pub(super) fn remove_snapshot(&mut self, id: &SnapshotId) -> Result<(), Refusal> {
        let step = "remove the snapshot";
        let sealed = self.find_snapshot(id)?;
        let users = made_from(&self.manifests(), id);
        if !users.is_empty() {
            return Err(Refusal::SnapshotInUse(id.clone(), users));
        }
        sealed.pass(&self.host.options.home.snapshot(id)).step(step)?;
        self.remove_unused_snapshots();
        Ok(())
    }

    /// Removes what nobody wants and nothing stands on.
    pub(super) fn remove_unused_snapshots(&mut self) {
        let home = self.host.options.home.clone();
        // What cannot be read may stand on anything.
        let Ok(all) = Sealed::all(&home) else { return };
        if all.iter().all(|sealed| sealed.keeping == Keeping::Wanted) {
            return;
        }
        let Some(manifests) = self.all_manifests() else { return };
        let used: BTreeSet<SnapshotId> =
            manifests.into_iter().flat_map(|manifest| manifest.layers).collect();
        for id in snapshot::unused(&all, &used) {
            let aside = home.prepared().join(format!("{id}.removed"));
            match std::fs::rename(home.snapshot(&id), &aside) {
                Ok(()) => self.remove(aside, None),
                Err(error) => log(&format!("`{id}` stays: {error}")),
            }
        }
    }

    /// The sealed disks that a sandbox stands on, for its launcher.
    pub(super) fn layers_of(&self, manifest: &Manifest) -> Vec<Layer> {
        let home = &self.host.options.home;
        let layer =
            |id: &SnapshotId| Layer { folder: home.snapshot(id), seen: self.sound.contains(id) };
        manifest.layers.iter().map(layer).collect()
    }

    /// A sandbox stands on these: each was seen to be what it was.
    pub(super) fn note_sound(&mut self, id: &SandboxId) {
        if let Ok(manifest) = Manifest::read(&self.host.options.home.sandbox(id)) {
            self.sound.extend(manifest.layers);
        }
    }

    /// Whether a snapshot is being taken into a folder of this name.
    pub(super) fn is_being_captured(&self, name: &str) -> bool {
        let mut all = self.sandboxes.values().filter_map(|sandbox| sandbox.capturing.as_ref());
        all.any(|capturing| capturing.snapshot.as_str() == name)
    }

    fn find_snapshot(&self, id: &SnapshotId) -> Result<Sealed, Refusal> {
        match Sealed::read(&self.host.options.home.snapshot(id)) {
            Ok(sealed) if sealed.keeping != Keeping::Layer => Ok(sealed),
            Ok(_) => Err(Refusal::NoSnapshot(id.clone())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Refusal::NoSnapshot(id.clone()))
            }
            Err(error) => Err(Failure::of("read the snapshot", error).into()),
        }
    }

    fn snapshots_there(&self) -> Result<Vec<Sealed>, Refusal> {
        Ok(Sealed::all(&self.host.options.home).step("read the snapshots")?)
    }

    /// The manifests of all sandboxes that can be read.
    fn manifests(&self) -> Vec<Manifest> {
        let home = &self.host.options.home;
        self.sandboxes.keys().filter_map(|id| Manifest::read(&home.sandbox(id)).ok()).collect()
    }

    /// The same, unless one cannot be read.
    fn all_manifests(&self) -> Option<Vec<Manifest>> {
        let home = &self.host.options.home;
        let kept = self.sandboxes.iter().filter(|(_, sandbox)| {
            sandbox.lifetime == Lifetime::Kept && (sandbox.body.is_none() || !sandbox.doomed)
        });
        kept.map(|(id, _)| match Manifest::read(&home.sandbox(id)) {
            Ok(manifest) => Some(Some(manifest)),
            // It is on its way, or gone by now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(|all| all.into_iter().flatten().collect())
    }
}

/// What was being done, for messages.
const STEP: &str = "take the snapshot";

/// Some of the sandboxes that were made from a snapshot.
fn made_from(manifests: &[Manifest], id: &SnapshotId) -> Vec<SandboxId> {
    let users = manifests.iter().filter(|manifest| manifest.origin.as_ref() == Some(id));
    users.map(|manifest| manifest.id.clone()).take(MOST_NAMED).collect()
}
