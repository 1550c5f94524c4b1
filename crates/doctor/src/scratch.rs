//! A folder to try things in, gone afterwards.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::attempt::{Refusal, Step};
use crate::host::Host;

/// A folder of our own, on the home's file system where that is possible.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// Makes one beside the home rather than in it: an engine takes an empty folder for its home,
    /// and removes what it does not know in it. A home that is a mount of its own leaves no choice.
    pub(crate) fn make(host: &Host) -> Result<Self, Refusal> {
        let nearest = host.nearest();
        let beside =
            if nearest == host.home { nearest.parent().unwrap_or(nearest) } else { nearest };
        let device = |folder: &Path| folder.metadata().map(|metadata| metadata.dev()).ok();
        let is_elsewhere = |folder: &PathBuf| device(folder) != device(nearest);
        let mut places =
            vec![beside.to_owned(), "/var/tmp".into(), std::env::temp_dir(), nearest.to_owned()];
        // Those on the home's own file system first; the order is kept otherwise.
        places.sort_by_key(is_elsewhere);
        let mut last = None;
        for place in places {
            match tempfile::Builder::new().prefix("soma-doctor-").tempdir_in(&place) {
                Ok(folder) => return Ok(Self { folder }),
                Err(error) => last = Some((place, error.kind().into())),
            }
        }
        let (place, error): (PathBuf, std::io::Error) =
            last.unwrap_or_else(|| (PathBuf::from("/tmp"), std::io::ErrorKind::NotFound.into()));
        Err(error).step(&format!("make a folder in `{}`", place.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a folder in it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Refusal> {
        let path = self.path().join(name);
        fs::create_dir(&path).step("make a folder to try it in")?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An overlay leaves a folder there that not even its owner may look into.
        let closed = self.path().join("work/work");
        let _ = fs::set_permissions(closed, fs::Permissions::from_mode(0o700));
    }
}
