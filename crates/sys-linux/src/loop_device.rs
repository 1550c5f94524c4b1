//! Block devices backed by files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// A loop device that vanishes by itself once nothing uses it.
///
/// Keep it until what is on it is mounted: after that the mount holds the device.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Makes a block device of a file.
    pub fn attach(backing: BorrowedFd<'_>) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        // Another process may take the device between the two calls: then the next is tried.
        for _ in 0..64 {
            // SAFETY: the request takes no argument and returns a number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new().read(true).write(true).open(&path)?;
            match configure(&device, backing) {
                Ok(()) => return Ok(Self { path, _open: device }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("other processes took every free loop device"))
    }

    /// Where the device is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64`.
#[repr(C)]
struct Details {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Configuration {
    descriptor: u32,
    block_size: u32,
    details: Details,
    reserved: [u64; 8],
}

fn configure(device: &File, backing: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the structure is plain numbers, for which all zeroes is a valid value.
    let mut configuration: Configuration = unsafe { std::mem::zeroed() };
    configuration.descriptor = u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?;
    configuration.block_size = 4096;
    configuration.details.flags = LO_FLAGS_AUTOCLEAR;
    // SAFETY: the structure has the layout that the kernel reads and outlives the call.
    let result =
        unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const configuration) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
