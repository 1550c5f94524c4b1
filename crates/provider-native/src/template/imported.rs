//! Templates that were imported from images.
//!
//! `templates/<name>/<number>/` has `tree/root`, the files, and `template.json`, which the daemon
//! wrote. A name that is imported again gets the next number, so that sandboxes which stand on an
//! earlier one keep it; the highest is the one that new sandboxes get. One that is no whole system
//! but a layer over the host's has `layer` beside it: which Python of the host's it was made for.
//!
//! The files are an image's, so they are a stranger's: they are looked at only through mounts
//! within namespaces, and walked only by descriptors.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use domain::TemplateName;
use image::{Shift, copy};
use provider::TemplateKind;
use serde::{Deserialize, Serialize};

use super::{keep, python};
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::home::{Home, make_folder};
use crate::ids::IdRange;
use crate::remove::remove;
use crate::verbs::Record;

/// Where an image is unpacked, below a template's folder.
pub(crate) const TREE: &str = "tree";

const RECORD: &str = "template.json";

const LAYER: &str = "layer";

/// One import of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Imported {
    pub(crate) name: TemplateName,
    pub(crate) number: u64,
}

impl Imported {
    /// What new sandboxes get under this name.
    pub(crate) fn latest(home: &Home, name: &TemplateName) -> Option<Self> {
        let number = numbers(&home.templates().join(name.as_str())).into_iter().max()?;
        Some(Self { name: name.clone(), number })
    }

    /// All that are there, the latest of each name.
    pub(crate) fn all(home: &Home) -> Vec<Self> {
        let mut names: Vec<TemplateName> =
            entries(&home.templates()).iter().filter_map(|name| name.parse().ok()).collect();
        names.sort();
        names.iter().filter_map(|name| Self::latest(home, name)).collect()
    }

    /// Makes a folder with an unpacked image the next of this name.
    pub(crate) fn keep(
        home: &Home,
        name: &TemplateName,
        folder: &Path,
        Record(record): &Record,
        kind: TemplateKind,
    ) -> io::Result<Self> {
        if kind == TemplateKind::Layer {
            durable::put(folder, LAYER, python::of_this_host().as_bytes())?;
        }
        durable::put(folder, RECORD, record.as_bytes())?;
        durable::settle(folder)?;
        let parent = home.templates().join(name.as_str());
        make_folder(&parent)?;
        let number = numbers(&parent).into_iter().max().unwrap_or(0) + 1;
        fs::rename(folder, parent.join(number.to_string()))?;
        durable::settle(&parent)?;
        durable::settle(&home.templates())?;
        Ok(Self { name: name.clone(), number })
    }

    /// What was written down with it.
    pub(crate) fn record(&self, home: &Home) -> io::Result<Record> {
        let bytes = durable::read(&self.path(home), RECORD)?;
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        Ok(Record(text))
    }

    /// Whether it lies over the host's own system.
    pub(crate) fn is_layer(&self, home: &Home) -> bool {
        self.path(home).join(LAYER).exists()
    }

    /// Whether it is a layer that was made for another Python than the host's is now.
    pub(crate) fn is_stale(&self, home: &Home) -> bool {
        let fits = |made_for: Vec<u8>| made_for == python::of_this_host().as_bytes();
        self.is_layer(home) && !durable::read(&self.path(home), LAYER).is_ok_and(fits)
    }

    /// Its own folder.
    pub(crate) fn path(&self, home: &Home) -> PathBuf {
        home.templates().join(self.name.as_str()).join(self.number.to_string())
    }

    /// Its files. Where no mount shifts ids, a copy for the `own` ones is made when it is not
    /// there, as large as the template: see [`Imported::needs_copy`].
    pub(super) fn folder(&self, home: &Home, own: Option<IdRange>) -> Result<PathBuf, Failure> {
        let step = format!("find the files of the template `{}`", self.name);
        let first = self.first(home);
        let owner = fs::symlink_metadata(&first).step(&step)?.uid();
        let Some(ids) = own.filter(|ids| ids.outside(0) != owner) else { return Ok(first) };
        let folder = self.copy_for(home, ids);
        if belongs_to(&folder, ids) {
            return Ok(folder);
        }
        let step = format!("copy the template `{}` for other ids", self.name);
        let new = self.path(home).join(format!("root-{}.{}.new", ids.base, std::process::id()));
        fs::create_dir(&new).step(&step)?;
        let open = |path: &Path| Ok::<_, io::Error>(OwnedFd::from(File::open(path)?));
        let shift = Shift { from: owner, to: ids.outside(0) };
        let copied = open(&first).and_then(|from| copy(&from, &open(&new)?, shift));
        let kept = copied.and_then(|()| keep(&new, &folder));
        if let Err(error) = kept {
            let _ = remove(&new);
            return Err(Failure::new(step, error, Kind::Broken));
        }
        Ok(folder)
    }

    /// Whether [`Imported::folder`] makes a copy first, which may take its time.
    pub(super) fn needs_copy(&self, home: &Home, own: Option<IdRange>) -> bool {
        let is_there =
            |ids| belongs_to(&self.first(home), ids) || belongs_to(&self.copy_for(home, ids), ids);
        own.is_some_and(|ids| !is_there(ids))
    }

    /// The files as they were unpacked.
    fn first(&self, home: &Home) -> PathBuf {
        self.path(home).join(TREE).join(image::ROOT)
    }

    fn copy_for(&self, home: &Home, ids: IdRange) -> PathBuf {
        self.path(home).join(format!("root-{}", ids.base))
    }
}

/// Whether a folder is there and has the owner that a sandbox with these ids needs.
fn belongs_to(folder: &Path, ids: IdRange) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.uid() == ids.outside(0))
}

/// Names whose every import is `unused`, and imports that nobody gets any more: given to `discard`.
pub(crate) fn remove_unused(
    home: &Home,
    is_used: impl Fn(&TemplateName, u64) -> bool,
    discard: &mut dyn FnMut(PathBuf),
) {
    for text in entries(&home.templates()) {
        let folder = home.templates().join(&text);
        let Ok(name) = text.parse::<TemplateName>() else {
            discard(folder);
            continue;
        };
        let latest = numbers(&folder).into_iter().max();
        for entry in entries(&folder) {
            let path = folder.join(&entry);
            match entry.parse::<u64>() {
                Ok(number) if Some(number) == latest || is_used(&name, number) => {
                    // A copy whose maker was killed.
                    for part in entries(&path).into_iter().map(|part| path.join(part)) {
                        if part.extension().is_some_and(|extension| extension == "new") {
                            discard(part);
                        }
                    }
                }
                _ => discard(path),
            }
        }
        // Only a name without any import goes.
        let _ = fs::remove_dir(&folder);
    }
}

/// The imports of a name that are whole.
fn numbers(folder: &Path) -> Vec<u64> {
    let numbers = entries(folder).into_iter().filter_map(|entry| entry.parse().ok());
    numbers.filter(|number: &u64| folder.join(number.to_string()).join(RECORD).exists()).collect()
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
