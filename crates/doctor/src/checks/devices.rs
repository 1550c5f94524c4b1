//! Devices: FUSE, loop devices and KVM, each opened and used.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use sys_linux::kvm;
use sys_linux::loop_device::LoopDevice;
use sys_linux::namespace::Namespaces;

use crate::attempt::{QUICK, Refusal, Step, attempt, within};
use crate::finding::{Finding, Fix};
use crate::host::Host;
use crate::scratch::Scratch;

/// Opens the device and mounts a file system of it, which nobody serves and which is gone with
/// the process that mounted it.
pub(crate) fn fuse(host: &Host) -> Finding {
    const NAME: &str = "fuse";
    let tried = Scratch::make(host).and_then(|scratch| {
        attempt(QUICK, || {
            let device = open("/dev/fuse")?;
            let namespaces = if host.is_root() {
                Namespaces::MOUNT
            } else {
                Namespaces::USER.and(Namespaces::MOUNT)
            };
            within(namespaces, || {
                if host.is_root() {
                    super::overlay::own_mounts()?;
                } else {
                    super::namespaces::map_own_id(host)?;
                }
                mount_fuse(&device, scratch.path())
            })
        })
    });
    let finding = match tried {
        Ok(()) => Finding::works(NAME, "opened `/dev/fuse` and mounted with it"),
        Err(refusal) => lacking(NAME, &refusal, "fuse", "fuse", "chmod 666 /dev/fuse"),
    };
    finding.without("nothing is less today: sandboxes do not use it yet")
}

fn mount_fuse(device: &File, place: &Path) -> Result<(), Refusal> {
    let step = "mount with FUSE";
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).map_err(|error| Refusal::new(step, error.to_string()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("soma", place, "fuse", flags, options.as_c_str()).step(step)
}

/// Makes a block device of a small file; it is gone when nobody has it open.
pub(crate) fn loops(host: &Host) -> Finding {
    const NAME: &str = "loop-devices";
    let tried = Scratch::make(host).and_then(|scratch| {
        let backing = scratch.path().join("disk");
        let file = File::create_new(&backing).step("make a file for it")?;
        file.set_len(1 << 20).step("make a file for it")?;
        drop(file);
        attempt(QUICK, || {
            let file = OpenOptions::new().read(true).write(true).open(&backing);
            let file = file.step("open the file for it")?;
            // Asked apart, to tell a missing control file from a missing device.
            open("/dev/loop-control")?;
            let device = LoopDevice::attach(std::os::fd::AsFd::as_fd(&file));
            device.map(drop).step("make a block device of a file")
        })
    });
    let finding = match tried {
        Ok(()) => Finding::works(NAME, "made a block device of a file"),
        Err(refusal) if !host.is_root() => {
            Finding::missing(NAME, format!("only root can make them: {refusal}"))
        }
        Err(refusal)
            if refusal.errno() == Some(Errno::NOENT) && refusal.step.contains("block device") =>
        {
            let says = "the kernel made one, but its file does not show in `/dev`";
            Finding::missing(NAME, says).fix(Fix::shown("mount -t devtmpfs none /dev"))
        }
        Err(refusal) => {
            lacking(NAME, &refusal, "loop-control", "loop", "chmod 660 /dev/loop-control")
        }
    };
    let without = if host.is_root() {
        "cannot make root's sandboxes: each has a disk with a hard limit"
    } else {
        "refuses limits on the disk, unless `--allow-unenforced` is given"
    };
    finding.required(host.is_root()).without(without)
}

/// Makes a virtual machine without memory, and a processor for it.
pub(crate) fn kvm(host: &Host) -> Finding {
    const NAME: &str = "kvm";
    let tried = attempt(QUICK, || {
        let device = open("/dev/kvm")?;
        let version = kvm::api_version(&device).step("ask `/dev/kvm` for its version")?;
        if version != 12 {
            return Err(Refusal::new(
                "use `/dev/kvm`",
                format!("it speaks version {version}, not 12"),
            ));
        }
        let machine = kvm::create_machine(&device).step("make a virtual machine")?;
        kvm::create_processor(&machine).map(drop).step("make a virtual processor")
    });
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let nested = processors.split_whitespace().any(|word| word == "hypervisor");
    let add_to_group = host
        .user
        .as_ref()
        .map_or("chmod 666 /dev/kvm".to_owned(), |user| format!("usermod -aG kvm {user}"));
    let finding = match tried {
        Ok(()) if nested => Finding::unknown(
            NAME,
            "made a virtual machine, but this is one itself: whether a kernel boots in there was not tried",
        ),
        Ok(()) => Finding::works(NAME, "made a virtual machine with a processor"),
        Err(refusal) => lacking(NAME, &refusal, "kvm", "kvm", &add_to_group),
    };
    finding.without("nothing is less: the native engine uses the kernel alone")
}

fn open(path: &str) -> Result<File, Refusal> {
    OpenOptions::new().read(true).write(true).open(path).step(&format!("open `{path}`"))
}

/// Says why a device cannot be used. One that the kernel has and `/dev` does not show is cured
/// differently from one that the kernel has not loaded.
fn lacking(
    name: &'static str,
    refusal: &Refusal,
    device: &str,
    module: &str,
    permit: &str,
) -> Finding {
    let opening = refusal.step == format!("open `/dev/{device}`");
    let numbers = fs::read_to_string(format!("/sys/class/misc/{device}/dev")).ok();
    match (refusal.errno(), numbers) {
        (Some(Errno::NOENT), Some(numbers)) if opening => {
            let numbers = numbers.trim().replace(':', " ");
            let says = format!("the kernel has it, but there is no `/dev/{device}`");
            Finding::missing(name, says)
                .fix(Fix::shown(format!("mknod -m 600 /dev/{device} c {numbers}")))
        }
        (Some(Errno::NOENT | Errno::NODEV | Errno::NXIO), _) => {
            let says = format!("{refusal}: this kernel does not have it, or has not loaded it");
            Finding::missing(name, says).fix(Fix::safe(&["modprobe", module]))
        }
        (Some(Errno::ACCESS | Errno::PERM), _) if opening => {
            Finding::missing(name, refusal.to_string()).fix(Fix::shown(permit))
        }
        _ => Finding::missing(name, refusal.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno, step: &str) -> Refusal {
        Err::<(), _>(errno).step(step).unwrap_err()
    }

    #[test]
    fn a_module_that_is_not_loaded_is_loaded_by_a_safe_command() {
        let refusal = refused(Errno::NOENT, "open `/dev/soma-has-no-such`");
        let finding = lacking("x", &refusal, "soma-has-no-such", "such", "chmod");
        let fix = finding.fix.unwrap();
        assert!(fix.safe);
        assert_eq!(fix.command, "modprobe such");
    }

    #[test]
    fn a_device_that_is_forbidden_is_not_loaded_again() {
        let refusal = refused(Errno::ACCESS, "open `/dev/such`");
        let fix = lacking("x", &refusal, "such", "such", "chmod 666 /dev/such").fix.unwrap();
        assert_eq!((fix.command.as_str(), fix.safe), ("chmod 666 /dev/such", false));
    }
}
