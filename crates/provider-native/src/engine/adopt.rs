//! What an engine finds when it starts, and whenever it is asked what there is: sandboxes to take
//! over, and remains to remove.
//!
//! The folders are the truth. A sandbox whose processes live is adopted; one whose processes
//! are gone has ended, and its files stay. What never became anybody's, or lived with a caller
//! of an earlier engine, has no manifest and is removed, its processes by the label of their
//! cgroups.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::{Ending, Limits, SandboxId, TemplateName};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::bodies::{Body, Reach, Stage};
use super::hibernate::put_aside;
use super::imports::Import;
use super::lifecycle::Sandbox;
use super::{Engine, log};
use crate::cgroup::Group;
use crate::checkpoint::{AWOKEN, NEW, is_asleep};
use crate::disk::{self, Storage};
use crate::launch::SUPERVISOR;
use crate::manifest::Manifest;
use crate::record::{self, Kept};
use crate::snapshot::{self, Sealed};
use crate::template::{Generation, Imported, remove_unused};

/// How long killed processes may take to vanish.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same while somebody else waits: what stays is met again.
pub(super) const MOMENT: Duration = Duration::from_millis(50);

impl Engine {
    /// Takes stock. Nothing that it meets stops the engine from starting.
    pub(super) fn adopt(&mut self) {
        let folders = match folders_in(&self.host.options.home.sandboxes()) {
            Ok(folders) => folders,
            // What is there cannot be told from what is not: nothing is removed.
            Err(error) => return log(&format!("the sandboxes' folders cannot be read: {error}")),
        };
        for folder in folders {
            if let Some(id) = id_of(&folder) {
                self.meet(id, &folder);
            } else {
                log(&format!("`{}` is no sandbox's folder, and is left alone", folder.display()));
            }
        }
        self.remove_orphans(PATIENCE);
        for folder in folders_in(&self.host.options.home.prepared()).unwrap_or_default() {
            self.remove(folder, None);
        }
        self.remove_unused_parts();
        self.remove_unused_snapshots();
    }

    /// Takes stock again while others work: a sandbox's folder that came back is taken in, and what
    /// is nobody's is removed, as at the start.
    pub(super) fn take_stock(&mut self) {
        let home = self.host.options.home.clone();
        // Where what is there cannot be read, it cannot be told from what is not.
        let Ok(folders) = folders_in(&home.sandboxes()) else { return };
        for folder in folders {
            // One of which nothing is known may still be a body's that could not be bound.
            let is_bodys = self.bodies.values().any(|body| body.folder == folder);
            if let Some(id) = id_of(&folder).filter(|id| !self.sandboxes.contains_key(id))
                && !is_bodys
            {
                log(&format!("sandbox `{id}` is there again"));
                self.meet(id, &folder);
            }
        }
        self.remove_orphans(MOMENT);
        for folder in folders_in(&home.prepared()).unwrap_or_default() {
            let is_bodys = self.bodies.values().any(|body| body.folder == folder);
            let is_imports = self.imports.values().any(|import| import.folder() == folder);
            let is_going = self.remains.contains(&folder)
                || self.sweepers.iter().any(|sweeper| sweeper.folder == folder);
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let is_captured = self.is_being_captured(&name);
            if !is_bodys && !is_imports && !is_going && !is_captured {
                self.remove(folder, None);
            }
        }
    }

    /// Takes a sandbox in by its folder.
    fn meet(&mut self, id: SandboxId, folder: &Path) {
        let settled = snapshot::settle(&self.host.options.home, folder);
        match settled.and_then(|()| Manifest::read(folder)) {
            Ok(manifest) if manifest.id == id => self.take_over(folder, &manifest),
            Ok(other) => self.set_aside(id, format!("its manifest is that of `{}`", other.id)),
            Err(error) => self.set_aside(id, error.to_string()),
        }
    }

    /// Ends what has cgroups of this home and is nobody's. As long as there is a sandbox of which
    /// nothing is known, what seems to be nobody's may be that one's, and goes on.
    pub(super) fn remove_orphans(&mut self, patience: Duration) {
        if self.sandboxes.values().any(|sandbox| sandbox.damage.is_some()) {
            return;
        }
        let bodies = self.bodies.values().map(|body| body.slot.as_str());
        let owned: Vec<&str> = bodies.chain(self.imports.values().map(Import::slot)).collect();
        let names = self.host.hierarchies.names().into_iter();
        let orphans: Vec<String> = names.filter(|name| !owned.contains(&name.as_str())).collect();
        for slot in orphans {
            self.remove_group(&slot, patience);
        }
    }

    /// A sandbox of which nothing is known but that it is there. Its files stay.
    fn set_aside(&mut self, id: SandboxId, reason: String) {
        log(&format!("sandbox `{id}` cannot be used: {reason}"));
        let ending = Ending::Unreadable { reason: reason.clone() };
        let sandbox = Sandbox {
            damage: Some(reason),
            ending: Some(ending),
            ..Sandbox::kept(Limits::default(), None, Vec::new())
        };
        self.sandboxes.insert(id, sandbox);
    }

    fn take_over(&mut self, folder: &Path, manifest: &Manifest) {
        // In this order: it becomes the other when it is whole.
        let is_dumped = folder.join(NEW).exists();
        let asleep = is_asleep(folder);
        // What was used up is worth nothing.
        let _ = crate::remove::remove(&folder.join(AWOKEN));
        // As long as its images are there, whatever lives of it has not run since.
        let processes = manifest.processes().filter(|_| !asleep);
        let body = processes.and_then(|[first, supervisor]| {
            let open = || {
                let group = Group::named(&self.host.hierarchies, &manifest.slot);
                reopen(folder, manifest, group, first, supervisor)
                    .inspect_err(|error| log(&format!("`{}`: {error}", folder.display())))
            };
            // What cannot be opened in this moment is not gone.
            let again = || std::thread::sleep(Duration::from_millis(50));
            open().or_else(|_| (again(), open()).1).or_else(|_| (again(), open()).1).ok()
        });
        let (limits, template) = (manifest.limits.clone(), manifest.template.clone());
        let mut sandbox = Sandbox::kept(limits, template, manifest.unenforced.clone());
        if self.host.storage(&manifest.limits) == Storage::Folder {
            sandbox.reserved = Some(manifest.ids());
        }
        if body.is_some() || sandbox.reserved.is_some() {
            // Of others the next sandbox may have the ids.
            self.host.ranges.note(manifest.ids());
        }
        // What cannot be read lets it reach nothing.
        sandbox.network = record::read(folder, Kept::Network).unwrap_or_default();
        if let Some(body) = body {
            let key = self.new_key();
            sandbox.body = Some(key);
            self.bodies.insert(key, body);
            if is_dumped {
                self.follow_dump(key);
            }
        } else {
            // Removed with all that is nobody's.
            put_aside(&self.host.options.home.prepared(), folder, &manifest.id);
            self.remove_group(&manifest.slot, PATIENCE);
            sandbox.asleep = asleep;
            sandbox.ending = (!asleep).then(|| manifest.ending(folder));
        }
        self.sandboxes.insert(manifest.id.clone(), sandbox);
    }

    /// Ends whoever is in these cgroups, and removes them.
    fn remove_group(&self, slot: &str, patience: Duration) {
        let group = Group::named(&self.host.hierarchies, slot);
        let start = Instant::now();
        while let Err(error) = group.remove() {
            if start.elapsed() > patience {
                return log(&format!("the cgroups of `{slot}` stay: {error}"));
            }
            group.kill();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Generations of the template and versions of the guest that no sandbox stands on.
    fn remove_unused_parts(&self) {
        let home = &self.host.options.home;
        let folders = folders_in(&home.sandboxes());
        let read: io::Result<Vec<Manifest>> = folders
            .and_then(|folders| folders.iter().map(|folder| Manifest::read(folder)).collect());
        // One that cannot be read may stand on anything.
        let (Ok(manifests), Ok(snapshots)) = (read, Sealed::all(home)) else { return };
        let now = Generation::of_this_host();
        let of_sandboxes = manifests.iter().map(|manifest| &manifest.generation);
        let of_snapshots = snapshots.iter().map(|sealed| &sealed.generation);
        let of_host = of_sandboxes.chain(of_snapshots).filter(|name| !name.is_empty());
        let named = of_host.map(|name| Generation::named(name));
        let generations: Vec<Generation> = named.chain([now]).collect();
        remove_all_but(&home.bases(), |name| {
            generations.iter().any(|generation| generation.has_folder(name))
        });
        let of_snapshots = snapshots.iter().filter_map(|sealed| sealed.template.as_ref());
        let of_sandboxes = manifests.iter().filter_map(|manifest| manifest.template.as_ref());
        let imported: Vec<&Imported> = of_sandboxes.chain(of_snapshots).collect();
        let is_used = |name: &TemplateName, number: u64| {
            imported.iter().any(|used| used.name == *name && used.number == number)
        };
        remove_unused(home, is_used, &mut |folder| remove(&folder));
        let own = self.host.guest.file_name().unwrap_or_default().to_string_lossy();
        let of_snapshots = snapshots.iter().map(|sealed| sealed.guest.as_str());
        let of_sandboxes = manifests.iter().map(|manifest| manifest.guest.as_str());
        let guests: Vec<&str> = of_sandboxes.chain(of_snapshots).chain([&*own]).collect();
        remove_all_but(&home.guests(), |name| guests.contains(&name));
        // Those of unusual sizes are quickly made again.
        for blank in folders_in(&home.blanks()).unwrap_or_default() {
            if blank != disk::blank_path(home, disk::Size::of(&Limits::default())) {
                let _ = fs::remove_file(blank);
            }
        }
    }
}

/// The sandbox whose folder this would be.
fn id_of(folder: &Path) -> Option<SandboxId> {
    folder.file_name().and_then(|name| name.to_str()?.parse().ok())
}

fn remove_all_but(parent: &Path, is_used: impl Fn(&str) -> bool) {
    for folder in folders_in(parent).unwrap_or_default() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if !is_used(&name) {
            remove(&folder);
        }
    }
}

/// Opens again what the engine before had open.
fn reopen(
    folder: &Path,
    manifest: &Manifest,
    group: Group,
    first: Pid,
    supervisor: Pid,
) -> io::Result<Body> {
    let first_descriptor = pidfd_open(first, PidfdFlags::empty())?;
    let reach = Reach::open(first, first_descriptor).map_err(io::Error::other)?;
    let supervisor_descriptor = pidfd_open(supervisor, PidfdFlags::empty())?;
    let frozen = group.is_to_be_frozen();
    Ok(Body {
        slot: manifest.slot.clone(),
        folder: folder.to_owned(),
        again: true,
        ended: manifest.ended.clone(),
        disowned: false,
        ids: manifest.ids(),
        ground: manifest.ground(),
        guest: manifest.guest.clone(),
        made_for: manifest.limits.clone(),
        group,
        link: Some(link::dial(folder, SUPERVISOR)?),
        supervisor,
        supervisor_descriptor: Some(supervisor_descriptor),
        stage: Stage::Ready(reach),
        owner: Some(manifest.id.clone()),
        unanswered: VecDeque::new(),
        until_end: Vec::new(),
        frozen,
        pausing: None,
        sleeping: None,
        dumped: false,
        hold: None,
        used_up: false,
    })
}

pub(super) fn folders_in(parent: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(parent)?.map(|entry| Ok(entry?.path())).collect()
}

fn remove(folder: &Path) {
    if let Err(error) = crate::remove::remove(folder) {
        log(&format!("could not remove `{}`: {error}", folder.display()));
    }
}
