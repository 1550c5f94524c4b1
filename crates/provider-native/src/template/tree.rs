//! The files of the default template that are not the host's.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use super::{etc, packages, usr};
use crate::failure::{Failure, Kind, Step};
use crate::ids::{IdRange, USER};

/// Folders with their modes.
const FOLDERS: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("run/soma", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/mail", 0o2775),
    ("var/opt", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];

/// Folders of the unprivileged user.
const OWN_FOLDERS: &[&str] = &["home/user", "workspace"];

const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
         bin:x:2:2:bin:/bin:/usr/sbin/nologin\n\
         sys:x:3:3:sys:/dev:/usr/sbin/nologin\n\
         man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n\
         mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n\
         www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n\
         _apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n\
         user:x:1000:1000:user:/home/user:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "etc/group",
        "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nlp:x:7:\n\
         mail:x:8:\nman:x:12:\nsudo:x:27:user\nwww-data:x:33:\nshadow:x:42:\nutmp:x:43:\n\
         staff:x:50:\nusers:x:100:user\nuser:x:1000:\nnogroup:x:65534:\n",
    ),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("etc/hostname", "sandbox\n"),
    ("etc/resolv.conf", "nameserver 198.18.0.1\noptions timeout:5\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
         protocols: files\nservices: files\nrpc: files\n",
    ),
    // The sandbox is nobody's system to protect: `pip install` needs no flags.
    ("etc/pip.conf", "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n"),
    (
        "etc/profile",
        "export PATH=\"$HOME/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n\
         if [ -n \"$BASH\" ] && [ -f /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi\n",
    ),
];

/// Builds the tree at `root`, which must not be there yet: with the ids that sandboxes see, or
/// with what those are outside for sandboxes that have the `own` ones.
pub(super) fn build(root: &Path, own: Option<IdRange>) -> Result<(), Failure> {
    let step = "build the default template";
    make_folder(root, 0o755).step(step)?;
    for (name, mode) in FOLDERS {
        make_folder(&root.join(name), *mode).step(step)?;
    }
    for name in OWN_FOLDERS {
        make_folder(&root.join(name), 0o755).step(step)?;
    }
    link_into_usr(root)?;
    etc::copy(Path::new("/etc"), &root.join("etc")).step(step)?;
    for (name, text) in FILES {
        fs::write(root.join(name), text).step(step)?;
    }
    fs::write(root.join("etc/shadow"), "root:*:::::::\nuser:*:::::::\n").step(step)?;
    fs::set_permissions(root.join("etc/shadow"), Permissions::from_mode(0o640)).step(step)?;
    symlink("/run", root.join("var/run")).step(step)?;
    symlink("/run/lock", root.join("var/lock")).step(step)?;
    symlink("/proc/self/mounts", root.join("etc/mtab")).step(step)?;
    // The host's own `sudo` needs set-user-id, which no sandbox has: the guest's program acts as
    // one under this name. The folder lies over the host's `/usr/bin` and is merged with it.
    make_folder(&root.join("usr/bin"), 0o755).step(step)?;
    symlink("/run/soma/guest", root.join("usr/bin/sudo")).step(step)?;
    if own.is_none() {
        // Where every sandbox has a tree of its own this would take longer than all the rest.
        packages::copy(Path::new("/var/lib/dpkg"), &root.join("var/lib/dpkg")).step(step)?;
    }
    if let Some(ids) = own {
        usr::make_folders(Path::new("/usr"), &root.join("usr")).step(step)?;
        give_to(root, ids.outside(0)).step(step)?;
    }
    furnish_homes(root, own).step(step)
}

/// Gives a folder and all below it to an id.
fn give_to(path: &Path, id: u32) -> io::Result<()> {
    lchown(path, Some(id), Some(id))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_to(&entry?.path(), id)?;
        }
    }
    Ok(())
}

/// `/bin` and its kin lead into `/usr`, as they do on the host.
fn link_into_usr(root: &Path) -> Result<(), Failure> {
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let host = Path::new("/").join(name);
        let Ok(metadata) = fs::symlink_metadata(&host) else { continue };
        let step = "use this host's `/usr` as a template";
        if !metadata.is_symlink() {
            let cause =
                format!("`/{name}` is a folder here: systems before merged /usr are too old");
            return Err(Failure::new(step, cause, Kind::Unsupported));
        }
        symlink(fs::read_link(&host).step(step)?, root.join(name)).step(step)?;
    }
    Ok(())
}

/// What a new user's home has, for both who live here.
fn furnish_homes(root: &Path, own: Option<IdRange>) -> io::Result<()> {
    let outside = |id: u32| Some(own.map_or(id, |ids| ids.outside(id)));
    for (home, owner) in [("home/user", USER), ("root", 0)] {
        let Ok(entries) = fs::read_dir(root.join("etc/skel")) else { continue };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let target = root.join(home).join(entry.file_name());
                fs::copy(entry.path(), &target)?;
                chown(&target, outside(owner), outside(owner))?;
            }
        }
    }
    for name in OWN_FOLDERS {
        chown(root.join(name), outside(USER), outside(USER))?;
    }
    Ok(())
}

pub(super) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir(path)?;
    // Apart from creating, so that the mask of whoever started us has no say.
    fs::set_permissions(path, Permissions::from_mode(mode))
}
