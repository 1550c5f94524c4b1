//! The folders of one watcher and what the kernel says about them.
//!
//! inotify watches single folders. To watch a tree, every folder in it is watched, and one that
//! appears is added when its parent tells of it. What was made in it before that moment has left
//! no event, so the folder is read once after its watch is in place, and everything in it is told
//! as made. What was made between the two is both read and told by the kernel: such a second
//! telling is left out.
//!
//! A folder that is moved out of the tree is a *stray*: nothing is told of it, and its watches go
//! when it does not come back at once.
//!
//! All calls may wait for a disk.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use guest_proto::filesystem::EventType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::kinds::{APPEARS_OR_GOES, Kind, is_network, kind_of, tell};
use super::known::{Known, MOST_FOLDERS, MOST_FOLDERS_OF_ALL, Watch};
use super::lock;
use super::queue::Queue;
use crate::files::error::FileError;

/// The most entries that are read because one folder appeared.
const MOST_READ: usize = 100_000;

/// As many entries as were found by looking and may be told of by the kernel once more. Whoever
/// keeps the kernel talking would otherwise let this grow for ever.
const MOST_FOUND: usize = 16_384;

/// How many events are taken before others get their turn.
const MOST_AT_ONCE: usize = 1 << 14;

/// What is asked for from the kernel: what the protocol can tell, and the folder's own end.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What is watched, and how.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) root: PathBuf,
    pub(super) recursive: bool,
    pub(super) allow_network: bool,
}

/// The watched folders.
#[derive(Debug)]
pub(super) struct Tree {
    wish: Wish,
    kernel: Arc<OwnedFd>,
    known: Known,
    /// What was told because it was found, and may be in the kernel's queue as well.
    found: HashSet<(Watch, Arc<OsStr>)>,
    /// Whether folders were moved out since the queue was last empty, and before that.
    has_strays: bool,
    had_strays: bool,
}

impl Tree {
    /// Begins to watch.
    pub(super) fn open(wish: Wish, queue: &Mutex<Queue>) -> Result<Self, FileError> {
        let path = &wish.root;
        let not_a_folder =
            || FileError::invalid(format!("path '{}' is not a directory", path.display()));
        let failed = |errno| match errno {
            Errno::NOTDIR => not_a_folder(),
            Errno::NOSPC | Errno::MFILE | Errno::NOMEM => too_many(),
            errno => FileError::from_errno(errno, path),
        };
        let stat = rustix::fs::stat(path).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(not_a_folder());
        }
        if !wish.allow_network
            && rustix::fs::statfs(path).is_ok_and(|found| is_network(found.f_type))
        {
            return Err(FileError::invalid(format!(
                "path '{}' is on a network file system, whose changes are not all seen here; \
                 allow network mounts to watch it all the same",
                path.display()
            )));
        }
        let kernel = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(failed)?;
        let root = inotify::add_watch(&kernel, path, EVENTS).map_err(failed)?;
        let known = Known::new(root, stat.st_dev).ok_or_else(too_many)?;
        let kernel = Arc::new(kernel);
        let found = HashSet::new();
        let mut tree = Self { wish, kernel, known, found, has_strays: false, had_strays: false };
        if tree.wish.recursive && !tree.walk(root, PathBuf::new(), Walk::Begin, queue) {
            return Err(too_many());
        }
        Ok(tree)
    }

    /// The kernel's queue, to be waited on.
    pub(super) fn kernel(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.kernel)
    }

    /// Takes what the kernel has to say. Says whether there may be more at once.
    pub(super) fn drain(&mut self, queue: &Mutex<Queue>) -> bool {
        let kernel = self.kernel();
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let mut reader = Reader::new(&*kernel, &mut buffer);
        let mut taken = 0;
        while taken < MOST_AT_ONCE || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => {
                    let name =
                        event.file_name().map(|name| Arc::from(OsStr::from_bytes(name.to_bytes())));
                    self.take(event.wd(), event.events(), name, queue);
                }
                Err(Errno::INTR) => {}
                // Nothing more for now, or for ever.
                Err(_) => {
                    self.settle();
                    return false;
                }
            }
            taken += 1;
        }
        true
    }

    fn take(
        &mut self,
        watch: Watch,
        flags: ReadFlags,
        name: Option<Arc<OsStr>>,
        queue: &Mutex<Queue>,
    ) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            lock(queue).lose(None);
            if self.wish.recursive {
                self.renew(queue);
            }
            return;
        }
        if flags.contains(ReadFlags::IGNORED) {
            return self.known.forget(watch);
        }
        let Some(folder) = self.known.path_of(watch) else { return };
        let Some(name) = name else {
            // Of a folder below the root its parent tells the same.
            if watch == self.known.root {
                tell(queue, Path::new("."), flags);
            }
            return;
        };
        let appears = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        if !self.found.is_empty() && flags.intersects(APPEARS_OR_GOES) {
            let was_found = self.found.remove(&(watch, Arc::clone(&name)));
            if was_found && appears {
                return;
            }
        }
        let path = folder.join(&*name);
        tell(queue, &path, flags);
        if !self.wish.recursive || !flags.contains(ReadFlags::ISDIR) {
            return;
        }
        if appears {
            if let Some(Added::New(new)) = self.add(watch, name, &path, queue) {
                self.walk(new, path, Walk::Appeared, queue);
            }
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            self.has_strays |= self.known.detach(watch, name);
        }
    }

    /// Watches one folder.
    fn add(
        &mut self,
        parent: Watch,
        name: Arc<OsStr>,
        path: &Path,
        queue: &Mutex<Queue>,
    ) -> Option<Added> {
        let full = self.wish.root.join(path);
        let watch = match inotify::add_watch(&self.kernel, &full, EVENTS | WatchFlags::DONT_FOLLOW)
        {
            Ok(watch) => watch,
            // Gone again, or a link by now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return None,
            Err(_) => {
                lock(queue).lose(None);
                return None;
            }
        };
        if self.known.device(watch).is_some() {
            self.known.place(watch, parent, name);
            return Some(Added::Known(watch));
        }
        let device = self.device_to_watch(parent, &full);
        if let Some(device) = device
            && self.known.insert(watch, parent, name, device)
        {
            return Some(Added::New(watch));
        }
        // It was made just now, so nobody else knows of it; it may have gone by itself.
        let _ = inotify::remove_watch(&self.kernel, watch);
        if device.is_some() {
            lock(queue).lose(None);
        }
        None
    }

    /// The device of a folder that may be watched.
    fn device_to_watch(&self, parent: Watch, full: &Path) -> Option<u64> {
        let stat = rustix::fs::lstat(full).ok()?;
        let is_the_same = self.known.device(parent) == Some(stat.st_dev);
        let is_allowed = is_the_same
            || self.wish.allow_network
            || rustix::fs::statfs(full).is_ok_and(|found| !is_network(found.f_type));
        is_allowed.then_some(stat.st_dev)
    }

    /// Reads a watched folder and watches those below it. Says whether all of it was read.
    fn walk(&mut self, from: Watch, path: PathBuf, walk: Walk, queue: &Mutex<Queue>) -> bool {
        let mut seen = HashSet::from([from]);
        let mut rest = vec![(from, path)];
        let mut read = 0;
        while let Some((watch, path)) = rest.pop() {
            // Only the root may be a link.
            let flags =
                if watch == self.known.root { OPEN.difference(OFlags::NOFOLLOW) } else { OPEN };
            let full = self.wish.root.join(&path);
            let Ok(opened) = rustix::fs::open(full, flags, Mode::empty()) else { continue };
            let Ok(entries) = Dir::read_from(&opened) else { continue };
            for entry in entries.flatten() {
                let name: Arc<OsStr> = Arc::from(OsStr::from_bytes(entry.file_name().to_bytes()));
                if &*name == "." || &*name == ".." {
                    continue;
                }
                read += 1;
                if read > MOST_READ && walk == Walk::Appeared {
                    lock(queue).lose(None);
                    return false;
                }
                let path = path.join(&*name);
                let kind = kind_of(&opened, &entry, walk == Walk::Appeared);
                if walk == Walk::Appeared {
                    let mut queue = lock(queue);
                    let shown = path.to_string_lossy();
                    queue.push(&shown, EventType::EVENT_TYPE_CREATE);
                    if kind == Kind::Full {
                        queue.push(&shown, EventType::EVENT_TYPE_WRITE);
                    }
                    if self.found.len() >= MOST_FOUND {
                        queue.lose(None);
                        self.found.clear();
                    }
                    self.found.insert((watch, Arc::clone(&name)));
                }
                if kind != Kind::Folder {
                    continue;
                }
                match self.add(watch, name, &path, queue) {
                    Some(Added::New(below)) => {
                        seen.insert(below);
                        rest.push((below, path));
                    }
                    Some(Added::Known(below)) if walk == Walk::Renew && seen.insert(below) => {
                        rest.push((below, path));
                    }
                    None if walk == Walk::Begin && self.known.is_full() => {
                        return false;
                    }
                    Some(Added::Known(_)) | None => {}
                }
            }
        }
        if walk == Walk::Renew {
            self.drop_watches(|_, watch| !seen.contains(&watch));
        }
        true
    }

    /// Finds out again what is there, after events were lost.
    fn renew(&mut self, queue: &Mutex<Queue>) {
        self.found.clear();
        self.walk(self.known.root, PathBuf::new(), Walk::Renew, queue);
    }

    /// What is to be done when the kernel has nothing more to say.
    fn settle(&mut self) {
        self.found = HashSet::new();
        // A move has two events, and the second may be on its way: strays get one more round.
        if std::mem::take(&mut self.had_strays) {
            self.drop_watches(|tree, watch| tree.known.path_of(watch).is_none());
        }
        self.had_strays = std::mem::take(&mut self.has_strays);
    }

    fn drop_watches(&mut self, is_over: impl Fn(&Self, Watch) -> bool) {
        let mut over = self.known.watches();
        over.retain(|watch| is_over(self, *watch));
        for watch in over {
            // It may have gone by itself.
            let _ = inotify::remove_watch(&self.kernel, watch);
            self.known.forget(watch);
        }
    }
}

/// What came of watching a folder.
enum Added {
    New(Watch),
    Known(Watch),
}

/// Why a tree is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// It is there before the watcher: nothing of it is told.
    Begin,
    /// It appeared in the watched tree: all in it is told.
    Appeared,
    /// Events were lost: nothing is told, and every folder is looked at.
    Renew,
}

fn too_many() -> FileError {
    FileError::in_the_way(format!(
        "no more directories can be watched: a watcher has at most {MOST_FOLDERS} of them, and \
         all watchers {MOST_FOLDERS_OF_ALL}; watch one further down, or end other watchers"
    ))
}
