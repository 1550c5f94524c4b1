//! Overlays: how a sandbox changes files without changing the host's.
//!
//! Mounted as Soma mounts them. Root's have a file system of their own for what is changed;
//! an ordinary user's lie on the home's file system, in a user namespace, where attributes are
//! kept as `user.overlay`.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use sys_linux::namespace::Namespaces;

use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::mounts::{mount_of, mounts};
use crate::scratch::Scratch;

const NAME: &str = "overlay";

pub(crate) fn check(host: &Host) -> Finding {
    let tried = Scratch::make(host).and_then(|scratch| {
        for name in ["lower", "upper", "work", "all"] {
            scratch.folder(name)?;
        }
        attempt(QUICK, || try_one(host, scratch.path()))
    });
    let finding = match tried {
        Ok(()) if host.is_root() => Finding::works(NAME, "mounted over /usr, written and removed"),
        Ok(()) => {
            Finding::works(NAME, "mounted over /usr in a user namespace, written and removed")
        }
        Err(refusal) => explain(host, &refusal),
    };
    finding.required(true).without("cannot make sandboxes: their files are overlays")
}

fn try_one(host: &Host, scratch: &Path) -> Result<(), Refusal> {
    if host.is_root() {
        within(Namespaces::MOUNT, || {
            own_mounts()?;
            let step = "mount a tmpfs for what is changed";
            mount("soma", scratch, "tmpfs", MountFlags::empty(), c"mode=700").step(step)?;
            for name in ["lower", "upper", "work", "all"] {
                fs::create_dir(scratch.join(name)).step(step)?;
            }
            use_overlay(scratch, "index=on,nfs_export=on")
        })
    } else {
        within(Namespaces::USER.and(Namespaces::MOUNT), || {
            // The mounts of another user's namespace are kept apart by the kernel already.
            super::namespaces::map_own_id(host)?;
            use_overlay(scratch, "userxattr")
        })
    }
}

/// Keeps what is mounted from now on to this process's mount namespace.
pub(super) fn own_mounts() -> Result<(), Refusal> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).step("keep mounts to a namespace")
}

fn use_overlay(scratch: &Path, extra: &str) -> Result<(), Refusal> {
    fs::write(scratch.join("lower/below"), "below").step("write a file below it")?;
    // Relative names, because a path may hold commas and colons.
    rustix::process::chdir(scratch).step("go to the folder to try it in")?;
    let options = format!("lowerdir=lower:/usr,upperdir=upper,workdir=work,{extra}");
    let options =
        CString::new(options).map_err(|error| Refusal::new("name it", error.to_string()))?;
    mount("soma", "all", "overlay", MountFlags::empty(), options.as_c_str())
        .step("mount an overlay")?;
    fs::write("all/new", "new").step("write to the overlay")?;
    fs::remove_file("all/below").step("remove a file in the overlay")?;
    let seen = fs::read_to_string("upper/new").is_ok_and(|seen| seen == "new");
    if seen && !Path::new("all/below").exists() && Path::new("lower/below").exists() {
        return Ok(());
    }
    Err(Refusal::new("use an overlay", "it does not keep changes apart"))
}

fn explain(host: &Host, refusal: &Refusal) -> Finding {
    let mounting = refusal.step == "mount an overlay";
    match refusal.errno() {
        Some(Errno::NODEV) if mounting => {
            let says = "this kernel does not have it, or has not loaded it";
            Finding::missing(NAME, says).fix(Fix::safe(&["modprobe", "overlay"]))
        }
        Some(Errno::INVAL) if mounting && !host.is_root() => {
            let mounts = mounts();
            let kind = mount_of(&mounts, host.nearest()).map_or("unknown", |mount| &mount.kind);
            let says =
                format!("{refusal}: what is changed cannot lie on the home's file system, {kind}");
            Finding::missing(NAME, says)
                .fix(Fix::shown_to_anybody("export SOMA_HOME=/a/folder/on/ext4/xfs/or/btrfs"))
        }
        _ => Finding::missing(NAME, refusal.to_string()),
    }
}
