//! What became of an image that was made into a template.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most that a report takes as JSON.
pub const LARGEST_REPORT: usize = 48 << 10;

/// More warnings than this say nothing new.
const MOST_WARNINGS: usize = 50;

/// What became of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageReport {
    /// What the archive was.
    pub format: ImageFormat,
    /// The digest of the image's manifest, for images that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What the image says about how to run it.
    #[serde(default)]
    pub config: ImageConfig,
    /// What was unpacked, and what was not.
    #[serde(default)]
    pub counts: ImageCounts,
    /// What its maker may want to know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What an archive was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    /// The files of a system.
    #[default]
    RootFileSystem,
    /// An OCI layout with one image.
    OciLayout,
    /// What `docker save` writes, with one image.
    DockerArchive,
}

/// What was unpacked, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageCounts {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Layers of the image.
    pub layers: u64,
    /// Names that a later layer removed.
    pub whiteouts: u64,
    /// Device files, which are left out.
    pub devices_dropped: u64,
    /// Set-user-id and set-group-id bits of files, which are taken off.
    pub privileges_dropped: u64,
    /// Extended attributes, which are left out but for those of users.
    pub attributes_dropped: u64,
    /// Entries of kinds that nobody knows, which are left out.
    pub unknown_dropped: u64,
    /// Entries whose owner this template cannot have, and which are nobody's now.
    pub owners_changed: u64,
}

impl ImageReport {
    /// Adds a warning, unless there are plenty already.
    pub fn warn(&mut self, text: impl Into<String>) {
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(text.into());
        }
    }

    /// Puts what was dropped into words.
    pub fn warn_of_drops(&mut self) {
        let ImageCounts {
            devices_dropped,
            privileges_dropped,
            attributes_dropped,
            unknown_dropped,
            owners_changed,
            ..
        } = self.counts;
        for (count, what) in [
            (devices_dropped, "device files were left out: a sandbox has its own"),
            (privileges_dropped, "files lost their set-user-id or set-group-id bits"),
            (attributes_dropped, "extended attributes were left out, capabilities among them"),
            (unknown_dropped, "entries of unknown kinds were left out"),
            (owners_changed, "entries belong to nobody (65534): a sandbox lacks their owner's id"),
        ] {
            if count > 0 {
                self.warn(format!("{count} {what}"));
            }
        }
    }
}

/// What an image says about how to run it. Recorded; a sandbox takes its variables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// Variables for every command.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The program that it is meant to run, and its first arguments.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// Its further arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// Where it is meant to run.
    #[serde(default)]
    pub working_folder: String,
    /// Who is meant to run it.
    #[serde(default)]
    pub user: String,
    /// Ports that it serves, such as `8080/tcp`.
    #[serde(default)]
    pub ports: Vec<String>,
}
