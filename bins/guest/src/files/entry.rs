//! What a path names: the `EntryInfo` of the protocol.
//!
//! A symbolic link is described as in E2B's agent 0.6.13: type, mode and size are those of what
//! it leads to, `symlink_target` is where that is, permissions, owner and time are the link's own.
//! A link that leads nowhere has the type `FILE_TYPE_SYMLINK` and the text of the link as target.
//!
//! Names that are not UTF-8 cannot be told in E2B's protocol: their stray bytes are shown as
//! U+FFFD, so that one such file does not hide the rest of its folder. Such a path is told as bytes
//! besides, and so is what a link says.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use buffa_types::google::protobuf::Timestamp;
use guest_proto::filesystem::{EntryInfo, FileType as EntryType};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::metadata;
use crate::users::Names;

/// The moments that a protobuf timestamp can tell: the years 1 to 9999. One file from beyond
/// must not make a whole listing impossible to encode.
const MOMENTS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Describes what `path` names, without following it if it is a link.
pub(crate) fn describe(path: &Path, names: &Names) -> Result<EntryInfo, Errno> {
    describe_at(CWD, path, path, names)
}

/// Describes what `path`, taken from `folder`, names; `shown` is the path that the caller knows.
pub(crate) fn describe_at(
    folder: BorrowedFd<'_>,
    path: &Path,
    shown: &Path,
    names: &Names,
) -> Result<EntryInfo, Errno> {
    let stat = rustix::fs::statat(folder, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mut entry = EntryInfo {
        name: shown.file_name().unwrap_or(OsStr::new("/")).to_string_lossy().into_owned(),
        path: shown.to_string_lossy().into_owned(),
        path_bytes: shown.to_str().is_none().then(|| shown.as_os_str().as_bytes().to_vec()),
        permissions: permissions(stat.st_mode),
        owner: names.user(stat.st_uid),
        group: names.group(stat.st_gid),
        modified_time: modified(&stat).into(),
        ..EntryInfo::default()
    };
    if kind != FileType::Symlink {
        entry.r#type = entry_type(kind).into();
        entry.mode = stat.st_mode & 0o777;
        entry.size = stat.st_size;
        if kind == FileType::RegularFile || kind == FileType::Directory {
            entry.metadata = metadata::of_path(shown).into_iter().collect();
        }
        return Ok(entry);
    }
    let text = rustix::fs::readlinkat(folder, path, Vec::new()).ok();
    entry.link_text = text.as_ref().map(|text| text.as_bytes().to_vec());
    if let Some((target, stat)) = follow(folder, path) {
        entry.r#type = entry_type(FileType::from_raw_mode(stat.st_mode)).into();
        entry.mode = stat.st_mode & 0o777;
        entry.size = stat.st_size;
        entry.symlink_target = Some(target.to_string_lossy().into_owned());
    } else {
        entry.r#type = EntryType::FILE_TYPE_SYMLINK.into();
        entry.symlink_target = text.map(|text| text.to_string_lossy().into_owned());
    }
    Ok(entry)
}

/// Where a descriptor lies, by name.
pub(crate) fn path_of(descriptor: impl AsFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    let text = rustix::fs::readlink(link, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes())))
}

/// What a link leads to. One descriptor answers both questions, so that a link which is changed
/// in between cannot mix the answers; `O_PATH` opens nothing, so a pipe or device is harmless.
fn follow(folder: BorrowedFd<'_>, path: &Path) -> Option<(PathBuf, Stat)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let target = rustix::fs::openat(folder, path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&target).ok()?;
    Some((path_of(&target).ok()?, stat))
}

fn entry_type(kind: FileType) -> EntryType {
    match kind {
        FileType::RegularFile => EntryType::FILE_TYPE_FILE,
        FileType::Directory => EntryType::FILE_TYPE_DIRECTORY,
        FileType::Symlink => EntryType::FILE_TYPE_SYMLINK,
        _ => EntryType::FILE_TYPE_UNSPECIFIED,
    }
}

fn modified(stat: &Stat) -> Timestamp {
    let seconds = stat.st_mtime.clamp(*MOMENTS.start(), *MOMENTS.end());
    let nanos = i32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamp { seconds, nanos, ..Timestamp::default() }
}

/// The mode as Go's `FileMode` writes it, which is what the clients compare with.
fn permissions(mode: u32) -> String {
    let mut text = String::with_capacity(11);
    text.push_str(match FileType::from_raw_mode(mode) {
        FileType::Directory => "d",
        FileType::Symlink => "L",
        FileType::BlockDevice | FileType::CharacterDevice => "D",
        FileType::Fifo => "p",
        FileType::Socket => "S",
        _ => "",
    });
    if mode & 0o4000 != 0 {
        text.push('u');
    }
    if mode & 0o2000 != 0 {
        text.push('g');
    }
    if FileType::from_raw_mode(mode) == FileType::CharacterDevice {
        text.push('c');
    }
    if mode & 0o1000 != 0 {
        text.push('t');
    }
    if text.is_empty() {
        text.push('-');
    }
    for (index, letter) in "rwxrwxrwx".chars().enumerate() {
        let is_set = mode & (0o400 >> index) != 0;
        text.push(if is_set { letter } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn described(path: &Path) -> EntryInfo {
        describe(path, &Names::read()).unwrap()
    }

    #[test]
    fn permissions_are_written_as_go_writes_them() {
        for (mode, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o104_755, "urwxr-xr-x"),
            (0o102_755, "grwxr-xr-x"),
            (0o020_666, "Dcrw-rw-rw-"),
            (0o060_660, "Drw-rw----"),
            (0o010_600, "prw-------"),
            (0o140_755, "Srwxr-xr-x"),
            (0o100_000, "----------"),
        ] {
            assert_eq!(permissions(mode), text, "{mode:o}");
        }
    }

    #[test]
    fn a_file_tells_its_size_mode_and_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("données 😀.txt");
        fs::write(&path, "hello").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let entry = described(&path);
        assert_eq!(entry.name, "données 😀.txt");
        assert_eq!(Path::new(&entry.path), path);
        assert_eq!(entry.r#type, EntryType::FILE_TYPE_FILE);
        assert_eq!((entry.size, entry.mode), (5, 0o640));
        assert_eq!(entry.permissions, "-rw-r-----");
        assert_eq!(entry.owner, Names::read().user(rustix::process::getuid().as_raw()));
        assert_eq!(entry.symlink_target, None);
        assert!(entry.modified_time.seconds > 1_600_000_000);
    }

    #[test]
    fn a_link_tells_what_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::write(root.join("target"), "hello").unwrap();
        fs::set_permissions(root.join("target"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink("target", root.join("link")).unwrap();
        let entry = described(&root.join("link"));
        assert_eq!(entry.r#type, EntryType::FILE_TYPE_FILE);
        assert_eq!((entry.size, entry.mode), (5, 0o600));
        assert_eq!(entry.permissions, "Lrwxrwxrwx");
        assert_eq!(entry.symlink_target.as_deref(), root.join("target").to_str());
        assert_eq!(entry.name, "link");
        assert!(!entry.is_symlink);
    }

    #[test]
    fn links_that_lead_nowhere_or_in_circles_are_still_described() {
        let folder = tempfile::tempdir().unwrap();
        symlink("nowhere", folder.path().join("dangling")).unwrap();
        symlink("loop", folder.path().join("loop")).unwrap();
        for (name, target) in [("dangling", "nowhere"), ("loop", "loop")] {
            let entry = described(&folder.path().join(name));
            assert_eq!(entry.r#type, EntryType::FILE_TYPE_SYMLINK);
            assert_eq!(entry.symlink_target.as_deref(), Some(target));
            assert_eq!(entry.mode, 0);
        }
    }

    #[test]
    fn a_name_that_is_not_text_is_shown_with_replacement_characters() {
        let folder = tempfile::tempdir().unwrap();
        let name = std::ffi::OsString::from_vec(b"a\xffb".to_vec());
        fs::write(folder.path().join(&name), "").unwrap();
        assert_eq!(described(&folder.path().join(&name)).name, "a\u{fffd}b");
    }

    #[test]
    fn a_file_from_beyond_the_year_9999_can_be_told() {
        // Most file systems cannot keep such a time, so it is put into what they said.
        let mut stat = rustix::fs::stat("/").unwrap();
        for seconds in [i64::MAX, i64::MIN] {
            stat.st_mtime = seconds;
            let entry = EntryInfo { modified_time: modified(&stat).into(), ..EntryInfo::default() };
            serde_json::to_string(&entry).unwrap();
        }
    }

    #[test]
    fn the_root_is_called_slash() {
        let entry = described(Path::new("/"));
        assert_eq!((entry.name.as_str(), entry.path.as_str()), ("/", "/"));
        assert_eq!(entry.r#type, EntryType::FILE_TYPE_DIRECTORY);
    }
}
