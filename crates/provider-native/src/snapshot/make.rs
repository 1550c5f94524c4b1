//! How sandboxes are made from snapshots, and brought back to them.

use std::fs;
use std::io;
use std::path::Path;

use domain::{Limit, Limits, SandboxId, SnapshotId};

use super::capture::{finish, new_disk};
use super::{RETURNING, Sealed, link_all, remove_disks};
use crate::checkpoint::{ASLEEP, AWOKEN, NEW, WOKEN};
use crate::durable;
use crate::home::Home;
use crate::ids::IdRange;
use crate::manifest::{Made, Manifest, Process};
use crate::template::Ground;
use crate::verbs::Record;

/// A sandbox that is to be what a snapshot was.
#[derive(Debug)]
pub(crate) struct New {
    pub(crate) id: SandboxId,
    pub(crate) slot: String,
    pub(crate) limits: Limits,
    pub(crate) unenforced: Vec<Limit>,
    pub(crate) record: Record,
    pub(crate) network: Record,
}

/// Makes the folder of a sandbox that stands on a snapshot, with its processes on the disk where it
/// has any. It is found as a sandbox when it is whole.
pub(crate) fn furnish(home: &Home, origin: &Sealed, new: New) -> io::Result<()> {
    let New { id, slot, limits, unenforced, record, network } = new;
    let folder = home.prepared().join(&slot);
    crate::home::make_folder(&folder)?;
    let made = Made {
        id: id.clone(),
        slot,
        // It has some when it runs.
        ids: IdRange { base: 0, count: 0 },
        ground: Ground::of_this_host(),
        guest: origin.guest.clone(),
        limits,
        unenforced,
        record,
        network,
    };
    let furnished = || -> io::Result<()> {
        if origin.memory {
            link_all(&home.snapshot(&origin.id).join(ASLEEP), &folder.join(ASLEEP))?;
        }
        Manifest::new(made, [Process::NONE; 2]).of_origin(origin, new_disk()?).put(&folder)?;
        durable::settle(&folder)?;
        fs::rename(&folder, home.sandbox(&id))?;
        durable::settle(&home.sandboxes())
    };
    furnished().inspect_err(|_| {
        let _ = fs::remove_dir_all(&folder);
    })
}

/// Makes a sandbox that does not run what a snapshot was. What it was before is gone.
pub(crate) fn roll_back(home: &Home, folder: &Path, origin: &SnapshotId) -> io::Result<()> {
    // From here on there is no way back: whoever meets it so goes on.
    fs::write(folder.join(RETURNING), origin.as_str())?;
    durable::settle(folder)?;
    settle(home, folder)
}

/// Finishes whatever was begun with the sandbox in this folder.
pub(crate) fn settle(home: &Home, folder: &Path) -> io::Result<()> {
    finish(home, folder)?;
    let mark = folder.join(RETURNING);
    let id = match fs::read_to_string(&mark) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?.trim().parse::<SnapshotId>().map_err(io::Error::other)?,
    };
    let place = home.snapshot(&id);
    let origin = Sealed::read(&place)?;
    for left in [ASLEEP, NEW, AWOKEN] {
        crate::remove::remove(&folder.join(left))?;
    }
    let manifest = Manifest::read(folder)?.of_origin(&origin, new_disk()?);
    manifest.write(folder)?;
    remove_disks(folder, &manifest.disk)?;
    if origin.memory {
        link_all(&place.join(ASLEEP), &folder.join(NEW))?;
        fs::rename(folder.join(NEW), folder.join(ASLEEP))?;
    }
    for left in [WOKEN, RETURNING] {
        match fs::remove_file(folder.join(left)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    durable::settle(folder)
}
