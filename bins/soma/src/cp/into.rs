//! From here into a sandbox.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use guest_proto::client::BoxError;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::inside::{Inside, Kind, below, followed, path_of, shown};
use super::{all_or_said, here, is_contents};
use crate::failure::{FAILED, Failure, refused_inside};
use crate::output::progress::Progress;

/// What is read at once, and how many such pieces wait.
const PIECE: usize = 256 << 10;
const WAITING: usize = 2;

/// What files and folders get inside without being told.
const USUAL_FILE: u32 = 0o644;
const USUAL_FOLDER: u32 = 0o755;

/// The deepest tree that is copied. Each level holds a descriptor.
const DEEPEST: usize = 256;

/// Copies a file or a folder.
pub(super) async fn copy(
    inside: &Inside,
    source: &Path,
    destination: &[u8],
    progress: &Progress,
) -> Result<(), Failure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, source, flags, Mode::empty());
    let opened = opened.map_err(|error| here(source, "read", error))?;
    let stat = rustix::fs::fstat(&opened).map_err(|error| here(source, "read", error))?;
    let name = if is_contents(source.as_os_str().as_encoded_bytes()) {
        b"."
    } else {
        // That of `src/..` is nothing that anybody would want.
        let name = source.file_name().map(OsStrExt::as_bytes);
        name.ok_or_else(|| here(source, "copied", "it has no name"))?
    };
    let target = target(inside, destination, Some(name)).await?;
    let (mut modes, mut left_out) = (Vec::new(), 0);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            progress.expect(u64::try_from(stat.st_size).ok());
            upload(inside, opened, &target, Some(stat.st_mode), progress).await?;
        }
        FileType::Directory => {
            note(&mut modes, stat.st_mode, &target);
            left_out = tree(inside, opened, source, &target, &mut modes, progress).await?;
        }
        _ => return Err(here(source, "copied", "it is neither a file nor a folder")),
    }
    inside.set_modes(modes).await?;
    all_or_said(left_out)
}

/// Writes standard input to a file.
pub(super) async fn stream(
    inside: &Inside,
    destination: &[u8],
    progress: &Progress,
) -> Result<(), Failure> {
    let target = target(inside, destination, None).await?;
    let own = |error: std::io::Error| Failure::own(&error);
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(own)?;
    upload(inside, stdin, &target, None, progress).await
}

/// Where it goes, when it is called so: into a folder that is there, or to that very path.
async fn target(
    inside: &Inside,
    destination: &[u8],
    name: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let found = inside.find(destination).await?;
    let is_folder = found.as_ref().is_some_and(|entry| matches!(followed(entry), Kind::Folder));
    let folder = match found {
        Some(entry) if is_folder => path_of(&entry).to_owned(),
        None if destination.ends_with(b"/") => destination.to_owned(),
        _ => return Ok(destination.to_owned()),
    };
    match name {
        Some(b".") => Ok(folder),
        Some(name) => Ok(below(&folder, name)),
        None => Err(Failure::usage(format!("`{}` in the sandbox is a folder", shown(&folder)))
            .hint("say what to call the file in it")),
    }
}

/// Copies a folder with all in it, and returns how many could not be read. No link is followed.
async fn tree(
    inside: &Inside,
    folder: OwnedFd,
    source: &Path,
    target: &[u8],
    modes: &mut Vec<(u32, Vec<u8>)>,
    progress: &Progress,
) -> Result<u64, Failure> {
    struct Level {
        folder: OwnedFd,
        path: PathBuf,
        target: Vec<u8>,
        left: std::vec::IntoIter<std::ffi::CString>,
    }
    let enter = async |folder: OwnedFd, path: PathBuf, target: Vec<u8>| {
        let made = inside.guest.make_dir(&target, inside.user()).await;
        match made {
            Ok(_) | Err(guest_proto::GuestError::AlreadyExists { .. }) => {}
            Err(error) => return Err(refused_inside(&error)),
        }
        let left = names(&folder).map_err(|error| here(&path, "read", error))?.into_iter();
        Ok::<_, Failure>(Level { folder, path, target, left })
    };
    let mut left_out = 0;
    let mut levels = vec![enter(folder, source.to_owned(), target.to_owned()).await?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.left.next() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(OsStr::from_bytes(name.as_bytes()));
        let target = below(&level.target, name.as_bytes());
        let failed = |error: Errno| here(&path, "read", error);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&level.folder, &*name, flags).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // One that nobody may read, or that is gone by now, does not keep the others.
        let mut open = || match rustix::fs::openat(&level.folder, &*name, flags, Mode::empty()) {
            Ok(opened) => Ok(Some(opened)),
            Err(error @ (Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::LOOP)) => {
                left_out += 1;
                progress.say(&format!("`{}` is left out: {error}\n", path.display()));
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let Some(file) = open()? else { continue };
                upload(inside, file, &target, Some(stat.st_mode), progress).await?;
            }
            FileType::Directory => {
                let Some(folder) = open()? else { continue };
                note(modes, stat.st_mode, &target);
                if levels.len() >= DEEPEST {
                    return Err(here(&path, "copied", "it is too deep"));
                }
                levels.push(enter(folder, path, target).await?);
            }
            FileType::Symlink => {
                let link = rustix::fs::readlinkat(&level.folder, &*name, Vec::new());
                inside.make_link(link.map_err(failed)?.as_bytes(), &target).await?;
            }
            _ => progress.say(&format!("`{}` is left out: it is no file\n", path.display())),
        }
    }
    Ok(left_out)
}

/// What is in a folder, in order.
fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn note(modes: &mut Vec<(u32, Vec<u8>)>, mode: u32, path: &[u8]) {
    let mode = mode & 0o777;
    if mode != USUAL_FOLDER {
        modes.push((mode, path.to_owned()));
    }
}

/// Passes a file on in pieces, as fast as the sandbox takes them.
async fn upload(
    inside: &Inside,
    source: OwnedFd,
    target: &[u8],
    mode: Option<u32>,
    progress: &Progress,
) -> Result<(), Failure> {
    let mode = mode.map(|mode| mode & 0o777).filter(|mode| *mode != USUAL_FILE);
    let (sender, mut pieces) = mpsc::channel::<Result<Bytes, BoxError>>(WAITING);
    // Reading may block, as a pipe does; a thread of its own reads.
    let thread = std::thread::Builder::new().name("input".to_owned());
    thread.spawn(move || read(source, &sender)).map_err(|error| Failure::own(&error))?;
    let progress = progress.clone();
    let body = futures::stream::poll_fn(move |context| {
        let piece = pieces.poll_recv(context);
        if let std::task::Poll::Ready(Some(Ok(bytes))) = &piece {
            progress.passed(bytes.len());
        }
        piece
    });
    let uploaded = inside.guest.upload_with(target, inside.user(), mode, body).await;
    uploaded.map_err(|error| match error {
        guest_proto::GuestError::Unavailable { message }
            if message.contains("the file cannot be read") =>
        {
            Failure::new(FAILED, message)
        }
        error => refused_inside(&error),
    })
}

fn read(source: OwnedFd, sender: &mpsc::Sender<Result<Bytes, BoxError>>) {
    let mut source = File::from(source);
    loop {
        let mut buffer = vec![0; PIECE];
        let piece = match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                buffer.truncate(length);
                Ok(Bytes::from(buffer))
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let mut wanted =
                    [rustix::event::PollFd::new(&source, rustix::event::PollFlags::IN)];
                match rustix::event::poll(&mut wanted, None) {
                    Ok(_) => continue,
                    Err(error) => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        };
        let is_over = piece.is_err();
        if sender.blocking_send(piece).is_err() || is_over {
            return;
        }
    }
}
