//! Making symbolic links.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;

use super::{FileError, temporary_name};

/// Makes a link that says `text`, in the place of what is there unless that is a folder.
pub(crate) fn make(path: &Path, text: &OsStr) -> Result<(), FileError> {
    let failed = |errno| FileError::from_errno(errno, path);
    match rustix::fs::symlink(text, path) {
        Err(Errno::EXIST) => {}
        made => return made.map_err(failed),
    }
    let there = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
        return Err(failed(Errno::ISDIR));
    }
    // Whoever looks in between finds the old one or the new one.
    let temporary = path.with_file_name(temporary_name(OsStr::new("link")));
    rustix::fs::symlink(text, &temporary).map_err(failed)?;
    rustix::fs::rename(&temporary, path).map_err(|errno| {
        // What is left of it then is an odd name at the most.
        let _ = rustix::fs::unlink(&temporary);
        failed(errno)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_link_replaces_a_file_and_a_link_but_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OsStr::from_bytes(b"link\xff"));
        for text in [&b"nowhere"[..], b"\xfe/x", b"."] {
            make(&path, OsStr::from_bytes(text)).unwrap();
            assert_eq!(fs::read_link(&path).unwrap().as_os_str().as_bytes(), text);
        }
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        make(&file, OsStr::new("elsewhere")).unwrap();
        assert_eq!(fs::read_link(&file).unwrap(), Path::new("elsewhere"));
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert!(make(&inner, OsStr::new("x")).is_err());
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "something is left");
    }
}
