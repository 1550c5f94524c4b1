//! Disks that take no more, for want of room below them.
//!
//! A disk is a sparse file, so it can have room that its host has not. A write that the host cannot
//! put down breaks the file system on the disk, after the program was told that all went well. The
//! kernel has a better answer, if it is asked in time: clusters that are set aside. Whoever needs
//! room on a disk where all that is free is set aside gets `ENOSPC` at once, and nothing is lost;
//! what is there can be read, overwritten and removed, and what was promised to a program before
//! still gets its place.

use std::fs;
use std::path::{Path, PathBuf};

/// What the kernel sets aside by itself: a fiftieth, but no more than so many clusters.
const MOST_SET_ASIDE: u64 = 4096;

/// The sectors, in which the kernel counts devices, of one cluster.
const SECTORS: u64 = 8;

/// What became of the disks of a home.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    /// So many are now what they were to be, and were not before.
    pub(crate) done: usize,
    /// So many could not be changed.
    pub(crate) refused: usize,
}

/// Closes every mounted disk below a folder, or opens it.
pub(crate) fn set_closed(below: &Path, closed: bool) -> Changed {
    let mut changed = Changed::default();
    for device in devices(Path::new("/sys/block"), below) {
        let Some(wanted) = set_aside(&device, closed) else { continue };
        let file = of_file_system(&device, "reserved_clusters");
        let now = number(&file);
        if now == Some(wanted) {
            continue;
        }
        match fs::write(&file, wanted.to_string()) {
            Ok(()) => changed.done += 1,
            // Not mounted yet, or not any more.
            Err(_) if now.is_none() => {}
            Err(_) => changed.refused += 1,
        }
    }
    changed
}

/// A figure of the file system on a device.
fn of_file_system(device: &Path, figure: &str) -> PathBuf {
    Path::new("/sys/fs/ext4").join(device.file_name().unwrap_or_default()).join(figure)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The loop devices whose files lie below a folder.
fn devices(all: &Path, below: &Path) -> Vec<PathBuf> {
    let is_ours = |device: &PathBuf| {
        let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim_end_matches('\n')).starts_with(below)
    };
    let all = fs::read_dir(all).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).filter(is_ours).collect()
}

/// How many clusters are to be set aside on a device.
fn set_aside(device: &Path, closed: bool) -> Option<u64> {
    let clusters = number(&device.join("size"))? / SECTORS;
    if closed { clusters.checked_sub(1) } else { Some((clusters / 50).min(MOST_SET_ASIDE)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_of_files_below_the_folder_are_meant() {
        let folder = tempfile::tempdir().unwrap();
        let device = |name: &str, file: Option<&str>| {
            let device = folder.path().join(name);
            fs::create_dir_all(device.join("loop")).unwrap();
            fs::write(device.join("size"), "20971520\n").unwrap();
            if let Some(file) = file {
                fs::write(device.join("loop/backing_file"), format!("{file}\n")).unwrap();
            }
            device
        };
        let ours = device("loop0", Some("/var/lib/soma/sandboxes/a/disk.ext4"));
        device("loop1", Some("/var/lib/soma-of-others/sandboxes/a/disk.ext4"));
        device("loop2", None);
        let found = devices(folder.path(), Path::new("/var/lib/soma"));
        assert_eq!(found, std::slice::from_ref(&ours));
        // What the kernel takes is less than all, and what it sets aside by itself is known.
        assert_eq!(set_aside(&ours, true), Some(2_621_439));
        assert_eq!(set_aside(&ours, false), Some(4096));
        fs::write(ours.join("size"), "131072\n").unwrap();
        assert_eq!(set_aside(&ours, false), Some(327));
    }
}
