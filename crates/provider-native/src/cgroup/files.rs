//! The files of a cgroup.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::failure::{Failure, Step};

/// Writes a value in one call, as these files want it.
pub(super) fn write(path: &Path, value: &str) -> Result<(), Failure> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .step(&format!("write `{value}` to `{}`", path.display()))
}

/// The numbers in a file, one on a line; nothing where there is no file.
pub(super) fn read_numbers(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Removes a cgroup's folder; one that is not there is fine.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
