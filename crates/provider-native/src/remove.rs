//! Removes folders whose contents a sandbox chose.
//!
//! The usual way goes down one call and one descriptor for each level, and a sandbox can make
//! more levels than there are of either. So nothing is ever more than one level down here: a
//! folder that is not empty has its own folders moved up to the top, where their turn comes.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// Removes a file, or a folder with all that is in it. Nothing to remove is a success.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match openat(CWD, path, flags, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return fs::remove_file(path),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0;
    each(&top, |name, is_folder| {
        if !is_folder {
            return unlinkat(&top, name, AtFlags::empty());
        }
        match unlinkat(&top, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            done => return done,
        }
        let folder = openat(&top, name, flags, Mode::empty())?;
        each(&folder, |inner, is_folder| {
            if is_folder {
                move_up(&folder, inner, &top, &mut moved)
            } else {
                unlinkat(&folder, inner, AtFlags::empty())
            }
        })?;
        unlinkat(&top, name, AtFlags::REMOVEDIR)
    })?;
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves a folder to the top, under a name that nothing has.
fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match renameat_with(from, name, top, &free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done,
        }
    }
}

/// Calls for each entry until there is none: with its name, and whether it is a folder.
fn each(
    folder: impl AsFd,
    mut act: impl FnMut(&CStr, bool) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    loop {
        let mut found = false;
        // Opened anew, because what changes while it is read may be passed over.
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found = true;
            let is_folder = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode).is_dir()
                }
                _ => false,
            };
            match act(name, is_folder) {
                // Somebody else removes a part of it.
                Err(Errno::NOENT) => {}
                done => done?,
            }
        }
        if !found {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_may_remove_the_same_at_one_time() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let tree = folder.path().join(round.to_string());
            fs::create_dir_all(tree.join("awoken")).unwrap();
            for name in 0..100 {
                fs::write(tree.join(format!("awoken/{name}")), "").unwrap();
            }
            std::thread::scope(|scope| {
                let part = scope.spawn(|| remove(&tree.join("awoken")));
                remove(&tree).unwrap();
                part.join().unwrap().unwrap();
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("moved-1/file")).unwrap();
        fs::write(tree.join("moved-1/file/text"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", tree.join("link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, &tree, flags, Mode::empty()).unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        for _ in 0..limit.current.unwrap_or(0).clamp(3000, 30_000) {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove(&tree).unwrap();
        assert!(!tree.exists() && Path::new("/etc/passwd").exists());
    }

    #[test]
    fn a_file_is_removed_and_nothing_is_a_success() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert!(!file.exists());
    }
}
