//! Goes through a tree by descriptors to find something, within bounds.
//!
//! Links are not followed. Names of a folder are sorted by their bytes. Whatever is in the way
//! below the top (a folder that may not be read, one that goes away) is passed over. Down to
//! [`KEPT_OPEN`] levels a descriptor is kept for each folder; below that the way back is `..`,
//! which is only taken when it is the folder we came from.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::pattern::{Patterns, Places};

/// As long as one search takes.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);

/// As many names as are read for one search.
const MOST_ENTRIES: usize = 1_000_000;

/// As many bytes as are held of names still to be looked at.
const MOST_HELD: usize = 32 << 20;

/// Levels for which a descriptor is kept.
const KEPT_OPEN: usize = 64;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// What is searched for.
#[derive(Debug)]
pub(crate) struct Search {
    /// What is found.
    pub(crate) wanted: Patterns,
    /// What is not, nor anything below it.
    pub(crate) excluded: Patterns,
    /// When the search ends at the latest.
    pub(crate) deadline: Instant,
}

/// Something that was found.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// The folder that it is in.
    pub(crate) folder: BorrowedFd<'a>,
    /// Its name there.
    pub(crate) name: &'a OsStr,
    /// Its path from the top on.
    pub(crate) path: &'a OsStr,
    /// What it is.
    pub(crate) kind: FileType,
}

/// Goes through the folder `top`, and tells whether there may be more than was found.
pub(crate) fn walk(
    top: OwnedFd,
    search: &Search,
    mut take: impl FnMut(&Found<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    let mut walk = Walk { entries_left: MOST_ENTRIES, held: 0, is_cut_short: false };
    let mut path: Vec<u8> = Vec::new();
    let first = walk.enter(top, search.wanted.start(), search.excluded.start(), 0)?;
    let mut levels = vec![first];
    while let Some(level) = levels.last_mut() {
        if Instant::now() >= search.deadline {
            return Ok(true);
        }
        let Some(span) = level.spans.pop() else {
            if !walk.leave(&mut levels) {
                return Ok(true);
            }
            continue;
        };
        let Some(folder) = &level.folder else { return Ok(true) };
        let bytes = &level.text[span.begin as usize..][..usize::from(span.length)];
        let name = OsStr::from_bytes(bytes);
        path.truncate(level.path_length);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(bytes);
        let shown = name.to_string_lossy();
        let (is_excluded, excluded) = search.excluded.step(&level.excluded, &shown);
        if is_excluded {
            continue;
        }
        let (is_wanted, wanted) = search.wanted.step(&level.wanted, &shown);
        let is_open = !wanted.is_empty();
        if !is_wanted && !is_open {
            continue;
        }
        let Some(kind) = span.kind.or_else(|| kind_of(folder.as_fd(), name)) else { continue };
        if is_wanted {
            let path = OsStr::from_bytes(&path);
            if take(&Found { folder: folder.as_fd(), name, path, kind }).is_break() {
                return Ok(true);
            }
        }
        if kind != FileType::Directory || !is_open {
            continue;
        }
        let Ok(below) = rustix::fs::openat(folder, name, OPEN, Mode::empty()) else { continue };
        let Ok(below) = walk.enter(below, wanted, excluded, path.len()) else { continue };
        if levels.len() > KEPT_OPEN
            && let Some(level) = levels.last_mut()
        {
            level.folder = None;
        }
        levels.push(below);
    }
    Ok(walk.is_cut_short)
}

struct Walk {
    entries_left: usize,
    held: usize,
    /// Some names were left out.
    is_cut_short: bool,
}

/// A folder that is gone through.
struct Level {
    folder: Option<OwnedFd>,
    /// Device and number, by which the folder is known again.
    identity: (u64, u64),
    /// All names, one after the other: a million names of their own would take far more room.
    text: Vec<u8>,
    /// Where they are in it, the next one last.
    spans: Vec<Span>,
    wanted: Places,
    excluded: Places,
    /// How long the path of the folder is.
    path_length: usize,
}

#[derive(Clone, Copy)]
struct Span {
    begin: u32,
    length: u16,
    /// None where the file system does not tell.
    kind: Option<FileType>,
}

impl Level {
    fn held(&self) -> usize {
        self.text.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

impl Walk {
    fn enter(
        &mut self,
        folder: OwnedFd,
        wanted: Places,
        excluded: Places,
        path_length: usize,
    ) -> Result<Level, Errno> {
        let stat = rustix::fs::fstat(&folder)?;
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        for entry in Dir::read_from(&folder)? {
            // What cannot be read to its end is read as far as it can be.
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let held = self.held + text.len() + spans.len() * size_of::<Span>();
            let begin = u32::try_from(text.len()).ok().filter(|_| held < MOST_HELD);
            let (Some(begin), Ok(length)) = (begin, u16::try_from(name.len())) else {
                self.is_cut_short = true;
                break;
            };
            let Some(left) = self.entries_left.checked_sub(1) else {
                self.is_cut_short = true;
                break;
            };
            self.entries_left = left;
            let kind = Some(entry.file_type()).filter(|kind| *kind != FileType::Unknown);
            text.extend_from_slice(name);
            spans.push(Span { begin, length, kind });
        }
        let name = |span: &Span| &text[span.begin as usize..][..usize::from(span.length)];
        spans.sort_unstable_by(|one, other| name(other).cmp(name(one)));
        text.shrink_to_fit();
        spans.shrink_to_fit();
        let identity = (stat.st_dev, stat.st_ino);
        let folder = Some(folder);
        let level = Level { folder, identity, text, spans, wanted, excluded, path_length };
        self.held += level.held();
        Ok(level)
    }

    /// Goes back to the folder above; says no when there is no way.
    fn leave(&mut self, levels: &mut Vec<Level>) -> bool {
        let Some(done) = levels.pop() else { return true };
        self.held = self.held.saturating_sub(done.held());
        let Some(above) = levels.last_mut().filter(|above| above.folder.is_none()) else {
            return true;
        };
        let Some(folder) = done.folder else { return false };
        let opened = rustix::fs::openat(&folder, "..", OPEN, Mode::empty());
        // The folder was moved away while we were in it: up there is not our tree.
        let known = opened.ok().filter(|up| {
            rustix::fs::fstat(up).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == above.identity)
        });
        above.folder = known;
        above.folder.is_some()
    }
}

fn kind_of(folder: BorrowedFd<'_>, name: &OsStr) -> Option<FileType> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}
