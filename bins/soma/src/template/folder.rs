//! A folder as a tar stream, while it is read.
//!
//! Files, folders and links go along, with their modes and owners; all else is left out. The tree
//! is walked by descriptors and no link is followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use bytes::Bytes;
use guest_proto::client::BoxError;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use tokio::sync::mpsc;

/// What is sent at once.
const PIECE: usize = 256 << 10;

/// The deepest tree that is sent. Each level holds a descriptor.
const DEEPEST: usize = 256;

/// Bytes on their way to somebody who takes them in pieces.
pub(super) struct Pieces<'a> {
    sender: &'a mpsc::Sender<Result<Bytes, BoxError>>,
    piece: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(sender: &'a mpsc::Sender<Result<Bytes, BoxError>>) -> Self {
        Self { sender, piece: Vec::with_capacity(PIECE) }
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Writes what is in a folder as a tar stream.
pub(super) fn write(folder: &OwnedFd, to: &mut impl Write) -> io::Result<()> {
    write_folder(folder, &mut Vec::new(), to, DEEPEST)?;
    to.write_all(&[0; 1024])
}

fn write_folder(
    folder: &OwnedFd,
    path: &mut Vec<u8>,
    to: &mut impl Write,
    depth: usize,
) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other(format!("it has more than {DEEPEST} folders in each other")));
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    for name in names {
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let written = write_entry(folder, &name, path, to, depth);
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => error,
            kind => io::Error::new(kind, format!("{}: {error}", String::from_utf8_lossy(path))),
        })?;
        path.truncate(length);
    }
    Ok(())
}

fn write_entry(
    folder: &OwnedFd,
    name: &[u8],
    path: &mut Vec<u8>,
    to: &mut impl Write,
    depth: usize,
) -> io::Result<()> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let file = File::from(openat(folder, name, flags, Mode::empty())?);
            let size = file.metadata()?.len();
            header(to, path, b'0', &stat, size, b"")?;
            // One that changes meanwhile must not shift what is behind it.
            let copied = io::copy(&mut (&file).take(size), to)?;
            if copied < size {
                return Err(io::Error::other("it became shorter while it was read"));
            }
            pad(to, size)
        }
        FileType::Directory => {
            let inner = openat(folder, name, flags | OFlags::DIRECTORY, Mode::empty())?;
            header(to, path, b'5', &stat, 0, b"")?;
            write_folder(&inner, path, to, depth - 1)
        }
        FileType::Symlink => {
            let target = readlinkat(folder, name, Vec::new())?;
            header(to, path, b'2', &stat, 0, target.to_bytes())
        }
        _ => Ok(()),
    }
}

/// The longest name and link that fit into a plain header, and the largest number.
const LONGEST: usize = 100;
const LARGEST_ID: u32 = 0o777_7777;
const LARGEST_SIZE: u64 = 0o777_7777_7777;

fn header(
    to: &mut impl Write,
    path: &[u8],
    kind: u8,
    stat: &Stat,
    size: u64,
    target: &[u8],
) -> io::Result<()> {
    let mut more = Vec::new();
    let mut add = |key: &str, value: &[u8]| {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        more.extend_from_slice(format!("{length} {key}=").as_bytes());
        more.extend_from_slice(value);
        more.push(b'\n');
    };
    if path.len() > LONGEST {
        add("path", path);
    }
    if target.len() > LONGEST {
        add("linkpath", target);
    }
    if size > LARGEST_SIZE {
        add("size", size.to_string().as_bytes());
    }
    for (key, id) in [("uid", stat.st_uid), ("gid", stat.st_gid)] {
        if id > LARGEST_ID {
            add(key, id.to_string().as_bytes());
        }
    }
    if !more.is_empty() {
        to.write_all(&block(b"more", b'x', 0o644, (0, 0), more.len() as u64, 0, b""))?;
        to.write_all(&more)?;
        pad(to, more.len() as u64)?;
    }
    let owner = (stat.st_uid, stat.st_gid);
    let modified = u64::try_from(stat.st_mtime).unwrap_or(0);
    to.write_all(&block(path, kind, stat.st_mode & 0o7777, owner, size, modified, target))
}

fn block(
    path: &[u8],
    kind: u8,
    mode: u32,
    (user, group): (u32, u32),
    size: u64,
    modified: u64,
    target: &[u8],
) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &path[..path.len().min(LONGEST)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, format!("{:07o}", user.min(LARGEST_ID)).as_bytes());
    put(116, format!("{:07o}", group.min(LARGEST_ID)).as_bytes());
    put(124, format!("{:011o}", size.min(LARGEST_SIZE)).as_bytes());
    put(136, format!("{:011o}", modified.min(LARGEST_SIZE)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &target[..target.len().min(LONGEST)]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn pad(to: &mut impl Write, size: u64) -> io::Result<()> {
    let filler = usize::try_from((512 - size % 512) % 512).unwrap_or(0);
    to.write_all(&[0; 512][..filler])
}
