//! A sandbox that is a copy: what tells it from others is new.
//!
//! `/etc/machine-id` is the sign, also for whoever watches it: kernels seed their random numbers anew
//! when it changed.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether this can be a machine's id.
pub(super) fn is_sensible(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Writes it down below this root.
pub(super) fn identify(root: &Path, id: &str) -> io::Result<()> {
    let folder = root.join("etc");
    let new = folder.join(".machine-id.new");
    // Whatever a sandbox put there is not written through.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::File::create_new(&new)?;
    io::Write::write_all(&mut file, format!("{id}\n").as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o444))?;
    fs::rename(new, folder.join("machine-id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_in_place_of_whatever_is_there() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir(&etc).unwrap();
        fs::write(root.path().join("other"), "other").unwrap();
        std::os::unix::fs::symlink("../other", etc.join("machine-id")).unwrap();
        std::os::unix::fs::symlink("../other", etc.join(".machine-id.new")).unwrap();
        let id = "0123456789abcdef0123456789abcdef";
        assert!(is_sensible(id) && !is_sensible(&id[1..]) && !is_sensible(&id.to_uppercase()));
        identify(root.path(), id).unwrap();
        assert_eq!(fs::read_to_string(etc.join("machine-id")).unwrap(), format!("{id}\n"));
        assert_eq!(fs::read_to_string(root.path().join("other")).unwrap(), "other");
    }
}
