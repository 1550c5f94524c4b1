//! Images on their way to become templates.
//!
//! ```text
//! (nothing) --Import--> unpacking --> staged --Keep--> a template
//!                           |            |
//!                           +--- gone <--+  Discard, or whoever asked is gone
//! ```
//!
//! What is on its way lies among the bodies that nobody owns yet, with cgroups like theirs: an
//! engine that starts removes both without knowing what they were.

use std::fs::{self, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use domain::{Bytes, Limits, TemplateName};
use image::Bounds;
use provider::TemplateKind;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::clients::Waiter;
use super::{Engine, Key};
use crate::cgroup::Group;
use crate::failure::{Failure, Kind, Step};
use crate::home::make_folder;
use crate::ids::IdRange;
use crate::launch::import::{ImportOrder, MEMORY, start};
use crate::random::random_id;
use crate::template::{Imported, TREE};
use crate::verbs::{Answer, Record, Refusal};

/// More at one time only wait for the same disk.
const MOST_IMPORTS: usize = 4;

/// An image that takes longer than this to arrive will not.
const LONGEST_IMPORT: Duration = Duration::from_hours(1);

/// An image on its way.
pub(super) struct Import {
    /// Who asked, and hears of it.
    waiter: Waiter,
    /// What it is called meanwhile, and the name of its cgroups.
    slot: String,
    folder: PathBuf,
    ids: IdRange,
    group: Group,
    stage: Stage,
    /// Nobody wants it any more.
    abandoned: bool,
}

enum Stage {
    Unpacking {
        process: OwnedFd,
        since: Instant,
    },
    /// It ended, well or not; its cgroups are still there.
    Ended {
        well: bool,
    },
    /// It waits to be kept.
    Staged,
}

impl Import {
    /// The name of its cgroups.
    pub(super) fn slot(&self) -> &str {
        &self.slot
    }

    /// Where it is unpacked.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What becomes readable when the unpacking ended.
    pub(super) fn process(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Unpacking { process, .. } => Some(process.as_fd()),
            _ => None,
        }
    }

    /// Whether the loop must look again soon without being told.
    pub(super) fn wants_attention(&self) -> bool {
        self.abandoned || matches!(self.stage, Stage::Ended { .. })
    }

    fn kill(&self) {
        self.group.kill();
        if let Some(process) = self.process() {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

impl Engine {
    /// Begins to unpack an image.
    pub(super) fn import(&mut self, waiter: Waiter, descriptors: Vec<OwnedFd>) {
        let Ok([archive, report]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            let refusal = Refusal::Invalid("an image comes as two descriptors".to_owned());
            return self.answer(waiter, Err(refusal));
        };
        if self.imports.len() >= MOST_IMPORTS {
            let cause = format!("{MOST_IMPORTS} are being unpacked already; wait for one");
            let failure = Failure::new("unpack the image", cause, Kind::NoCapacity);
            return self.answer(waiter, Err(failure.into()));
        }
        if let Err(failure) = self.begin_import(waiter, archive, report) {
            self.answer(waiter, Err(failure.into()));
        }
    }

    fn begin_import(
        &mut self,
        waiter: Waiter,
        archive: OwnedFd,
        report: OwnedFd,
    ) -> Result<(), Failure> {
        let slot = random_id().step("choose a name")?.to_string();
        let folder = self.host.options.home.prepared().join(&slot);
        let ids = self.host.ranges.take().ok_or_else(|| {
            let cause = "every range of ids is in use; destroy sandboxes that are not needed";
            Failure::new("find ids for the image", cause, Kind::NoCapacity)
        })?;
        let group = Group::named(&self.host.hierarchies, &slot);
        let storage = self.host.storage(&Limits::default());
        let begun =
            make_folder(&folder.join(TREE)).step("make the image's folder").and_then(|()| {
                let tree = folder.join(TREE);
                let open = Permissions::from_mode(0o755);
                fs::set_permissions(&tree, open).step("make the image's folder")?;
                if !self.host.rights.is_root() {
                    let owner = Some(ids.outside(0));
                    std::os::unix::fs::chown(&tree, owner, owner)
                        .step("make the image's folder")?;
                }
                group.make()?;
                group.settle()?;
                group.limit(&Limits { memory: Bytes(MEMORY), pids: 8, ..Limits::default() })?;
                let (group, bounds) = (group.clone(), Bounds::default());
                let order = ImportOrder { tree, ids, group, storage, bounds, archive, report };
                start(&order, &self.host.filters)
            });
        let process = begun.inspect_err(|_| {
            let _ = group.remove();
            let _ = fs::remove_dir_all(&folder);
            self.host.ranges.give_back(ids);
        })?;
        let stage = Stage::Unpacking { process, since: Instant::now() };
        let key = self.new_key();
        let import = Import { waiter, slot, folder, ids, group, stage, abandoned: false };
        self.imports.insert(key, import);
        Ok(())
    }

    /// An unpacking ended.
    pub(super) fn reap_importer(&mut self, key: Key) {
        let Some(import) = self.imports.get_mut(&key) else { return };
        let Some(process) = import.process() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(process), options).ok().flatten();
        let well = status.and_then(|status| status.exit_status()) == Some(0);
        import.stage = Stage::Ended { well };
    }

    /// What is done once in every turn: sees to those that ended, or should.
    pub(super) fn finish_imports(&mut self) {
        let keys: Vec<Key> = self.imports.keys().copied().collect();
        for key in keys {
            let Some(import) = self.imports.get_mut(&key) else { continue };
            match &import.stage {
                Stage::Unpacking { since, .. } => {
                    if import.abandoned || since.elapsed() > LONGEST_IMPORT {
                        import.kill();
                    }
                }
                Stage::Ended { well } => {
                    let well = *well;
                    if import.group.remove().is_err() {
                        // Somebody is still in there.
                        import.group.kill();
                        continue;
                    }
                    self.host.ranges.give_back(import.ids);
                    if well && !import.abandoned {
                        import.stage = Stage::Staged;
                        let (waiter, slot) = (import.waiter, import.slot.clone());
                        self.answer(waiter, Ok(Answer::Staged(slot)));
                    } else {
                        self.drop_import(key);
                    }
                }
                Stage::Staged if import.abandoned => self.drop_import(key),
                Stage::Staged => {}
            }
        }
    }

    /// Removes what is left of one whose process is gone.
    fn drop_import(&mut self, key: Key) {
        let Some(import) = self.imports.remove(&key) else { return };
        self.remove(import.folder, None);
        if !import.abandoned && !matches!(import.stage, Stage::Staged) {
            // Why is in the report, which is not the engine's to read.
            let refusal = Refusal::Invalid("the image was not unpacked".to_owned());
            self.answer(import.waiter, Err(refusal));
        }
    }

    /// Makes what was unpacked a template.
    pub(super) fn keep_import(
        &mut self,
        waiter: Waiter,
        slot: &str,
        name: &TemplateName,
        (record, kind): (Record, TemplateKind),
        replace: bool,
    ) -> Result<(), Refusal> {
        let record = record.check()?;
        let gone = || Refusal::Invalid("the image is not there any more: send it again".to_owned());
        let key = self.staged(waiter, slot).ok_or_else(gone)?;
        let home = self.host.options.home.clone();
        if !replace && Imported::latest(&home, name).is_some() {
            return Err(Refusal::TemplateExists(name.clone()));
        }
        self.check_room_for_template(name)?;
        let import = self.imports.get(&key).ok_or_else(gone)?;
        Imported::keep(&home, name, &import.folder, &record, kind).step("keep the template")?;
        self.imports.remove(&key);
        self.remove_unused_imports(name);
        Ok(())
    }

    /// Removes what was unpacked, or is gone already.
    pub(super) fn discard_import(&mut self, waiter: Waiter, slot: &str) {
        if let Some(key) = self.staged(waiter, slot) {
            self.abandon(key);
        }
    }

    /// What this client has under this name.
    fn staged(&self, waiter: Waiter, slot: &str) -> Option<Key> {
        let mut imports = self.imports.iter();
        let found = imports.find(|(_, import)| {
            let is_staged = matches!(import.stage, Stage::Staged) && !import.abandoned;
            is_staged && import.slot == slot && import.waiter.client == waiter.client
        });
        found.map(|(key, _)| *key)
    }

    /// Whoever asked by this request does not wait any more.
    pub(super) fn abandon_import(&mut self, waiter: Waiter) {
        self.abandon_where(|import| import.waiter == waiter);
    }

    /// A client left.
    pub(super) fn abandon_imports_of(&mut self, client: Key) {
        self.abandon_where(|import| import.waiter.client == client);
    }

    pub(super) fn abandon_all_imports(&mut self) {
        self.abandon_where(|_| true);
    }

    fn abandon_where(&mut self, is_meant: impl Fn(&Import) -> bool) {
        let meant = self.imports.iter().filter(|(_, import)| is_meant(import));
        let keys: Vec<Key> = meant.map(|(key, _)| *key).collect();
        for key in keys {
            self.abandon(key);
        }
    }

    fn abandon(&mut self, key: Key) {
        if let Some(import) = self.imports.get_mut(&key) {
            import.abandoned = true;
            if import.process().is_some() {
                import.kill();
            }
        }
    }
}
