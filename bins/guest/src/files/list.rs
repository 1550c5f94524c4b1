//! Lists a folder, or a tree down to a depth.
//!
//! The order is that of a walk in which every folder's names are sorted by their bytes and a
//! folder comes right before what is in it. The answer is one message, so it has limits: a folder
//! of a million files is refused with a sentence instead of taking the guest's memory. Entries are
//! handed on one by one, so nothing but names is held here.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use guest_proto::filesystem::{EntryInfo, FileType as EntryType};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::entry;
use super::error::FileError;
use crate::users::Names;

/// The most entries of one listing.
pub(crate) const MOST_ENTRIES: usize = 200_000;

/// The most bytes of names that are read in one listing.
const MOST_TEXT: usize = 16 << 20;

/// The deepest that one listing goes. A descriptor is open for every level.
const DEEPEST: usize = 128;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Lists what is in `path`, `depth` levels deep; 0 is taken as 1.
///
/// A link in place of the folder is followed, and links below it are not. Every entry goes to
/// `take`, which may end the listing.
pub(crate) fn list(
    path: &Path,
    depth: u32,
    take: impl FnMut(EntryInfo) -> Result<(), FileError>,
) -> Result<(), FileError> {
    list_at_most(path, depth, MOST_ENTRIES, take)
}

fn list_at_most(
    path: &Path,
    depth: u32,
    most: usize,
    mut take: impl FnMut(EntryInfo) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let depth = usize::try_from(depth).unwrap_or(usize::MAX);
    let folder = rustix::fs::open(path, OPEN, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR => FileError::not_a_directory(path),
        errno => FileError::from_errno(errno, path),
    })?;
    let mut walk = Walk { root: path, names: Names::read(), found: 0, text: 0, most };
    let mut levels = vec![walk.enter(folder, path.to_path_buf())?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.rest.pop() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(&name);
        let Some(entry) = walk.describe(level, &name, &path)? else { continue };
        let is_folder =
            entry.r#type == EntryType::FILE_TYPE_DIRECTORY && entry.symlink_target.is_none();
        take(entry)?;
        if !is_folder || levels.len() >= depth {
            continue;
        }
        if levels.len() >= DEEPEST {
            return Err(FileError::in_the_way(format!(
                "'{}' is more than {DEEPEST} directories deep; list one further down",
                walk.root.display()
            )));
        }
        let level = levels.last().map(|level| level.folder.as_fd());
        let Some(parent) = level else { break };
        match rustix::fs::openat(parent, &name, OPEN | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(folder) => levels.push(walk.enter(folder, path)?),
            // Gone, or exchanged for something else, since it was described.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(FileError::from_errno(errno, &path)),
        }
    }
    Ok(())
}

/// A listing on its way.
struct Walk<'a> {
    root: &'a Path,
    names: Names,
    found: usize,
    text: usize,
    most: usize,
}

/// A folder whose entries are being told.
struct Level {
    folder: OwnedFd,
    path: PathBuf,
    /// The names still to be told, the next one last.
    rest: Vec<OsString>,
}

impl Walk<'_> {
    /// Reads the names of a folder, no more than the listing may still have.
    fn enter(&mut self, folder: OwnedFd, path: PathBuf) -> Result<Level, FileError> {
        let failed = |errno| FileError::from_errno(errno, &path);
        let mut rest = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let name = match entry {
                Ok(entry) => entry.file_name().to_bytes().to_vec(),
                // A process that ended while its folder in /proc was read.
                Err(Errno::NOENT | Errno::SRCH) => break,
                Err(errno) => return Err(failed(errno)),
            };
            if name != b"." && name != b".." {
                self.text += name.len();
                rest.push(OsString::from_vec(name));
            }
            if self.found + rest.len() > self.most || self.text > MOST_TEXT {
                return Err(self.too_large());
            }
        }
        rest.sort_unstable_by(|one, other| other.cmp(one));
        Ok(Level { folder, path, rest })
    }

    /// Describes one entry; `None` when it has gone.
    fn describe(
        &mut self,
        level: &Level,
        name: &OsString,
        path: &Path,
    ) -> Result<Option<EntryInfo>, FileError> {
        let found = entry::describe_at(level.folder.as_fd(), Path::new(name), path, &self.names);
        let entry = match found {
            Ok(entry) => entry,
            Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(FileError::from_errno(errno, path)),
        };
        self.found += 1;
        if self.found > self.most {
            return Err(self.too_large());
        }
        Ok(Some(entry))
    }

    fn too_large(&self) -> FileError {
        FileError::in_the_way(format!(
            "'{}' has more than {} entries or {} MiB of names; list parts of it, or use a command such as find",
            self.root.display(),
            self.most,
            MOST_TEXT >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::error::FileErrorKind;
    use super::*;

    fn listed(path: &Path, depth: u32, most: usize) -> Result<Vec<EntryInfo>, FileError> {
        let mut entries = Vec::new();
        list_at_most(path, depth, most, |entry| {
            entries.push(entry);
            Ok(())
        })?;
        Ok(entries)
    }

    fn list(path: &Path, depth: u32) -> Result<Vec<EntryInfo>, FileError> {
        listed(path, depth, MOST_ENTRIES)
    }

    fn paths(root: &Path, depth: u32) -> Vec<String> {
        let entries = list(root, depth).unwrap();
        let relative = |entry: EntryInfo| {
            Path::new(&entry.path).strip_prefix(root).unwrap().to_str().unwrap().to_owned()
        };
        entries.into_iter().map(relative).collect()
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b/d/e", "a", "Z", "b.txt"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("b/c"), "").unwrap();
        symlink("b", folder.path().join("link")).unwrap();
        folder
    }

    #[test]
    fn names_are_sorted_and_a_folder_comes_before_what_is_in_it() {
        let tree = tree();
        let one = ["Z", "a", "b", "b.txt", "link"];
        assert_eq!(paths(tree.path(), 1), one);
        assert_eq!(paths(tree.path(), 0), one);
        let two = ["Z", "a", "b", "b/c", "b/d", "b.txt", "link"];
        assert_eq!(paths(tree.path(), 2), two);
        let all = ["Z", "a", "b", "b/c", "b/d", "b/d/e", "b.txt", "link"];
        assert_eq!(paths(tree.path(), u32::MAX), all);
    }

    #[test]
    fn a_link_as_the_folder_is_followed_and_paths_stay_below_it() {
        let tree = tree();
        let link = tree.path().join("link");
        assert_eq!(paths(&link, 1), ["c", "d"]);
        let entries = list(&link, 1).unwrap();
        assert_eq!(Path::new(&entries[0].path), link.join("c"));
    }

    #[test]
    fn what_is_not_a_folder_or_not_there_is_told_apart() {
        let tree = tree();
        let error = list(&tree.path().join("b/c"), 1).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::NotADirectory);
        let error = list(&tree.path().join("none"), 1).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::NotFound);
    }

    #[test]
    fn a_listing_that_is_too_large_is_refused_and_one_at_the_limit_is_not() {
        let tree = tree();
        assert_eq!(listed(tree.path(), 9, 8).unwrap().len(), 8);
        for (depth, most) in [(9, 7), (1, 4)] {
            let error = listed(tree.path(), depth, most).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::InTheWay);
            assert!(error.message.contains(&format!("more than {most} entries")), "{error}");
        }
    }

    #[test]
    fn no_more_names_are_held_than_may_be_told() {
        let tree = tree();
        let enter = |most| {
            let names = Names::default();
            let mut walk = Walk { root: tree.path(), names, found: 0, text: 0, most };
            let folder = rustix::fs::open(tree.path(), OPEN, Mode::empty()).unwrap();
            walk.enter(folder, tree.path().to_path_buf()).map(|level| level.rest.len())
        };
        assert_eq!(enter(5).unwrap(), 5);
        assert_eq!(enter(4).unwrap_err().kind, FileErrorKind::InTheWay);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("d/".repeat(DEEPEST + 2))).unwrap();
        let deep = u32::try_from(DEEPEST).unwrap();
        assert_eq!(list(folder.path(), deep).unwrap().len(), DEEPEST);
        let error = list(folder.path(), u32::MAX).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::InTheWay);
        assert!(error.message.contains("128 directories deep"), "{error}");
    }

    #[test]
    fn a_name_that_is_not_text_does_not_hide_the_others() {
        let tree = tree();
        let strange = OsString::from_vec(b"\xff\xfe".to_vec());
        fs::write(tree.path().join(strange), "").unwrap();
        fs::write(tree.path().join("new\nline"), "").unwrap();
        let found = paths(tree.path(), 1);
        assert_eq!(found, ["Z", "a", "b", "b.txt", "link", "new\nline", "\u{fffd}\u{fffd}"]);
    }
}
