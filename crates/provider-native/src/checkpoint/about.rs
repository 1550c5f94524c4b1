//! What is written down beside a sandbox's images: how to restore them, and their checksums.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable;

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 1;

const NAME: &str = "about.json";

/// What is known of a sandbox's images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    version: u32,
    /// What its tree is made of beside its root, by the names that CRIU knows them under.
    pub(crate) outside: Vec<Outside>,
    /// The processes, as the sandbox counts them, that were in the guest's cgroup.
    pub(crate) guests: Vec<i32>,
    /// The same of the reserve's. All others were in the workload's.
    pub(crate) reserves: Vec<i32>,
    /// The layers of isolation that CRIU does not carry: they are not put on again.
    pub(crate) lost_layers: Vec<domain::Layer>,
    /// Each image with its length and its checksum.
    images: BTreeMap<String, (u64, String)>,
}

/// A file system that CRIU does not make itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outside {
    pub(crate) name: String,
    /// Where it is in the sandbox.
    pub(crate) path: String,
    /// The controllers of a cgroup hierarchy, none for version 2; unset for all others.
    pub(crate) controllers: Option<Vec<String>>,
}

impl About {
    /// Sums up all images that are in a folder.
    pub(crate) fn of(
        folder: &Path,
        outside: Vec<Outside>,
        [guests, reserves]: [Vec<i32>; 2],
    ) -> io::Result<Self> {
        let mut images = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let file = File::open(entry.path())?;
            file.sync_all()?;
            images.insert(name, sum(file)?);
        }
        let (version, lost_layers) = (VERSION, vec![domain::Layer::Landlock]);
        Ok(Self { version, outside, guests, reserves, lost_layers, images })
    }

    /// Reads it, and sees whether all images are what they were.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let about: Self = serde_json::from_slice(&durable::read(folder, NAME)?)?;
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        if about.version > VERSION {
            let found = about.version;
            return Err(damaged(format!(
                "they have version {found}, and this soma reads up to {VERSION}"
            )));
        }
        for (name, known) in &about.images {
            if name.contains('/') || sum(File::open(folder.join(name))?)? != *known {
                return Err(damaged(format!("`{name}` is damaged: its checksum does not fit")));
            }
        }
        Ok(about)
    }

    /// Writes it into the folder of the images, so that both survive the host's death.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        durable::put(folder, NAME, &serde_json::to_vec_pretty(self)?)?;
        durable::settle(folder)
    }
}

/// The length of a file and a checksum of it: FNV-1a over words of eight bytes, because images are
/// large. It finds damage, and keeps nobody out: the folder does that.
fn sum(mut file: File) -> io::Result<(u64, String)> {
    let (mut length, mut hash) = (0u64, 0xcbf2_9ce4_8422_2325u64);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        for word in buffer[..filled].chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0100_0000_01b3);
            hash ^= hash >> 32;
        }
        length += filled as u64;
        if filled < buffer.len() {
            return Ok((length, format!("{hash:016x}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_another_in_any_image_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for (name, length) in [("pages-1.img", 3_000_001), ("core-1.img", 17), ("empty.img", 0)] {
            fs::write(folder.join(name), vec![7u8; length]).unwrap();
        }
        let about = About::of(folder, Vec::new(), [vec![1], vec![3]]).unwrap();
        about.write(folder).unwrap();
        assert_eq!(About::read(folder).unwrap(), about);
        for (name, place) in [("pages-1.img", 3_000_000), ("pages-1.img", 0), ("core-1.img", 16)] {
            let whole = fs::read(folder.join(name)).unwrap();
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            fs::write(folder.join(name), bytes).unwrap();
            let error = About::read(folder).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            fs::write(folder.join(name), whole).unwrap();
        }
        fs::remove_file(folder.join("empty.img")).unwrap();
        assert!(About::read(folder).is_err());
    }
}
