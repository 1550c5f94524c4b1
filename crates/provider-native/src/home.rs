//! The folders of one Soma on this host.
//!
//! ```text
//! SOMA_HOME/
//!   config.toml              what its owner wants; not the engine's affair
//!   daemon/                  the daemon's own, which no engine touches
//!   engine.sock  engine.lock  engine.log
//!   egress.sock  egress.log  network.json  egress/  the program for the network, what the
//!                            operator wants of it, and what it writes down
//!   guest/<version>/guest    every version of the guest that some sandbox runs
//!   base/<generation>/       the default template's own files, see `template`
//!   templates/<name>/<number>/  what was imported: tree/root  template.json
//!   blank/<bytes>.ext4       formatted empty disks to copy
//!   prepared/<slot>/         bodies that nobody owns yet, or for no longer than a connection,
//!                            and images that are being unpacked
//!   snapshots/<id>/          what was captured: snapshot.json  disk.ext4  asleep/ (`snapshot`)
//!   sandboxes/<id>/          sandboxes that are kept:
//!                            manifest.json  record.json  disk.ext4  ended-<slot>.json
//!                            supervisor.sock; each record has a copy beside it (`durable`)
//! ```
//!
//! All but the first two is the engine's alone: ids on the disks inside are those that the sandbox
//! sees, so a file there can have set-user-id root for the host. An ordinary user's home is closed
//! itself (mode 0700). Through root's anybody may pass (0711), because the daemon has no privileges
//! and must come to its folder; so every folder of the engine is closed by itself (0700), and so
//! is every file beside them (0600): who can open the lock can also hold it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use domain::{SandboxId, SnapshotId};

use crate::failure::{Failure, Kind, Step};
use crate::fingerprint::fingerprint;

/// What may lie in a folder before it becomes a home: neither is the engine's.
const OF_OTHERS: [&str; 3] = ["config.toml", "daemon", "daemon.log"];

/// Where everything of one Soma lies.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The name of the engine's socket in it.
    pub(crate) const SOCKET: &'static str = "engine.sock";
    /// The name of the egress program's socket in it.
    pub(crate) const EGRESS: &'static str = "egress.sock";

    /// The home at this path; nothing is made yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes the folders that are missing. Of what is there, only a folder with nothing of
    /// anybody else's or an earlier home of the same user is taken: an engine removes what it does
    /// not know in its home.
    pub(crate) fn make(&mut self) -> Result<(), Failure> {
        let name = format!("use the folder `{}`", self.root.display());
        let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(&self.root).step(&name)?;
        // One home is one home however it is spelt.
        #[expect(clippy::disallowed_methods, reason = "a path of the host's owner, not a guest's")]
        let root = fs::canonicalize(&self.root).step(&name)?;
        self.root = root;
        let metadata = fs::metadata(&self.root).step(&name)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            let cause = format!("it belongs to user {}, choose another SOMA_HOME", metadata.uid());
            return Err(Failure::new(name, cause, Kind::Unsupported));
        }
        if !self.lock().exists() && !self.is_empty().step(&name)? {
            let cause = "it is not empty and is no home of Soma's, choose another SOMA_HOME";
            return Err(Failure::new(name, cause, Kind::Unsupported));
        }
        // Before anything else is in it: another engine that starts now must know it for a home.
        open_own(&self.lock()).step(&name)?;
        if self.log().exists() {
            // In an earlier home nothing but the home itself was closed.
            open_own(&self.log()).step(&name)?;
        }
        fs::set_permissions(&self.root, Permissions::from_mode(mode)).step(&name)?;
        for folder in
            ["guest", "base", "blank", "prepared", "sandboxes", "snapshots", "templates", "mount"]
        {
            let folder = self.root.join(folder);
            make_folder(&folder).step(&name)?;
            fs::set_permissions(folder, Permissions::from_mode(0o700)).step(&name)?;
        }
        Ok(())
    }

    /// Whether nothing is in it but what an engine leaves alone.
    fn is_empty(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.root)? {
            let name = entry?.file_name();
            if !OF_OTHERS.iter().any(|other| name == *other) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The daemon's own folder. Whoever starts the daemon makes it.
    pub fn daemon(&self) -> PathBuf {
        self.root.join("daemon")
    }

    /// What the egress program writes down. It is its own.
    pub fn egress(&self) -> PathBuf {
        self.root.join("egress")
    }

    /// What the egress program has to say.
    pub(crate) fn egress_log(&self) -> PathBuf {
        self.root.join("egress.log")
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

    /// What was captured of sandboxes.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn snapshot(&self, id: &SnapshotId) -> PathBuf {
        self.snapshots().join(id.as_str())
    }

    /// The templates that were imported: a folder for each name, and in it one for each time.
    pub(crate) fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }

    /// An empty folder on which launchers assemble layers, each in a mount namespace of its own.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.root.join("mount")
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Tells what is of this home from what is of another on the same host. The folder itself says
    /// it and not its path: homes of containers have the path that the host's own has, and all of
    /// them may see the same cgroups.
    ///
    /// As long as something lives that an engine of the time made when it was the path, it is the
    /// path: `has` says whether cgroups with this label are of this home.
    pub(crate) fn label_now(&self, has: impl Fn(u64) -> bool) -> io::Result<u64> {
        let earlier = fingerprint(self.root.as_os_str().as_encoded_bytes().iter().copied());
        if has(earlier) { Ok(earlier) } else { self.label() }
    }

    fn label(&self) -> io::Result<u64> {
        let metadata = fs::metadata(&self.root)?;
        Ok(fingerprint([metadata.dev(), metadata.ino()].into_iter().flat_map(u64::to_le_bytes)))
    }
}

/// Opens a file for us alone, which is made if it is not there.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    // One that an earlier engine made may be open to others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes a folder for us alone, with its parents; one that is there is fine.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_way_to_the_daemon_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let mut home = Home::at(folder.path().join("home"));
        home.make().unwrap();
        let open = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        assert_eq!(mode(home.path()), open);
        for entry in fs::read_dir(home.path()).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        }
    }

    #[test]
    fn homes_are_told_apart_by_their_folders_and_not_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("home"), folder.path().join("moved"));
        Home::at(&path).make().unwrap();
        let first = Home::at(&path).label().unwrap();
        fs::rename(&path, &moved).unwrap();
        Home::at(&path).make().unwrap();
        assert_ne!(Home::at(&path).label().unwrap(), first);
        assert_eq!(Home::at(&moved).label().unwrap(), first);
    }

    #[test]
    fn what_an_earlier_engine_left_open_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut home = Home::at(folder.path());
        home.make().unwrap();
        fs::write(home.log(), "said").unwrap();
        for path in [home.lock(), home.log(), home.sandboxes()] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        home.make().unwrap();
        let modes = [home.lock(), home.log(), home.sandboxes()].map(|path| mode(&path));
        assert_eq!(modes, [0o600, 0o600, 0o700]);
    }

    #[test]
    fn a_folder_with_nothing_but_a_configuration_and_a_daemon_becomes_a_home() {
        let folder = tempfile::tempdir().unwrap();
        let mut home = Home::at(folder.path());
        fs::write(folder.path().join("config.toml"), "mine").unwrap();
        fs::create_dir(home.daemon()).unwrap();
        fs::write(home.daemon().join("store.db"), "").unwrap();
        home.make().unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("config.toml")).unwrap(), "mine");
        assert!(home.daemon().join("store.db").exists());
    }

    #[test]
    fn a_folder_with_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), "").unwrap();
        fs::write(folder.path().join("letters.txt"), "").unwrap();
        let failure = Home::at(folder.path()).make().unwrap_err();
        assert!(failure.to_string().contains("is not empty"), "{failure}");
    }
}
