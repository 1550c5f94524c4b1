//! What the host's package manager knows of `/usr`, so that the one in a sandbox does too.
//!
//! The sandbox's `/usr` is the host's, and without this `apt-get install` would take everything
//! for missing. The files are the host's own where that is possible: nobody writes to a template,
//! and package managers replace their files and do not change them.

use std::fs;
use std::io;
use std::path::Path;

/// Folders of the database; more in them is left out.
const FOLDERS: [&str; 4] = ["alternatives", "info", "triggers", "updates"];
/// Files beside them. What overrides owners is not among them: it names users of the host.
const FILES: [&str; 2] = ["diversions", "status"];

/// Takes over a database, if there is one.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.join("status").exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for name in FILES {
        take(&from.join(name), &to.join(name))?;
    }
    fs::write(to.join("statoverride"), "")?;
    for folder in FOLDERS {
        let to = to.join(folder);
        fs::create_dir_all(&to)?;
        // What a package manager is at in this moment is not for others.
        if folder == "updates" {
            continue;
        }
        for entry in fs::read_dir(from.join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            // Only what checks files by their sums needs these, and they are a third of all.
            let is_sums = name.as_encoded_bytes().ends_with(b".md5sums");
            if entry.file_type()?.is_file() && !is_sums {
                take(&entry.path(), &to.join(name))?;
            }
        }
    }
    Ok(())
}

/// The same file, or one like it where the home is on another file system. One that is gone by now
/// is not there.
fn take(from: &Path, to: &Path) -> io::Result<()> {
    let taken = fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop));
    match taken {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
