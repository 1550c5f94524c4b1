//! Puts the entries of an archive into a tree.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use domain::{ImageCounts, ImageFormat, ImageReport};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags, fchmod, fsetxattr, linkat,
    mkdirat, mknodat, openat, symlinkat, utimensat,
};
use rustix::io::Errno;

use crate::bounds::{Bounds, Meter};
use crate::decompress::decompress;
use crate::entry::{Entry, Kind, Path};
use crate::error::{ImageError, Step};
use crate::tar::Archive;
use crate::tree::{self, Tree};
use crate::{furnish, layout};

/// Where the finished tree is, in the folder that an image was unpacked into.
pub const ROOT: &str = "root";

/// Where an archive is unpacked before it is known what it is.
const IN: &str = "in";

/// Unpacks an image into a folder, which must be empty: what a sandbox can stand on is in its
/// folder [`ROOT`] afterwards. When it fails, anything may be left in it.
///
/// The stream is read to its end also when nothing more is needed of it.
pub fn unpack(
    stream: impl Read,
    folder: &OwnedFd,
    bounds: Bounds,
) -> Result<ImageReport, ImageError> {
    let mut report = ImageReport::default();
    let incoming = new_folder(folder, IN)?;
    let meter = Meter::new(bounds);
    let stream = decompress(stream).map_err(|error| meter.explain(&error))?;
    let arrived = Tree::new(incoming, bounds);
    put_all(stream, &arrived, &meter, Whiteouts::Names, &mut report.counts)?;
    report.format = layout::recognise(&arrived)?;
    if report.format == ImageFormat::RootFileSystem {
        drop(arrived);
        rustix::fs::renameat(folder, IN, folder, ROOT).step("name", ROOT.as_bytes())?;
    } else {
        report.counts = ImageCounts::default();
        let root = Tree::new(new_folder(folder, ROOT)?, bounds);
        layout::unpack(&arrived, &root, &mut report)?;
        root.remove(folder, IN.as_bytes())?;
    }
    let root = tree::open_own_folder(folder, ROOT.as_bytes()).step("open", b"/")?;
    furnish::furnish(&Tree::new(root, bounds), &mut report)?;
    report.warn_of_drops();
    Ok(report)
}

fn new_folder(parent: &OwnedFd, name: &str) -> Result<OwnedFd, ImageError> {
    mkdirat(parent, name, Mode::RWXU).step("make", name.as_bytes())?;
    let folder = tree::open_own_folder(parent, name.as_bytes()).step("open", name.as_bytes())?;
    fchmod(&folder, Mode::from_raw_mode(0o755)).step("open to all", name.as_bytes())?;
    Ok(folder)
}

/// What names that begin with `.wh.` mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whiteouts {
    /// Nothing: they are names like others.
    Names,
    /// That something of an earlier layer is removed.
    Removals,
}

/// Puts all entries of a tar stream into a tree.
pub(crate) fn put_all(
    stream: impl Read,
    tree: &Tree,
    meter: &Meter,
    whiteouts: Whiteouts,
    counts: &mut ImageCounts,
) -> Result<(), ImageError> {
    let mut archive = Archive::new(stream, meter);
    let mut putting = Putting {
        tree,
        whiteouts,
        counts,
        own: HashSet::new(),
        closed: Vec::new(),
        buffer: vec![0; 64 << 10],
    };
    while let Some(entry) = archive.next()? {
        putting.put(&entry, &mut archive)?;
    }
    putting.finish()
}

/// More folders than this that even their owner may not write into has no system.
const MOST_CLOSED: usize = 100_000;

/// The names of `.wh.` files.
const REMOVED: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const OTHER_MARKS: &[u8] = b".wh..wh.";

struct Putting<'a> {
    tree: &'a Tree,
    whiteouts: Whiteouts,
    counts: &'a mut ImageCounts,
    /// What this layer brought, by number: no removal is meant for it.
    own: HashSet<u64>,
    /// Folders with the modes that they get once everything is in them.
    closed: Vec<(Path, Mode)>,
    buffer: Vec<u8>,
}

impl Putting<'_> {
    fn put<R: Read>(&mut self, entry: &Entry, archive: &mut Archive<R>) -> Result<(), ImageError> {
        let Some((parent, name)) = entry.path.split() else {
            // The root itself. Whatever else it claims to be, it is a folder.
            return Ok(());
        };
        if self.whiteouts == Whiteouts::Removals && name.starts_with(REMOVED) {
            return self.white_out(&parent, name);
        }
        match entry.kind {
            Kind::Device => return count(&mut self.counts.devices_dropped),
            Kind::Unknown => return count(&mut self.counts.unknown_dropped),
            _ => {}
        }
        let own = &mut self.own;
        let folder = self.tree.make_folder(&parent, &mut |made| {
            own.extend(tree::number_of(made));
        })?;
        let there = tree::look(&folder, name).step("look at", entry.path.bytes())?;
        if let Kind::HardLink { target } = &entry.kind {
            return self.link(&folder, name, &entry.path, target);
        }
        let stays = matches!(entry.kind, Kind::Folder)
            && there.as_ref().is_some_and(|stat| tree::kind_of(stat).is_dir());
        if there.is_some() && !stays {
            self.tree.remove(&folder, name)?;
        }
        match &entry.kind {
            Kind::File { size } => {
                self.counts.files += 1;
                self.counts.bytes += size;
                self.write(&folder, name, entry, archive)?;
            }
            Kind::Folder => {
                self.counts.folders += 1;
                self.make_folder(&folder, name, entry, stays)?;
            }
            Kind::Link { target } => {
                self.counts.links += 1;
                symlinkat(tree::text(target), &folder, name).step("make", entry.path.bytes())?;
                self.own(&folder, name, entry)?;
                date(&folder, name, entry);
            }
            Kind::Pipe => {
                let mode = Mode::from_raw_mode(entry.mode & 0o777);
                mknodat(&folder, name, FileType::Fifo, mode, 0).step("make", entry.path.bytes())?;
                self.own(&folder, name, entry)?;
            }
            Kind::Whiteout => return count(&mut self.counts.whiteouts),
            Kind::HardLink { .. } | Kind::Device | Kind::Unknown => {}
        }
        self.note(&folder, name)
    }

    fn write<R: Read>(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive<R>,
    ) -> Result<(), ImageError> {
        let path = entry.path.bytes();
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::RUSR | Mode::WUSR).step("make", path)?;
        let mut file = std::fs::File::from(file);
        loop {
            let read = archive.read(&mut self.buffer)?;
            if read == 0 {
                break;
            }
            file.write_all(&self.buffer[..read]).step("write", path)?;
        }
        self.own(folder, name, entry)?;
        if entry.mode & 0o6000 != 0 {
            self.counts.privileges_dropped += 1;
        }
        fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777)).step("set the mode of", path)?;
        self.set_attributes(&file, entry);
        date(folder, name, entry);
        Ok(())
    }

    fn make_folder(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        entry: &Entry,
        is_there: bool,
    ) -> Result<(), ImageError> {
        let path = entry.path.bytes();
        if !is_there {
            mkdirat(parent, name, Mode::RWXU).step("make", path)?;
        }
        let folder = tree::open_own_folder(parent, name).step("open", path)?;
        self.own(parent, name, entry)?;
        self.set_attributes(&folder, entry);
        // That of its group is about whose the files in it are, and gives nobody anything.
        let mode = Mode::from_raw_mode(entry.mode & 0o3777);
        if mode.contains(Mode::RWXU) {
            return fchmod(&folder, mode).step("set the mode of", path);
        }
        fchmod(&folder, mode | Mode::RWXU).step("set the mode of", path)?;
        if self.closed.len() >= MOST_CLOSED {
            let most = MOST_CLOSED as u64;
            return Err(ImageError::TooMuch { what: "folders that nobody may write to", most });
        }
        self.closed.push((entry.path.clone(), mode));
        Ok(())
    }

    /// One more name for a file that is there already.
    fn link(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        path: &Path,
        target: &Path,
    ) -> Result<(), ImageError> {
        let missing = "it is a hard link to what is not in the image before it, or is no file";
        let refused = || ImageError::refused(path.bytes(), missing);
        let (parent, target_name) = target.split().ok_or_else(refused)?;
        let parent = self.tree.folder(&parent).map_err(|_| refused())?;
        let found = tree::look(&parent, target_name).step("look at", target.bytes())?;
        let found = found.ok_or_else(refused)?;
        if !matches!(tree::kind_of(&found), FileType::RegularFile | FileType::Symlink) {
            return Err(refused());
        }
        let there = tree::look(folder, name).step("look at", path.bytes())?;
        if there.as_ref().is_some_and(|there| there.st_ino == found.st_ino) {
            return Ok(());
        }
        if there.is_some() {
            self.tree.remove(folder, name)?;
        }
        self.counts.hard_links += 1;
        match linkat(&parent, target_name, folder, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Err(refused()),
            linked => linked.step("link", path.bytes()),
        }?;
        self.note(folder, name)
    }

    fn white_out(&mut self, parent: &Path, mark: &[u8]) -> Result<(), ImageError> {
        let folder = match self.tree.folder(parent) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(error).step("open", parent.bytes()),
        };
        if mark == OPAQUE {
            self.counts.whiteouts += self.tree.clear(&folder, &self.own)?;
            return Ok(());
        }
        if mark.starts_with(OTHER_MARKS) {
            return count(&mut self.counts.unknown_dropped);
        }
        let name = &mark[REMOVED.len()..];
        if matches!(name, b"" | b"." | b"..") {
            let reason = "it removes what cannot be removed";
            return Err(ImageError::refused(parent.join(mark).bytes(), reason));
        }
        let there = tree::look(&folder, name).step("look at", name)?;
        if there.is_some_and(|stat| !self.own.contains(&stat.st_ino)) {
            self.tree.remove(&folder, name)?;
            self.counts.whiteouts += 1;
        }
        Ok(())
    }

    fn own(&mut self, folder: &OwnedFd, name: &[u8], entry: &Entry) -> Result<(), ImageError> {
        let owner = (entry.user, entry.group);
        if !tree::give_to(folder, name, owner).step("give away", entry.path.bytes())? {
            self.counts.owners_changed += 1;
        }
        Ok(())
    }

    /// Only what users may set themselves, and nothing that an overlay would take for its own.
    fn set_attributes(&mut self, file: impl AsFd, entry: &Entry) {
        for (name, value) in &entry.attributes {
            let is_users = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
            let set = || fsetxattr(&file, tree::text(name), value, XattrFlags::empty());
            if !is_users || name.contains(&0) || set().is_err() {
                self.counts.attributes_dropped += 1;
            }
        }
    }

    fn note(&mut self, folder: &OwnedFd, name: &[u8]) -> Result<(), ImageError> {
        if self.whiteouts == Whiteouts::Removals {
            let stat = tree::look(folder, name).step("look at", name)?;
            self.own.extend(stat.map(|stat| stat.st_ino));
        }
        Ok(())
    }

    fn finish(self) -> Result<(), ImageError> {
        // From the innermost out: a folder that is closed lets nobody to those in it.
        for (path, mode) in self.closed.iter().rev() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // A later entry may have put something else there.
            if let Ok(folder) = self.tree.open(path, flags) {
                fchmod(&folder, *mode).step("set the mode of", path.bytes())?;
            }
        }
        Ok(())
    }
}

/// A time that cannot be set is not worth a failure.
fn date(folder: &OwnedFd, name: &[u8], entry: &Entry) {
    let time = Timespec { tv_sec: entry.modified, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let _ = utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
}

#[expect(clippy::unnecessary_wraps, reason = "the end of several branches that can fail")]
fn count(counter: &mut u64) -> Result<(), ImageError> {
    *counter += 1;
    Ok(())
}
