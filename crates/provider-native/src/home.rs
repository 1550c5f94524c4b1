//! The folders of one Soma on this host.
//!
//! ```text
//! SOMA_HOME/
//!   engine.sock  engine.lock  engine.log
//!   guest/<version>/guest    every version of the guest that some sandbox runs
//!   base/<generation>/       the default template's own files, see `template`
//!   blank/<bytes>.ext4       formatted empty disks to copy
//!   prepared/<slot>/         bodies that nobody owns yet, or for no longer than a connection
//!   sandboxes/<id>/          sandboxes that are kept:
//!                            manifest.json  disk.ext4  ended.json  supervisor.sock
//! ```
//!
//! All of it is the engine's alone (mode 0700): ids on the disks inside are those that the
//! sandbox sees, so a file there can have set-user-id root for the host.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use domain::SandboxId;

use crate::failure::{Failure, Kind, Step};
use crate::fingerprint::fingerprint;

/// Where everything of one Soma lies.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The name of the engine's socket in it.
    pub(crate) const SOCKET: &'static str = "engine.sock";

    /// The home at this path; nothing is made yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the folders that are missing. Of what is there, only an empty folder or an earlier
    /// home of the same user is taken: an engine removes what it does not know in its home.
    pub(crate) fn make(&mut self) -> Result<(), Failure> {
        let name = format!("use the folder `{}`", self.root.display());
        make_folder(&self.root).step(&name)?;
        // One home is one home however it is spelt: the label of its cgroups depends on it.
        #[expect(clippy::disallowed_methods, reason = "a path of the host's owner, not a guest's")]
        let root = fs::canonicalize(&self.root).step(&name)?;
        self.root = root;
        let metadata = fs::metadata(&self.root).step(&name)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            let cause = format!("it belongs to user {}, choose another SOMA_HOME", metadata.uid());
            return Err(Failure::new(name, cause, Kind::Unsupported));
        }
        let is_empty = fs::read_dir(&self.root).step(&name)?.next().is_none();
        if !is_empty && !self.lock().exists() {
            let cause = "it is not empty and is no home of Soma's, choose another SOMA_HOME";
            return Err(Failure::new(name, cause, Kind::Unsupported));
        }
        // Before anything else is in it: another engine that starts now must know it for a home.
        OpenOptions::new().create(true).append(true).open(self.lock()).step(&name)?;
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700)).step(&name)?;
        for folder in ["guest", "base", "blank", "prepared", "sandboxes", "mount"] {
            make_folder(&self.root.join(folder)).step(&name)?;
        }
        Ok(())
    }

    /// The engine's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join(Self::SOCKET)
    }

    /// Held by the one engine of this home.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("engine.lock")
    }

    /// What the engine has to say.
    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("engine.log")
    }

    pub(crate) fn guests(&self) -> PathBuf {
        self.root.join("guest")
    }

    pub(crate) fn bases(&self) -> PathBuf {
        self.root.join("base")
    }

    pub(crate) fn blanks(&self) -> PathBuf {
        self.root.join("blank")
    }

    pub(crate) fn prepared(&self) -> PathBuf {
        self.root.join("prepared")
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> PathBuf {
        self.sandboxes().join(id.as_str())
    }

    /// An empty folder on which launchers assemble layers, each in a mount namespace of its own.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.root.join("mount")
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Tells what is of this home from what is of another on the same host.
    pub(crate) fn label(&self) -> u64 {
        fingerprint(self.root.as_os_str().as_encoded_bytes().iter().copied())
    }
}

/// Makes a folder for us alone, with its parents; one that is there is fine.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
