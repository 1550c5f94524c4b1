//! The first steps towards a virtual machine: enough to see whether one can be made.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const GET_API_VERSION: libc::Ioctl = 0xAE00;
const CREATE_VM: libc::Ioctl = 0xAE01;
const CREATE_VCPU: libc::Ioctl = 0xAE41;

/// Which version of the interface `/dev/kvm` speaks; 12 is the only one in use.
pub fn api_version(device: impl AsFd) -> io::Result<i32> {
    ask(device.as_fd(), GET_API_VERSION)
}

/// A virtual machine without memory, which is gone when its descriptor is closed.
pub fn create_machine(device: impl AsFd) -> io::Result<OwnedFd> {
    owned(ask(device.as_fd(), CREATE_VM)?)
}

/// The first processor of a machine.
pub fn create_processor(machine: impl AsFd) -> io::Result<OwnedFd> {
    owned(ask(machine.as_fd(), CREATE_VCPU)?)
}

fn ask(descriptor: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<i32> {
    // SAFETY: the three requests take a plain number, here zero, and no pointer. A descriptor
    // of another kind answers with an error.
    let answer = unsafe { libc::ioctl(descriptor.as_raw_fd(), request, 0_usize) };
    if answer >= 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}

#[expect(clippy::unnecessary_wraps, reason = "it ends a chain of results")]
fn owned(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just made this descriptor for us, and nobody else has it. Both
    // requests that lead here answer with a new descriptor; the kernel never gives a negative
    // one, which `ask` has ruled out.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_device_is_refused() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(api_version(&null).is_err());
        assert!(create_machine(&null).is_err());
        assert!(create_processor(&null).is_err());
    }
}
