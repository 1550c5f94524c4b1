//! The watched folders of one tree, by the kernel's numbers and by their names.
//!
//! A folder holds its name and its parent's number, and nothing about those below it: so when one
//! is moved, all names below it are right again at once.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most folders that one watcher watches.
pub(super) const MOST_FOLDERS: usize = 1 << 15;

/// The most folders that all watchers watch together.
pub(super) const MOST_FOLDERS_OF_ALL: usize = 1 << 16;

/// The folders that are watched by all watchers.
static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// The number by which the kernel knows a watched folder.
pub(super) type Watch = i32;

/// The parent of the root, and that of a folder that was moved out of the tree.
const NONE: Watch = -1;

/// The longest path that the kernel takes. By moving folders about, deeper trees can be made.
const LONGEST_PATH: usize = 4096;

#[derive(Debug)]
struct Folder {
    parent: Watch,
    name: Arc<OsStr>,
    device: u64,
}

/// The folders of one tree.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) root: Watch,
    folders: HashMap<Watch, Folder>,
    by_name: HashMap<(Watch, Arc<OsStr>), Watch>,
}

impl Known {
    /// A tree of a root alone, unless all watchers have as many folders as they may.
    pub(super) fn new(root: Watch, device: u64) -> Option<Self> {
        let mut known = Self { root, folders: HashMap::new(), by_name: HashMap::new() };
        known.insert(root, NONE, Arc::from(OsStr::new("")), device).then_some(known)
    }

    /// Adds a folder; says whether there was room for it.
    pub(super) fn insert(
        &mut self,
        watch: Watch,
        parent: Watch,
        name: Arc<OsStr>,
        device: u64,
    ) -> bool {
        if self.is_full() || !reserve() {
            return false;
        }
        self.by_name.insert((parent, Arc::clone(&name)), watch);
        self.folders.insert(watch, Folder { parent, name, device });
        true
    }

    /// Whether this watcher has as many folders as it may.
    pub(super) fn is_full(&self) -> bool {
        self.folders.len() >= MOST_FOLDERS
    }

    /// The device of a folder that is known.
    pub(super) fn device(&self, watch: Watch) -> Option<u64> {
        self.folders.get(&watch).map(|folder| folder.device)
    }

    /// Every folder that is known.
    pub(super) fn watches(&self) -> Vec<Watch> {
        self.folders.keys().copied().collect()
    }

    /// Gives a known folder its place, which it may have already.
    pub(super) fn place(&mut self, watch: Watch, parent: Watch, name: Arc<OsStr>) {
        // A second way to a folder that this one is in, by a mount: names would go in circles.
        if self.is_above(watch, parent) {
            return;
        }
        self.forget_name(watch);
        if let Some(folder) = self.folders.get_mut(&watch) {
            self.by_name.insert((parent, Arc::clone(&name)), watch);
            (folder.parent, folder.name) = (parent, name);
        }
    }

    /// Takes a folder out of the tree, but not its watch. Says whether there was one.
    pub(super) fn detach(&mut self, parent: Watch, name: Arc<OsStr>) -> bool {
        let moved = self.by_name.remove(&(parent, name));
        match moved.and_then(|moved| self.folders.get_mut(&moved)) {
            Some(folder) => {
                folder.parent = NONE;
                true
            }
            None => false,
        }
    }

    pub(super) fn forget(&mut self, watch: Watch) {
        self.forget_name(watch);
        if self.folders.remove(&watch).is_some() {
            FOLDERS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn forget_name(&mut self, watch: Watch) {
        let Some(folder) = self.folders.get(&watch) else { return };
        let key = (folder.parent, Arc::clone(&folder.name));
        if self.by_name.get(&key) == Some(&watch) {
            self.by_name.remove(&key);
        }
    }

    /// The folder's path relative to the root; none for what is not in the tree, or so deep that
    /// nobody could name it.
    pub(super) fn path_of(&self, watch: Watch) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut length = 0;
        let mut at = watch;
        while at != self.root {
            let folder = self.folders.get(&at)?;
            length += folder.name.len() + 1;
            if length > LONGEST_PATH {
                return None;
            }
            names.push(&*folder.name);
            at = folder.parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// Whether the folder `above` holds the folder `below`, or is the same.
    fn is_above(&self, above: Watch, below: Watch) -> bool {
        let mut at = below;
        while at != above {
            match self.folders.get(&at) {
                Some(folder) => at = folder.parent,
                None => return false,
            }
        }
        true
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        FOLDERS.fetch_sub(self.folders.len(), Ordering::Relaxed);
    }
}

/// Takes a place among the folders of all watchers.
fn reserve() -> bool {
    let had = FOLDERS.fetch_add(1, Ordering::Relaxed);
    if had >= MOST_FOLDERS_OF_ALL {
        FOLDERS.fetch_sub(1, Ordering::Relaxed);
    }
    had < MOST_FOLDERS_OF_ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Arc<OsStr> {
        Arc::from(OsStr::new(name))
    }

    #[test]
    fn a_folder_that_is_moved_takes_those_below_it_along() {
        let mut known = Known::new(1, 0).unwrap();
        assert!(known.insert(2, 1, name("a"), 0) && known.insert(3, 2, name("b"), 0));
        known.place(2, 1, name("c"));
        assert_eq!(known.path_of(3).unwrap(), PathBuf::from("c/b"));
        assert!(!known.detach(1, name("a")));
        assert!(known.detach(1, name("c")));
        assert_eq!(known.path_of(3), None);
        known.place(2, 1, name("d"));
        assert_eq!(known.path_of(3).unwrap(), PathBuf::from("d/b"));
    }

    #[test]
    fn no_folder_comes_to_lie_below_itself() {
        let mut known = Known::new(1, 0).unwrap();
        assert!(known.insert(2, 1, name("a"), 0) && known.insert(3, 2, name("b"), 0));
        known.place(2, 3, name("circle"));
        known.place(1, 3, name("circle"));
        assert_eq!(known.path_of(3).unwrap(), PathBuf::from("a/b"));
    }

    #[test]
    fn a_forgotten_folder_does_not_take_the_name_of_its_successor() {
        let mut known = Known::new(1, 0).unwrap();
        assert!(known.insert(2, 1, name("a"), 0) && known.insert(3, 1, name("a"), 0));
        known.forget(2);
        assert!(known.detach(1, name("a")));
        assert_eq!(known.path_of(3), None);
    }
}
