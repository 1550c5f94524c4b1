//! The disk of a sandbox: a sparse file with a file system of exactly the size that is allowed.
//!
//! A hard limit without quotas, which few file systems have: what is full is the file system
//! inside, and neither the host nor a neighbour notices. A formatted blank is made once for
//! each size and copied, which is five times faster than formatting.
//!
//! The disk is mounted nowhere on the host. Its mount belongs to the sandbox's overlay alone,
//! so it goes when the sandbox goes, also when nobody is left to clean up.

mod closing;
mod identity;
mod mend;
mod seal;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use domain::{Bytes, Limits};
use rustix::fs::{FlockOperation, SeekFrom, copy_file_range, flock, ioctl_ficlone, seek};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use sys_linux::loop_device::LoopDevice;

use crate::failure::{Failure, Kind, Step};
use crate::home::{Home, make_folder};
use crate::ids::IdRange;
use crate::missing;

pub(crate) use closing::set_closed;
pub(crate) use seal::{mount_sealed, seal, sum};

/// The name of a sandbox's disk in its folder.
pub(crate) const NAME: &str = "disk.ext4";

/// How long an earlier mount of a disk may take to vanish with the processes that had it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The writable halves of the overlays that a sandbox's root is made of.
pub(crate) const LAYERS: [&str; 2] = ["root", "usr"];

/// Where what a sandbox writes is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// On a disk of its own.
    Disk(Size),
    /// In a folder of the host's, with no limit but the host's: only root can have more.
    Folder,
}

/// How much a disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// In bytes.
    pub(crate) bytes: Bytes,
    /// In files and folders.
    pub(crate) inodes: u64,
}

impl Size {
    /// What these limits allow.
    pub(crate) fn of(limits: &Limits) -> Self {
        Self { bytes: limits.disk, inodes: limits.inodes() }
    }
}

/// Makes the writable halves in a folder of the host's, for a sandbox with these ids.
pub(crate) fn make_layers(folder: &Path, ids: IdRange) -> io::Result<()> {
    let owner = ids.outside(0);
    for layer in LAYERS {
        for (half, mode) in [("upper", 0o755), ("work", 0o700)] {
            let path = folder.join(layer).join(half);
            make_folder(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            std::os::unix::fs::chown(&path, Some(owner), Some(owner))?;
        }
    }
    Ok(())
}

/// The formatted empty disk of this size; made when it is not there.
pub(crate) fn blank(home: &Home, size: Size) -> Result<PathBuf, Failure> {
    let blank = blank_path(home, size);
    if !blank.exists() {
        // Two launchers may make the same one: each under a name of its own, the last wins.
        let own = blank.with_extension(format!("{}.new", std::process::id()));
        let result = format(&own, size);
        let result = result.and_then(|()| fs::rename(&own, &blank).step("keep the blank disk"));
        if result.is_err() {
            let _ = fs::remove_file(&own);
        }
        result?;
    }
    Ok(blank)
}

/// Where the blank of this size is, once it was made.
pub(crate) fn blank_path(home: &Home, size: Size) -> PathBuf {
    home.blanks().join(format!("{}-{}-2.ext4", size.bytes.0, size.inodes))
}

/// Makes an empty disk. It has its name once it is whole: what is there is mounted as it is.
pub(crate) fn make(home: &Home, size: Size, path: &Path) -> Result<File, Failure> {
    let blank = blank(home, size)?;
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let disk = copy(&blank, &new)?;
    fs::rename(&new, path).step("keep the sandbox's disk")?;
    Ok(disk)
}

/// Copies a blank, leaving its holes out.
fn copy(blank: &Path, to: &Path) -> Result<File, Failure> {
    let source = File::open(blank).step("open the blank disk")?;
    let target = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .step("make the sandbox's disk")?;
    copy_sparse(&source, &target).step("copy the blank disk")?;
    let identity = crate::random::bytes().step("find random numbers")?;
    identity::identify(&target, identity).step("identify the sandbox's disk")?;
    lock(&target).step("lock the sandbox's disk")?;
    Ok(target)
}

/// Opens the disk of a sandbox that ran before.
///
/// Two mounts of one disk would destroy it. So whoever mounts one locks it first; the lock goes
/// with the device, which keeps the file open until the last of the sandbox's mounts is gone.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let step = "open the sandbox's disk";
    let disk = OpenOptions::new().read(true).write(true).open(path).step(step)?;
    let start = Instant::now();
    while let Err(error) = lock(&disk) {
        if start.elapsed() > PATIENCE {
            return Err(error).step(step);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    mend::mend(&disk, path);
    Ok(disk)
}

fn lock(disk: &File) -> io::Result<()> {
    Ok(flock(disk, FlockOperation::NonBlockingLockExclusive)?)
}

/// Mounts a disk without attaching it anywhere.
pub(crate) fn mount(disk: &File) -> Result<OwnedFd, Failure> {
    mount_as(disk, MountAttrFlags::empty())
}

fn mount_as(disk: &File, more: MountAttrFlags) -> Result<OwnedFd, Failure> {
    let device = LoopDevice::attach(disk.as_fd()).map_err(missing::loop_device)?;
    let context = rustix::mount::fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(|error| missing::file_system("ext4", error))?;
    rustix::mount::fsconfig_set_string(&context, "source", device.path()).step("name the disk")?;
    // The kernel would fill the inode tables in the background, and the sparse file with them.
    rustix::mount::fsconfig_set_flag(&context, "noinit_itable").step("set up the disk")?;
    rustix::mount::fsconfig_set_string(&context, "errors", "remount-ro").step("set up the disk")?;
    if more.contains(MountAttrFlags::MOUNT_ATTR_RDONLY) {
        rustix::mount::fsconfig_set_flag(&context, "ro").step("set up the disk")?;
    }
    rustix::mount::fsconfig_create(&context).step("mount the disk")?;
    let attributes = more
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .step("mount the disk")
}

fn format(path: &Path, size: Size) -> Result<(), Failure> {
    let step = format!("format a disk of {}", size.bytes);
    let file = File::create(path).step(&step)?;
    file.set_len(size.bytes.0).step(&step)?;
    drop(file);

    let tree = path.with_extension("tree");
    for layer in LAYERS {
        for half in ["upper", "work"] {
            make_folder(&tree.join(layer).join(half)).step(&step)?;
        }
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(tree.join(layer).join("upper"), open).step(&step)?;
    }
    let output = sys_linux::command::command("mkfs.ext4")
        // Blocks as large as the loop device's, also on a disk so small that others are usual.
        .args(["-q", "-F", "-b", "4096", "-m", "0", "-J", "size=16"])
        // So that a copy can be told from others without new checksums for all of it.
        .args(["-O", "metadata_csum,metadata_csum_seed"])
        .args(["-N", &size.inodes.to_string(), "-E"])
        .arg("lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0")
        .arg("-d")
        .args([&tree, path])
        .stdin(Stdio::null())
        .output();
    let _ = fs::remove_dir_all(&tree);
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let cause = text.lines().last().unwrap_or("mkfs.ext4 said nothing").to_owned();
            Err(Failure::new(step, cause, Kind::Broken))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let cause = "there is no `mkfs.ext4`: install the package e2fsprogs";
            Err(Failure::new(step, cause, Kind::Unsupported))
        }
        Err(error) => Err(error).step(&step),
    }
}

fn copy_sparse(source: &File, target: &File) -> io::Result<()> {
    // Where the file system can share blocks, there is nothing to copy.
    if ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut position = 0;
    while position < size {
        position = match seek(source, SeekFrom::Data(position)) {
            Ok(start) => start,
            // No data behind here.
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(source, SeekFrom::Hole(position))?;
        let mut to = position;
        while position < end {
            let length = usize::try_from(end - position).unwrap_or(usize::MAX);
            if copy_file_range(source, Some(&mut position), target, Some(&mut to), length)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        let mut source = File::create_new(&path).unwrap();
        source.set_len(64 << 20).unwrap();
        source.seek(io::SeekFrom::Start(10 << 20)).unwrap();
        source.write_all(b"in the middle").unwrap();
        source.sync_all().unwrap();

        let mut copy = copy(&path, &folder.path().join("copy")).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), 64 << 20);
        assert!(copy.metadata().unwrap().blocks() * 512 < 1 << 20, "the holes were filled");
        copy.seek(io::SeekFrom::Start(10 << 20)).unwrap();
        let mut text = [0; 13];
        copy.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"in the middle");
    }
}
