//! Sandboxes that were captured: their disk, sealed, and what their memory held.
//!
//! ```text
//! sandbox, nothing of it in memory      its snapshot
//!   disk.ext4 ------------- link ------> disk.ext4      never written to again
//!   asleep/*  ------------- link ------> asleep/*       unless only files were wanted
//!   manifest: an empty disk over it      snapshot.json  what it stands on, checksums, whose it is
//! ```
//!
//! Nothing is copied, and nothing of a sandbox is ever in a snapshot that it still writes to: its
//! folder says which snapshot is [being taken](`CAPTURING`) before there is a second name for its
//! disk, and whoever meets it so finishes what was begun, or undoes it.
//!
//! A snapshot is there once its folder has its name. A sandbox that is made from it, or brought back
//! to it, has an empty disk of its own over the sealed one, and links to the images.

mod capture;
mod make;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use domain::{Limit, Limits, SnapshotId};
use serde::{Deserialize, Serialize};

use crate::checkpoint::ASLEEP;
use crate::disk;
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::home::Home;
use crate::template::Imported;
use crate::verbs::Record;

pub(crate) use capture::{Wanted, capture};
pub(crate) use make::{New, furnish, roll_back, settle};

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 1;

const NAME: &str = "snapshot.json";

/// Says in a sandbox's folder which snapshot of it is being taken.
const CAPTURING: &str = "capturing";

/// Says there which snapshot it is being brought back to.
const RETURNING: &str = "returning";

/// More sealed disks than this below one sandbox are more than a wake should mount.
pub(crate) const MOST_LAYERS: usize = 64;

/// What is written down about a snapshot, in its own folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sealed {
    version: u32,
    pub(crate) id: SnapshotId,
    /// The sealed disks that its own lies over, the lowest first.
    pub(crate) layers: Vec<SnapshotId>,
    /// The state of the host's own system that it stands on, as in a sandbox's manifest.
    pub(crate) generation: String,
    /// The template, in the same way.
    pub(crate) template: Option<Imported>,
    /// The folder of the guest that runs in it.
    pub(crate) guest: String,
    pub(crate) limits: Limits,
    pub(crate) unenforced: Vec<Limit>,
    /// Whether its processes were captured too.
    pub(crate) memory: bool,
    pub(crate) keeping: Keeping,
    /// The length of its disk and a checksum of it.
    disk: (u64, String),
    /// What whoever took it wrote down with it.
    pub(crate) record: Record,
}

/// For how long a snapshot is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Keeping {
    /// Until somebody removes it.
    Wanted,
    /// Until nothing stands on it: it was taken on somebody's way to copies.
    Step,
    /// The same, and nothing more is made from it: it was removed, and its disk is still used.
    Layer,
}

impl Sealed {
    /// Reads what is written down about a snapshot.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let sealed: Self = serde_json::from_slice(&durable::read(folder, NAME)?)?;
        if sealed.version > VERSION {
            let found = sealed.version;
            let what = format!("it has version {found}, and this soma reads up to {VERSION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(sealed)
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        durable::put(folder, NAME, &serde_json::to_vec_pretty(self)?)?;
        durable::settle(folder)
    }

    /// Every snapshot that is there and can be read.
    pub(crate) fn all(home: &Home) -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(home.snapshots())? {
            let entry = entry?;
            let is_one = |name: &str| name.parse::<SnapshotId>().is_ok();
            if entry.file_name().to_str().is_some_and(is_one) {
                all.push(Self::read(&entry.path())?);
            }
        }
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// The sealed disks of a sandbox that is made from it, the lowest first.
    pub(crate) fn with_itself(&self) -> Vec<SnapshotId> {
        self.layers.iter().chain([&self.id]).cloned().collect()
    }

    /// Sees whether a sealed disk is what it was.
    pub(crate) fn check(folder: &Path) -> Result<(), Failure> {
        let step = "check the snapshot";
        let sealed = Self::read(folder).step(step)?;
        let disk = File::open(folder.join(disk::NAME)).step(step)?;
        if disk::sum(&disk).step(step)? == sealed.disk {
            return Ok(());
        }
        let cause = format!(
            "the disk of `{}` is damaged: its checksum does not fit, so nothing is made from it",
            sealed.id
        );
        Err(Failure::new(step, cause, Kind::Broken))
    }

    /// It is nobody's any more, but some stand on its disk: what else there is of it goes.
    pub(crate) fn pass(mut self, folder: &Path) -> io::Result<()> {
        (self.keeping, self.memory) = (Keeping::Layer, false);
        self.record = Record::default();
        self.write(folder)?;
        match fs::remove_dir_all(folder.join(ASLEEP)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// How much of the host's disk is its own.
    pub(crate) fn bytes(folder: &Path) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let blocks = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        let images = fs::read_dir(folder.join(ASLEEP)).into_iter().flatten().flatten();
        blocks(&folder.join(disk::NAME)) + images.map(|image| blocks(&image.path())).sum::<u64>()
    }
}

/// The snapshots that nobody wants and nothing stands on, where that can be told.
pub(crate) fn unused(all: &[Sealed], sandboxes: &BTreeSet<SnapshotId>) -> Vec<SnapshotId> {
    let mut gone: BTreeSet<&SnapshotId> = BTreeSet::new();
    // With one that goes, those below it may go as well.
    loop {
        let stays = |sealed: &&Sealed| !gone.contains(&sealed.id);
        let below: BTreeSet<&SnapshotId> =
            all.iter().filter(stays).flat_map(|sealed| &sealed.layers).collect();
        let next = all.iter().filter(stays).find(|sealed| {
            sealed.keeping != Keeping::Wanted
                && !sandboxes.contains(&sealed.id)
                && !below.contains(&sealed.id)
        });
        match next {
            Some(sealed) => drop(gone.insert(&sealed.id)),
            None => return gone.into_iter().cloned().collect(),
        }
    }
}

/// Removes the disks in a sandbox's folder that are not its own any more.
fn remove_disks(folder: &Path, but: &str) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_disk = path.extension().is_some_and(|extension| extension == "ext4");
        if is_disk && name != but {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Gives all files of a folder a second name in another, which is made.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    crate::home::make_folder(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::hard_link(entry.path(), to.join(entry.file_name()))?;
    }
    // The sandbox's ids read the images; the folder above keeps all others out.
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    durable::settle(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(number: u8, layers: &[u8], keeping: Keeping) -> Sealed {
        let id = |number| SnapshotId::from_random([number; 15]);
        Sealed {
            version: VERSION,
            id: id(number),
            layers: layers.iter().copied().map(id).collect(),
            generation: "generation".into(),
            template: None,
            guest: "guest".into(),
            limits: Limits::default(),
            unenforced: Vec::new(),
            memory: true,
            keeping,
            disk: (0, String::new()),
            record: Record("mine".into()),
        }
    }

    #[test]
    fn what_nothing_stands_on_goes_and_with_it_what_is_below() {
        let all = [
            sealed(1, &[], Keeping::Step),
            sealed(2, &[1], Keeping::Layer),
            sealed(3, &[1], Keeping::Wanted),
        ];
        let used = BTreeSet::from([all[1].id.clone()]);
        assert_eq!(unused(&all, &used), []);
        assert_eq!(unused(&all, &BTreeSet::new()), [all[1].id.clone()]);
        let all = [sealed(1, &[], Keeping::Step), sealed(2, &[1], Keeping::Step)];
        assert_eq!(unused(&all, &BTreeSet::new()).len(), 2);
    }

    #[test]
    fn one_that_is_nobodys_keeps_its_disk_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join(ASLEEP)).unwrap();
        fs::write(folder.join(ASLEEP).join("pages.img"), "memory").unwrap();
        fs::write(folder.join(disk::NAME), "files").unwrap();
        sealed(1, &[], Keeping::Wanted).write(folder).unwrap();
        Sealed::read(folder).unwrap().pass(folder).unwrap();
        let read = Sealed::read(folder).unwrap();
        assert!(read.keeping == Keeping::Layer && !read.memory && read.record.0.is_empty());
        assert!(folder.join(disk::NAME).exists() && !folder.join(ASLEEP).exists());
    }

    #[test]
    fn a_disk_that_is_not_what_it_was_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join(disk::NAME), "files").unwrap();
        let mut known = sealed(1, &[], Keeping::Wanted);
        known.disk = disk::sum(&File::open(folder.join(disk::NAME)).unwrap()).unwrap();
        known.write(folder).unwrap();
        Sealed::check(folder).unwrap();
        fs::write(folder.join(disk::NAME), "filed").unwrap();
        let failure = Sealed::check(folder).unwrap_err();
        assert!(failure.to_string().contains("is damaged"), "{failure}");
    }
}
