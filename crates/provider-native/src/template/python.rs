//! Which Python the host has, as far as packages that were installed for it care.
//!
//! Packages are found by the interpreter's version (`python3.11`), and compiled ones fit no other.
//! A later patch of the same version finds and loads them as before.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where a sandbox finds its interpreter, in the order of its `PATH`.
const PLACES: [&str; 2] = ["/usr/local/bin/python3", "/usr/bin/python3"];

/// What tells the host's Python from another that needs packages of its own. Cheap enough for
/// every create.
pub(super) fn of_this_host() -> String {
    let found = PLACES.iter().find_map(|place| stamp(Path::new(place)));
    found.unwrap_or_else(|| "none".to_owned())
}

/// The name of the program that the link leads to, which has the version; where there is no link,
/// when the program was made.
fn stamp(place: &Path) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "a path of the host's own, not a guest's")]
    let program = fs::canonicalize(place).ok()?;
    let name = program.file_name()?.to_str()?;
    if name != "python3" {
        return Some(name.to_owned());
    }
    let metadata = fs::metadata(&program).ok()?;
    Some(format!("{name}-{}-{}", metadata.size(), metadata.mtime()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_the_version_and_a_program_when_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let (program, link) = (folder.path().join("python3.11"), folder.path().join("python3"));
        assert_eq!(stamp(&link), None);
        fs::write(&program, "one").unwrap();
        std::os::unix::fs::symlink("python3.11", &link).unwrap();
        assert_eq!(stamp(&link).unwrap(), "python3.11");
        fs::write(&program, "another patch").unwrap();
        assert_eq!(stamp(&link).unwrap(), "python3.11");
        fs::remove_file(&link).unwrap();
        fs::rename(&program, &link).unwrap();
        assert!(stamp(&link).unwrap().starts_with("python3-13-"));
    }
}
