//! Copies a file or a tree for a user.
//!
//! The copy is made beside its place under another name and put into it by a `rename`, so nobody
//! sees half of it, and what failed is removed.

use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::copy::{self, Manner, Names};
use super::entry;
use super::error::FileError;
use super::relocate::{Existing, Place};
use super::remove;
use crate::users::User;

/// Copies `source` to `destination`, whose missing parents are made and given to the user.
pub(crate) fn duplicate(
    source: &Path,
    destination: &Path,
    user: &User,
    recursive: bool,
    existing: Existing,
) -> Result<(), FileError> {
    let (from, name) = remove::open_parent(source)?;
    let failed = |errno| FileError::from_errno(errno, source);
    let stat = rustix::fs::statat(&from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if is_folder && !recursive {
        return Err(FileError::in_the_way(format!(
            "'{}' is a directory; copy it recursively to copy all in it",
            source.display()
        )));
    }
    let names = Names { source, destination };
    let place = Place::open(names, user, existing)?;
    place.refuse_existing()?;
    if is_folder {
        // Links on either way do not hide it. Should the folders be moved meanwhile, the copy
        // itself notices when it meets itself.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&from, name, flags, Mode::empty()).map_err(failed)?;
        let (folder, above) = (entry::path_of(&folder), entry::path_of(&place.folder));
        if let (Ok(folder), Ok(above)) = (folder, above)
            && above.starts_with(folder)
        {
            return Err(copy::into_itself(names));
        }
    }
    place.put_copy(&from, name, Manner::Copy)
}
