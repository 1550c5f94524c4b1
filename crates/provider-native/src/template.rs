//! The default template: this host's own `/usr`, and little else of it.
//!
//! The lower layer of `/usr` is the host's, read-only. Everything beside it comes from a small
//! tree that is built here once for each state of the host's packages, called a generation:
//! folders, an unprivileged user, and an allow-list of `/etc` ([`etc`]), because many links in
//! `/usr` point there. Nothing of the host's homes, keys, sockets or environment is in it.
//!
//! Beside it there may be any number of others, which were imported from images ([`imported`]):
//! those bring all of their files, and nothing of the host's is in them. Some are layers: what
//! they have of `/usr` lies over the host's own, and all else is the default template's.
//!
//! A generation is never changed. When the host's packages change, new sandboxes get a new one
//! and those that run keep theirs.

mod etc;
mod imported;
mod packages;
mod python;
mod tree;
mod usr;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Step};
use crate::fingerprint::fingerprint;
use crate::home::Home;
use crate::ids::IdRange;

pub(crate) use imported::{Imported, TREE, remove_unused};

/// What a sandbox stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The host's own system, in one of its states.
    Host(Generation),
    /// An image that somebody imported.
    Imported(Imported),
    /// A layer over the host's own system, in one of its states.
    Layered(Imported, Generation),
}

impl Ground {
    /// The host's own system as it is now.
    pub(crate) fn of_this_host() -> Self {
        Self::Host(Generation::of_this_host())
    }

    /// What a new sandbox on this template stands on.
    pub(crate) fn of_template(home: &Home, imported: Imported) -> Self {
        if imported.is_layer(home) {
            Self::Layered(imported, Generation::of_this_host())
        } else {
            Self::Imported(imported)
        }
    }

    /// Whether it is the host's own system in another state than this.
    pub(crate) fn is_other_than(&self, generation: &Generation) -> bool {
        matches!(self, Self::Host(own) if own != generation)
    }

    /// The folders with its files, ready to be layers; see [`Generation::folder`].
    pub(crate) fn folders(&self, home: &Home, own: Option<IdRange>) -> Result<Folders, Failure> {
        let (base, layer) = match self {
            Self::Host(generation) => (generation.folder(home, own)?, None),
            Self::Imported(imported) => (imported.folder(home, own)?, None),
            Self::Layered(imported, generation) => {
                (generation.folder(home, own)?, Some(imported.folder(home, own)?))
            }
        };
        Ok(Folders { base, layer })
    }

    /// Whether a copy of an image's files is made before that, which may take its time.
    pub(crate) fn needs_copy(&self, home: &Home, own: Option<IdRange>) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Imported(imported) | Self::Layered(imported, _) => imported.needs_copy(home, own),
        }
    }
}

/// The files of a template.
#[derive(Debug)]
pub(crate) struct Folders {
    /// What the sandbox's root is made of.
    pub(crate) base: PathBuf,
    /// What lies over the host's `/usr` beside what the base has of it.
    pub(crate) layer: Option<PathBuf>,
}

/// Raised when the tree that is built from the same host changes.
const LAYOUT: u64 = 3;

/// One state of the default template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generation(String);

impl Generation {
    /// The state that this host's packages are in now. Cheap enough for every create.
    pub(crate) fn of_this_host() -> Self {
        // What package managers touch with every change, and what administrators change by hand.
        let signs = [
            "/var/lib/dpkg/status",
            "/var/lib/rpm/rpmdb.sqlite",
            "/usr",
            "/usr/local/bin",
            "/etc/alternatives",
            "/etc/ld.so.cache",
            "/etc/ssl/certs",
            "/etc/apt",
        ];
        let stamps = signs.iter().flat_map(|sign| {
            let (seconds, nanoseconds, size) = fs::metadata(sign)
                .map_or((0, 0, 0), |file| (file.mtime(), file.mtime_nsec(), file.size()));
            [seconds.cast_unsigned(), nanoseconds.cast_unsigned(), size]
        });
        let hash = fingerprint([LAYOUT].into_iter().chain(stamps).flat_map(u64::to_le_bytes));
        Self(format!("{hash:016x}"))
    }

    /// One that a manifest or a folder names.
    pub(crate) fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Whether a folder with this name is of this generation.
    pub(crate) fn has_folder(&self, name: &str) -> bool {
        name.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// The folder of this generation; built when it is not there.
    ///
    /// All sandboxes have the same one where mounts shift its ids. Where they cannot, it is
    /// that of sandboxes with the `own` ids.
    pub(crate) fn folder(&self, home: &Home, own: Option<IdRange>) -> Result<PathBuf, Failure> {
        let name = match own {
            None => self.0.clone(),
            Some(ids) => format!("{}-{}", self.0, ids.base),
        };
        let folder = home.bases().join(&name);
        if let Some(ids) = own
            && fs::metadata(&folder).is_ok_and(|found| found.uid() != ids.outside(0))
        {
            // The user's subordinate ids are others by now: these files are nobody's here.
            let aside = home.bases().join(format!("{name}.{}.old", std::process::id()));
            fs::rename(&folder, aside).step("put an old template aside")?;
        }
        if !folder.exists() {
            let new = home.bases().join(format!("{name}.{}.new", std::process::id()));
            let built = tree::build(&new, own);
            let built = built.and_then(|()| keep(&new, &folder).step("keep the template"));
            if built.is_err() {
                let _ = fs::remove_dir_all(&new);
            }
            built?;
        }
        Ok(folder)
    }
}

/// Another launcher may have been faster, with the same result.
fn keep(new: &Path, folder: &Path) -> std::io::Result<()> {
    match fs::rename(new, folder) {
        Err(_) if folder.exists() => fs::remove_dir_all(new),
        other => other,
    }
}
