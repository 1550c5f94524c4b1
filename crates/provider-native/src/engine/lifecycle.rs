//! How bodies come to be and become somebody's: prepared, launched, bound. `restart` has what is
//! different for a sandbox that ran before.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use domain::{Ending, Lifetime, Limit, Limits, SandboxId};
use rustix::net::RecvFlags;
use rustix::process::Pid;

use super::bodies::{Body, LONGEST_COPY, LONGEST_LAUNCH, Reach, Stage};
use super::clients::Waiter;
use super::restart::Again;
use super::snapshots::Capturing;
use super::{Engine, Key, limit, log, reach, restart};
use crate::cgroup::Group;
use crate::checkpoint::AWOKEN;
use crate::disk::{self, Storage};
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::home::make_folder;
use crate::ids::IdRange;
use crate::launch::{self, Layer, Order, Report};
use crate::manifest::{Made, Manifest, Process, ended_name};
use crate::random::random_id;
use crate::template::{Generation, Ground, Imported};
use crate::verbs::{Answer, Record, Refusal};

/// Somebody's sandbox, or the wish for one.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Sandbox {
    pub(super) limits: Limits,
    /// What it stands on instead of the host's own system.
    pub(super) template: Option<Imported>,
    /// Those of them that nothing holds it to.
    pub(super) unenforced: Vec<Limit>,
    pub(super) lifetime: Lifetime,
    /// Whose connection it lives with.
    pub(super) caller: Option<Key>,
    pub(super) body: Option<Key>,
    /// Set when it ran and does not any more.
    pub(super) ending: Option<Ending>,
    /// How it ended before it was asked to start again, as long as it does not run.
    pub(super) before: Option<Ending>,
    /// The ids that what it wrote has on the host's own file system: its own also while it does
    /// not run.
    pub(super) reserved: Option<IdRange>,
    /// Why what is written down about it cannot be read.
    pub(super) damage: Option<String>,
    /// Its processes are on the disk.
    pub(super) asleep: bool,
    /// Somebody wants it woken.
    pub(super) waking: bool,
    /// A snapshot of it is being taken.
    pub(super) capturing: Option<Capturing>,
    /// It was made from a snapshot, and nobody was told yet that it is there.
    pub(super) newborn: bool,
    /// Who waits until nothing of it is in memory.
    pub(super) dozing: Vec<Waiter>,
    /// It is being destroyed.
    pub(super) doomed: bool,
    /// Who waits for it to be made or to be gone.
    pub(super) waiting: Vec<Waiter>,
    /// Who waits for it to end.
    pub(super) watching: Vec<Waiter>,
    /// Who waits until nothing of it runs.
    pub(super) resting: Vec<Waiter>,
    /// Who wants it started again as soon as its end was noted.
    pub(super) again: Vec<Again>,
    /// What is written down with it, unless that lies in its folder.
    pub(super) record: String,
    /// What it may reach, as the egress program reads it.
    pub(super) network: Record,
}

impl Sandbox {
    /// One that was found in its folder.
    pub(super) fn kept(limits: Limits, template: Option<Imported>, unenforced: Vec<Limit>) -> Self {
        Self {
            limits,
            template,
            unenforced,
            lifetime: Lifetime::Kept,
            caller: None,
            body: None,
            ending: None,
            before: None,
            reserved: None,
            damage: None,
            asleep: false,
            waking: false,
            capturing: None,
            newborn: false,
            dozing: Vec::new(),
            doomed: false,
            waiting: Vec::new(),
            watching: Vec::new(),
            resting: Vec::new(),
            again: Vec::new(),
            record: String::new(),
            network: Record::default(),
        }
    }

    /// How it ended, if it does not run; also while it is on its way to run again.
    pub(super) fn known_ending(&self) -> Option<&Ending> {
        self.ending.as_ref().or(self.before.as_ref())
    }
}

/// After a command was started, preparing the next body waits: it would take its processor.
const PREPARE_LATER: Duration = Duration::from_millis(20);

/// After a body could not be prepared, the next attempt waits: the host may have to be mended.
const PREPARE_MUCH_LATER: Duration = Duration::from_secs(10);

/// What a launcher is to work on.
pub(super) struct Plan {
    pub(super) slot: String,
    pub(super) folder: PathBuf,
    pub(super) ids: IdRange,
    pub(super) ground: Ground,
    pub(super) limits: Limits,
    pub(super) owner: Option<SandboxId>,
    /// The folder of the guest's program; this version's when unset.
    pub(super) guest: Option<PathBuf>,
    /// Whether its processes are restored.
    pub(super) wake: bool,
    /// The sealed disks that it stands on, and the file with its own.
    pub(super) layers: Vec<Layer>,
    pub(super) disk: String,
}

impl Engine {
    /// What is done once in every turn, whatever happened.
    pub(super) fn keep_house(&mut self) {
        let keys: Vec<Key> = self.bodies.keys().copied().collect();
        for key in keys {
            let Some(body) = self.bodies.get_mut(&key) else { continue };
            body.hurry();
            let late = body.give_up_orders(false);
            let pausing = body.pausing.is_some();
            if matches!(body.stage, Stage::Ending { .. }) && body.is_dead() {
                self.sweep(key);
            }
            self.excuse(late);
            if pausing {
                self.keep_pausing(key);
            }
        }
        self.finish_imports();
        self.keep_egress();
        self.remove_remains();
        self.keep_room();
        self.launch_queued();
        let owned = self.sandboxes.values().any(|sandbox| sandbox.body.is_some());
        if owned || !self.clients.is_empty() {
            self.busy_until = Instant::now();
        }
        let idle = self.host.options.idle.is_some_and(|idle| self.busy_until.elapsed() >= idle);
        if idle && !self.leaving {
            self.begin_to_leave();
        }
        if self.wants_preparation() && Instant::now() >= self.prepare_after {
            self.prepare();
        }
    }

    pub(super) fn wants_preparation(&self) -> bool {
        let bodies = self.bodies.values().filter(|body| body.owner.is_none());
        let coming = bodies.filter(|body| !matches!(body.stage, Stage::Ending { .. })).count();
        !self.leaving
            && !self.room.is_closed()
            && coming < self.host.options.prepared
            && self.queue.is_empty()
            && !self.bodies.values().any(Body::is_launching)
    }

    fn prepare(&mut self) {
        if let Err(failure) = self.launch(Limits::default(), None, Ground::of_this_host()) {
            log(&format!("nothing is prepared ahead: {failure}"));
            self.prepare_after = Instant::now() + PREPARE_MUCH_LATER;
        }
    }

    /// Gives a sandbox a body: a prepared one, or a place in the queue.
    pub(super) fn embody(&mut self, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get(id) else { return };
        if sandbox.template.is_some() {
            // Only bodies on the host's own system are prepared ahead.
            return self.queue.push_back(id.clone());
        }
        let (wanted, now) = (sandbox.limits.clone(), Generation::of_this_host());
        let stale: Vec<Key> = self
            .bodies
            .iter()
            .filter(|(_, body)| body.is_prepared() && body.ground.is_other_than(&now))
            .map(|(key, _)| *key)
            .collect();
        for key in stale {
            self.bodies.get_mut(&key).into_iter().for_each(Body::kill);
        }
        let by_id = self.host.counts_processes_by_id();
        let fitting = |body: &Body| {
            let made_for = &body.made_for;
            body.is_prepared()
                && self.host.storage(made_for) == self.host.storage(&wanted)
                && made_for.open_files == wanted.open_files
                && (!by_id || made_for.pids == wanted.pids)
        };
        let prepared = self.bodies.iter().find(|(_, body)| fitting(body)).map(|(key, _)| *key);
        match prepared {
            Some(key) => self.bind(key, id),
            None => self.queue.push_back(id.clone()),
        }
    }

    fn launch_queued(&mut self) {
        while !self.leaving
            && self.bodies.values().filter(|body| body.is_launching()).count() < self.host.launchers
        {
            let Some(id) = self.queue.pop_front() else { break };
            let Some(sandbox) = self.sandboxes.get(&id) else { continue };
            let limits = sandbox.limits.clone();
            let launched = if sandbox.before.is_some() || sandbox.asleep {
                self.launch_again(&id)
            } else {
                let home = &self.host.options.home;
                let imported = sandbox.template.clone();
                let imported = imported.map(|imported| Ground::of_template(home, imported));
                let ground = imported.unwrap_or_else(Ground::of_this_host);
                self.launch(limits, Some(id.clone()), ground)
            };
            if let Err(failure) = launched {
                self.give_up(&id, &failure);
            }
        }
    }

    /// Starts a launcher, for an owner or ahead.
    fn launch(
        &mut self,
        limits: Limits,
        owner: Option<SandboxId>,
        ground: Ground,
    ) -> Result<(), Failure> {
        let slot = random_id().step("choose a name")?.to_string();
        let folder = self.host.options.home.prepared().join(&slot);
        make_folder(&folder).step("make the sandbox's folder")?;
        let ids = self.take_ids();
        let plan = ids.and_then(|ids| {
            let (folder, guest, wake) = (folder.clone(), None, false);
            let (layers, disk) = (Vec::new(), disk::NAME.to_owned());
            let plan = Plan { slot, folder, ids, ground, limits, owner, guest, wake, layers, disk };
            let launched = self.launch_in(plan, false);
            launched.inspect_err(|_| self.host.ranges.give_back(ids))
        });
        plan.inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })
    }

    pub(super) fn take_ids(&mut self) -> Result<IdRange, Failure> {
        self.host.ranges.take().ok_or_else(|| {
            let cause = "every range of ids is in use; destroy sandboxes that are not needed";
            Failure::new("find ids for the sandbox", cause, Kind::NoCapacity)
        })
    }

    /// Starts a launcher that works in a folder which is there.
    pub(super) fn launch_in(&mut self, plan: Plan, again: bool) -> Result<(), Failure> {
        let Plan { slot, folder, ids, ground, limits, owner, guest, wake, layers, disk } = plan;
        let group = Group::named(&self.host.hierarchies, &slot);
        let ended = ended_name(&slot);
        let guest = guest.unwrap_or_else(|| self.host.guest.clone());
        let guest_name = guest.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let order = Order {
            home: self.host.options.home.clone(),
            folder: folder.clone(),
            again,
            wake,
            ended: ended.clone(),
            ground: ground.clone(),
            layers,
            disk,
            guest,
            storage: self.host.storage(&limits),
            open_files: limits.open_files.map(u64::from),
            ids,
            group: group.clone(),
            processes: self.host.counts_processes_by_id().then_some(limits.pids),
            wires: self.host.missing_wires.is_none(),
        };
        let copies = order.ground.needs_copy(&order.home, order.own_ids());
        let longest = if copies || wake { LONGEST_COPY } else { LONGEST_LAUNCH };
        let launching = group.make().and_then(|()| launch::start(&order, &self.host.filters));
        let launching = launching.inspect_err(|_| {
            let _ = group.remove();
        })?;
        let key = self.new_key();
        if let Some(sandbox) = owner.as_ref().and_then(|id| self.sandboxes.get_mut(id)) {
            sandbox.body = Some(key);
        }
        let body = Body {
            slot,
            folder,
            again,
            ended,
            disowned: false,
            ids,
            ground,
            guest: guest_name,
            made_for: limits,
            group,
            link: Some(launching.socket),
            supervisor: launching.supervisor,
            supervisor_descriptor: Some(launching.supervisor_descriptor),
            stage: Stage::Launching { until: Instant::now() + longest },
            owner,
            unanswered: VecDeque::new(),
            until_end: Vec::new(),
            frozen: false,
            pausing: None,
            sleeping: None,
            dumped: false,
            hold: None,
            used_up: false,
        };
        self.bodies.insert(key, body);
        Ok(())
    }

    /// A launcher has reported, or a supervisor has acknowledged an order.
    pub(super) fn hear_launcher(&mut self, key: Key) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let Some(socket) = &body.link else { return };
        if !body.is_launching() {
            // One byte for each order.
            let mut bytes = [0; 16];
            let received = sys_linux::fdpass::receive(socket, &mut bytes, RecvFlags::DONTWAIT);
            match received {
                Ok((length, _)) if length > 0 => {
                    let used_up = std::mem::take(&mut body.used_up);
                    let images = body.folder.join(AWOKEN);
                    if let Some(heard) = body.hear_answer(&bytes[..length]) {
                        self.pass_on(key, heard);
                    }
                    if used_up {
                        // Its supervisor answers, so it runs.
                        self.remove(images, None);
                    }
                }
                _ => body.link = None,
            }
            return;
        }
        let failure = match link::receive::<Report>(socket, RecvFlags::DONTWAIT) {
            Ok(Some((Report::Ready { pid, steps }, descriptors))) => {
                self.last_steps = steps;
                let mut descriptors = descriptors.into_iter();
                let first = Pid::from_raw(pid).zip(descriptors.next());
                body.hold = descriptors.next();
                let reach = first.map(|(first, descriptor)| Reach::open(first, descriptor));
                match reach {
                    Some(Ok(reach)) => return self.stand_up(key, reach),
                    Some(Err(failure)) => failure,
                    None => Failure::new("launch a sandbox", "its report is odd", Kind::Broken),
                }
            }
            Ok(Some((Report::Failed(failure), _))) => failure,
            Ok(None) | Err(_) => {
                body.link = None;
                Failure::new("launch a sandbox", "its launcher died", Kind::Broken)
            }
        };
        self.fall_down(key, &failure);
    }

    fn stand_up(&mut self, key: Key, reach: Reach) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        body.stage = Stage::Ready(reach);
        let owner = body.owner.clone();
        if self.room.is_closed() {
            self.set_disks_closed();
        }
        let Some(id) = owner else {
            let Some(body) = self.bodies.get_mut(&key) else { return };
            if self.leaving {
                body.kill();
            }
            return;
        };
        if self.sandboxes.get(&id).is_none_or(|sandbox| sandbox.doomed) {
            self.bodies.get_mut(&key).into_iter().for_each(Body::kill);
        } else {
            self.bind(key, &id);
        }
    }

    fn fall_down(&mut self, key: Key, failure: &Failure) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        body.kill();
        if let Some(id) = body.disown() {
            self.give_up(&id, failure);
        } else {
            log(&format!("nothing is prepared ahead: {failure}"));
            self.prepare_after = Instant::now() + PREPARE_MUCH_LATER;
        }
    }

    /// Makes a body somebody's.
    fn bind(&mut self, key: Key, id: &SandboxId) {
        match self.try_to_bind(key, id) {
            Ok(()) => {
                self.prepare_after = Instant::now() + PREPARE_LATER;
                self.attach(id);
                self.let_run(key, id);
                self.note_sound(id);
                self.sandboxes.get_mut(id).into_iter().for_each(|one| one.newborn = false);
                let made = self.observe(id).map(Answer::Observed).ok_or(Refusal::NotFound);
                self.answer_waiting(id, &made);
            }
            Err(failure) => {
                self.bodies.get_mut(&key).into_iter().for_each(|body| {
                    body.disown();
                    body.kill();
                });
                self.give_up(id, &failure);
            }
        }
    }

    fn try_to_bind(&mut self, key: Key, id: &SandboxId) -> Result<(), Failure> {
        let (Some(body), Some(sandbox)) = (self.bodies.get_mut(&key), self.sandboxes.get_mut(id))
        else {
            return Err(Failure::new("bind the sandbox", "it is gone", Kind::Broken));
        };
        let Stage::Ready(reach) = &body.stage else {
            return Err(Failure::new("bind the sandbox", "it is not ready", Kind::Broken));
        };
        body.group.limit(&sandbox.limits)?;
        if body.group.is_there() {
            limit::size_shared_memory(reach.first, sandbox.limits.memory)?;
        }
        reach::name_host(&reach.names, &self.host.names, id.as_str()).step("name the host")?;
        let first = reach.first;
        body.owner = Some(id.clone());
        sandbox.body = Some(key);
        if let Some(timeout) = sandbox.limits.timeout {
            body.order_time(Some(timeout), None)?;
        }
        if sandbox.lifetime == Lifetime::WithCaller {
            return Ok(());
        }
        // Its supervisor lets it go on without us before it is found in its place: what is there
        // lives. One that we do not come to put there is removed by the label of its cgroups.
        body.order(b"K")?;
        let processes = Process::identify(first)
            .and_then(|first| Ok([first, Process::identify(body.supervisor)?]))
            .step("identify the sandbox's processes")?;
        if body.again {
            restart::write_manifest(body, sandbox, processes)?;
        } else {
            write_manifest(id, body, sandbox, processes, self.host.options.home.sandbox(id))?;
        }
        sandbox.before = None;
        if self.host.storage(&sandbox.limits) == Storage::Folder {
            sandbox.reserved = Some(body.ids);
        }
        Ok(())
    }

    /// Tells those who wait that there will be no sandbox, or that it is what it was.
    pub(super) fn give_up(&mut self, id: &SandboxId, failure: &Failure) {
        self.answer_waiting(id, &Err(Refusal::Failed(failure.clone())));
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        sandbox.waking = false;
        if sandbox.newborn {
            return self.doom(id);
        }
        if sandbox.asleep {
            return;
        }
        match sandbox.before.take() {
            Some(ending) => self.note_end(id, &ending),
            None => drop(self.sandboxes.remove(id)),
        }
    }
}

/// Writes down what a sandbox was made as, and puts its folder to where sandboxes are found: what
/// is there has a manifest, so nothing without one is ours to remove.
fn write_manifest(
    id: &SandboxId,
    body: &mut Body,
    sandbox: &mut Sandbox,
    processes: [Process; 2],
    folder: PathBuf,
) -> Result<(), Failure> {
    let made = Made {
        id: id.clone(),
        slot: body.slot.clone(),
        ids: body.ids,
        ground: body.ground.clone(),
        guest: body.guest.clone(),
        limits: sandbox.limits.clone(),
        unenforced: sandbox.unenforced.clone(),
        record: Record(std::mem::take(&mut sandbox.record)),
        network: sandbox.network.clone(),
    };
    let manifest = Manifest::new(made, processes);
    manifest.put(&body.folder).step("write the sandbox's manifest")?;
    let step = "make the sandbox's folder";
    fs::rename(&body.folder, &folder).step(step)?;
    body.folder = folder;
    body.folder.parent().map_or(Ok(()), durable::settle).step(step)
}
