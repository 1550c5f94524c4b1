//! Makes a tree one that a sandbox can stand on: folders to mount on, a user, names.
//!
//! A sandbox mounts its own `/dev`, `/proc`, `/sys` and `/run/soma`. Where one of these, or
//! anything on the way, is not a real folder, the image is refused: what is meant by a link there
//! is never what happens. Files of ours replace what has their name; nothing is written through
//! a link.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use domain::ImageReport;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, symlinkat};
use rustix::io::Errno;

use crate::entry::Path;
use crate::error::{ImageError, Step};
use crate::tree::{self, Tree};

/// Folders that must be there, with the modes that they get where they are missing.
const FOLDERS: [(&str, u32); 15] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/soma", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("workspace", 0o755),
];

/// Those of them that are the unprivileged user's.
const OWN_FOLDERS: [&str; 2] = ["home/user", "workspace"];

/// The id of the unprivileged user.
const USER: u64 = 1000;

/// Files that are ours in every sandbox.
const FILES: [(&str, &str); 3] = [
    ("hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("hostname", "sandbox\n"),
    ("resolv.conf", "nameserver 198.18.0.1\noptions timeout:5\n"),
];

/// The most that a list of users is read of.
const LARGEST_LIST: u64 = 1 << 20;

pub(crate) fn furnish(tree: &Tree, report: &mut ImageReport) -> Result<(), ImageError> {
    fchmod(tree.root(), Mode::from_raw_mode(0o755)).step("open to all", b"/")?;
    tree::give_to(tree.root(), b".", (0, 0)).step("give away", b"/")?;
    for (name, mode) in FOLDERS {
        make_folder(tree, name, mode)?;
    }
    let etc = folder(tree, "etc")?;
    for (name, text) in FILES {
        replace(tree, &etc, name, text.as_bytes(), 0o644)?;
    }
    let owner = add_user(tree, &etc, report)?;
    for name in OWN_FOLDERS {
        let (parent, name) = parent_of(tree, name)?;
        tree::give_to(&parent, &name, owner).step("give away", &name)?;
    }
    // The image's own `sudo` needs set-user-id, which no sandbox has: the guest's program acts as
    // one under this name.
    let programs = folder(tree, "usr/bin")?;
    tree.remove(&programs, b"sudo")?;
    symlinkat("/run/soma/guest", &programs, "sudo").step("make", b"usr/bin/sudo")?;
    if !has_program(tree, "bin/sh") {
        report.warn("there is no `/bin/sh` in the image: commands that need a shell do not run");
    }
    Ok(())
}

/// A folder that is there as one, or is made. Those on the way to it were looked at before.
fn make_folder(tree: &Tree, name: &str, mode: u32) -> Result<(), ImageError> {
    let (parent, last) = parent_of(tree, name)?;
    match mkdirat(&parent, last.as_slice(), Mode::RWXU) {
        Ok(()) => {
            let new = folder(tree, name)?;
            fchmod(&new, Mode::from_raw_mode(mode)).step("set the mode of", name.as_bytes())?;
            tree::give_to(&parent, &last, (0, 0)).step("give away", name.as_bytes())?;
            Ok(())
        }
        Err(Errno::EXIST) => folder(tree, name).map(|_| ()),
        Err(error) => Err(error).step("make", name.as_bytes()),
    }
}

/// Opens one of the folders that every sandbox needs, or says what is there instead.
fn folder(tree: &Tree, name: &str) -> Result<OwnedFd, ImageError> {
    let path = Path::own(name);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    tree.open_plainly(&path, flags).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => {
            let what = if is_link(tree, &path) { "a symbolic link" } else { "not a folder" };
            ImageError::unfit(format!(
                "`/{name}` is {what} in this image: a sandbox needs a folder of its own there, to \
                 mount or to write in"
            ))
        }
        error => ImageError::Write { step: format!("open `/{name}`"), source: error.into() },
    })
}

fn is_link(tree: &Tree, path: &Path) -> bool {
    path.split().is_some_and(|(parent, name)| {
        let parent = tree.folder(&parent);
        let found = parent.and_then(|parent| tree::look(&parent, name)).ok().flatten();
        found.is_some_and(|stat| tree::kind_of(&stat).is_symlink())
    })
}

fn parent_of(tree: &Tree, name: &str) -> Result<(OwnedFd, Vec<u8>), ImageError> {
    let (parent, last) = name.rsplit_once('/').unwrap_or((".", name));
    let parent = if parent == "." {
        tree.folder(&Path::default()).step("open", b"/")?
    } else {
        folder(tree, parent)?
    };
    Ok((parent, last.as_bytes().to_vec()))
}

/// Puts a file of ours in the place of whatever has its name.
fn replace(
    tree: &Tree,
    folder: &OwnedFd,
    name: &str,
    text: &[u8],
    mode: u32,
) -> Result<(), ImageError> {
    tree.remove(folder, name.as_bytes())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::from_raw_mode(0o600));
    let mut file = File::from(file.step("make", name.as_bytes())?);
    file.write_all(text).step("write", name.as_bytes())?;
    fchmod(&file, Mode::from_raw_mode(mode)).step("set the mode of", name.as_bytes())?;
    tree::give_to(folder, name.as_bytes(), (0, 0)).step("give away", name.as_bytes())?;
    Ok(())
}

/// Sees to it that there is a user called `user` who may use `sudo`, and says which ids it has.
fn add_user(
    tree: &Tree,
    etc: &OwnedFd,
    report: &mut ImageReport,
) -> Result<(u64, u64), ImageError> {
    let (users, groups) = (read_list(etc, "passwd")?, read_list(etc, "group")?);
    let known = ids_of(&users, b"user");
    if known.is_none() {
        let shell = if has_program(tree, "bin/bash") { "/bin/bash" } else { "/bin/sh" };
        let line = format!("user:x:{USER}:{USER}:user:/home/user:{shell}\n");
        let users = if users.is_empty() {
            report
                .warn("there is no `/etc/passwd` in the image: one with `root` and `user` is made");
            format!("root:x:0:0:root:/root:{shell}\n").into_bytes()
        } else {
            users
        };
        // Before another one with the same id, whose name programs would show otherwise.
        replace(tree, etc, "passwd", &with_line(&users, &line), 0o644)?;
    }
    let mut groups = if groups.is_empty() { b"root:x:0:\n".to_vec() } else { groups };
    if !has_name(&groups, b"user") {
        groups = with_line(&groups, &format!("user:x:{USER}:\n"));
    }
    replace(tree, etc, "group", &with_sudo(&groups), 0o644)?;
    Ok(known.unwrap_or((USER, USER)))
}

/// The groups with the user in the one that may use `sudo`.
fn with_sudo(groups: &[u8]) -> Vec<u8> {
    if !has_name(groups, b"sudo") {
        let end: &[u8] = if groups.ends_with(b"\n") { b"" } else { b"\n" };
        return [groups, end, b"sudo:x:27:user\n"].concat();
    }
    let mut lines: Vec<Vec<u8>> = groups.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    for line in lines.iter_mut().filter(|line| line.starts_with(b"sudo:")) {
        let members = fields(line).get(3).copied().unwrap_or_default();
        if !members.split(|byte| *byte == b',').any(|member| member == b"user") {
            let comma: &[u8] = if members.is_empty() { b"" } else { b"," };
            line.extend_from_slice(&[comma, b"user"].concat());
        }
    }
    lines.join(&b'\n')
}

/// A list of users or groups; empty when there is none.
fn read_list(etc: &OwnedFd, name: &str) -> Result<Vec<u8>, ImageError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refused = || {
        ImageError::unfit(format!(
            "`/etc/{name}` in this image is a link, no file, or too large to be a list of names"
        ))
    };
    let file = match openat(etc, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(Errno::LOOP) => return Err(refused()),
        Err(error) => return Err(error).step("open", name.as_bytes()),
    };
    let stat = fstat(&file).step("look at", name.as_bytes())?;
    let mut bytes = Vec::new();
    if FileType::from_raw_mode(stat.st_mode).is_file() {
        file.take(LARGEST_LIST + 1).read_to_end(&mut bytes).step("read", name.as_bytes())?;
    } else {
        return Err(refused());
    }
    if bytes.len() as u64 > LARGEST_LIST { Err(refused()) } else { Ok(bytes) }
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b':').collect()
}

fn has_name(list: &[u8], name: &[u8]) -> bool {
    list.split(|byte| *byte == b'\n').any(|line| fields(line).first() == Some(&name))
}

fn ids_of(list: &[u8], name: &[u8]) -> Option<(u64, u64)> {
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let line = list.split(|byte| *byte == b'\n').map(fields).find(|line| line[0] == name)?;
    Some((number(line.get(2)?)?, number(line.get(3)?)?))
}

/// The list with one more line: in front of the first whose id is the user's, or at the end.
fn with_line(list: &[u8], line: &str) -> Vec<u8> {
    let id = USER.to_string();
    let has_id = |line: &[u8]| fields(line).get(2) == Some(&id.as_bytes());
    let mut lines: Vec<&[u8]> = list.split_inclusive(|byte| *byte == b'\n').collect();
    let place = lines.iter().position(|line| has_id(line.trim_ascii_end())).unwrap_or(lines.len());
    let unfinished = lines.last().is_some_and(|last| !last.ends_with(b"\n"));
    let end: &[u8] = if unfinished && place == lines.len() { b"\n" } else { b"" };
    lines.splice(place..place, [end, line.as_bytes()]);
    lines.concat()
}

fn has_program(tree: &Tree, name: &str) -> bool {
    tree.open(&Path::own(name), OFlags::PATH | OFlags::CLOEXEC).is_ok()
}
