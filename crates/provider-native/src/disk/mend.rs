//! A disk that broke below a sandbox, looked after before it is mounted again.
//!
//! When the host has no room for what a disk's file system writes, or cannot write at all, the
//! kernel notes an error in the file system and lets nobody write until it is mounted anew. What
//! its journal has is put in order by the mount; whether the rest fits together is for
//! `e2fsck` to say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

/// Where the superblock has the state of the file system.
const STATE: u64 = 1024 + 0x3a;

/// What is set in it once something was wrong.
const HAS_ERRORS: u16 = 2;

/// Repairs a disk on which the kernel has found an error. What cannot be repaired is left to the
/// kernel, which mounts it or says why not.
pub(super) fn mend(disk: &File, path: &Path) {
    if has_errors(disk).unwrap_or(false) {
        // Without questions, and only what is safe. Its code says what was done, and none of
        // them is a reason not to try.
        let _ = sys_linux::command::command("e2fsck")
            .args(["-f", "-p"])
            .arg(path)
            .stdin(Stdio::null())
            .output();
    }
}

fn has_errors(disk: &File) -> io::Result<bool> {
    let mut state = [0; 2];
    disk.read_exact_at(&mut state, STATE)?;
    Ok(u16::from_le_bytes(state) & HAS_ERRORS != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_the_kernel_noted_is_found_and_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(16 << 20).unwrap();
        // Without checksums, which the kernel would keep right, and this test does not.
        let words = ["-q", "-F", "-O", "^metadata_csum"];
        let made = sys_linux::command::command("mkfs.ext4").args(words).arg(&path).status();
        assert!(made.unwrap().success());
        let disk = File::options().read(true).write(true).open(&path).unwrap();
        assert!(!has_errors(&disk).unwrap());
        disk.write_all_at(&3_u16.to_le_bytes(), STATE).unwrap();
        assert!(has_errors(&disk).unwrap());
        mend(&disk, &path);
        assert!(!has_errors(&disk).unwrap());
    }
}
