//! How a snapshot is taken of a sandbox of which nothing is in memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::SnapshotId;
use serde::{Deserialize, Serialize};

use super::{CAPTURING, Keeping, Sealed, VERSION, link_all, remove_disks};
use crate::checkpoint::{ASLEEP, is_asleep};
use crate::disk;
use crate::durable;
use crate::failure::{Failure, Step};
use crate::home::{Home, make_folder};
use crate::manifest::Manifest;
use crate::random::random_id;
use crate::verbs::Record;

/// The snapshot that is wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) id: SnapshotId,
    /// Its processes too, where there are any.
    pub(crate) memory: bool,
    pub(crate) keeping: Keeping,
    pub(crate) record: Record,
}

/// Takes it. Afterwards it is there and the sandbox has an empty disk over it, or nothing happened.
pub(crate) fn capture(home: &Home, folder: &Path, wanted: &Wanted) -> Result<(), Failure> {
    let step = "take the snapshot";
    let place = home.snapshot(&wanted.id);
    if place.exists() {
        // Somebody asked twice, because the first answer was lost.
        return Ok(());
    }
    let manifest = Manifest::read(folder).step(step)?;
    let new = unfinished(home, &wanted.id);
    let _ = fs::remove_dir_all(&new);
    // Before there is a second name: whoever meets the sandbox so knows what it may not write to.
    let mark = || -> io::Result<()> {
        fs::write(folder.join(CAPTURING), wanted.id.as_str())?;
        durable::settle(folder)
    };
    mark().step(step)?;
    let taken = write(home, folder, &new, wanted, &manifest).and_then(|()| {
        fs::rename(&new, &place).step(step)?;
        durable::settle(&home.snapshots()).step(step)
    });
    let finished = finish(home, folder).step(step);
    taken.and(finished)
}

fn write(
    home: &Home,
    folder: &Path,
    new: &Path,
    wanted: &Wanted,
    manifest: &Manifest,
) -> Result<(), Failure> {
    let step = "write the snapshot";
    let path = folder.join(&manifest.disk);
    if !path.exists() && !manifest.layers.is_empty() {
        // Nothing was written since the last one.
        drop(disk::make(home, disk::Size::of(&manifest.limits), &path)?);
    }
    // Nobody has it any more, and nobody gets it before all of this is done.
    let disk = disk::seal(&path)?;
    make_folder(new).step(step)?;
    fs::hard_link(&path, new.join(disk::NAME)).step(step)?;
    let memory = wanted.memory && is_asleep(folder);
    if memory {
        link_all(&folder.join(ASLEEP), &new.join(ASLEEP)).step(step)?;
    }
    let sealed = Sealed {
        version: VERSION,
        id: wanted.id.clone(),
        layers: manifest.layers.clone(),
        generation: manifest.generation.clone(),
        template: manifest.template.clone(),
        guest: manifest.guest.clone(),
        limits: manifest.limits.clone(),
        unenforced: manifest.unenforced.clone(),
        memory,
        keeping: wanted.keeping,
        disk: disk::sum(&disk).step(step)?,
        record: wanted.record.clone(),
    };
    sealed.write(new).step(step)
}

/// Finishes what was begun, if a snapshot of the sandbox in this folder was being taken; undoes it
/// where there is none.
pub(super) fn finish(home: &Home, folder: &Path) -> io::Result<()> {
    let mark = folder.join(CAPTURING);
    let id = match fs::read_to_string(&mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?.trim().parse::<SnapshotId>().map_err(io::Error::other)?,
    };
    if home.snapshot(&id).exists() {
        let mut manifest = Manifest::read(folder)?;
        if !manifest.layers.contains(&id) {
            let layers = manifest.layers.iter().cloned().chain([id]).collect();
            manifest = manifest.on_layers(layers, new_disk()?);
            manifest.write(folder)?;
        }
        remove_disks(folder, &manifest.disk)?;
    } else {
        let _ = fs::remove_dir_all(unfinished(home, &id));
    }
    fs::remove_file(&mark)?;
    durable::settle(folder)
}

/// A name that no disk has yet.
pub(super) fn new_disk() -> io::Result<String> {
    Ok(format!("disk-{}.ext4", random_id()?))
}

/// Where a snapshot is written, before it is one.
fn unfinished(home: &Home, id: &SnapshotId) -> PathBuf {
    home.prepared().join(id.as_str())
}
