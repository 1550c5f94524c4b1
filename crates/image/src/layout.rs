//! Images that come in layers: an OCI layout, or what `docker save` writes.
//!
//! All of it lies in a tree already, as files of an archive. What describes the image is read and
//! followed from the index to one manifest for this machine; every part is checked against the
//! digest and the size by which another names it, and every layer against the digest that the
//! configuration has of it.

use std::fs::File;
use std::io::{self, Read};

use domain::{ImageFormat, ImageReport};
use rustix::fs::{FileType, OFlags, fstat};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bounds::Meter;
use crate::config::Written;
use crate::decompress::decompress;
use crate::digest::{Digest, Summed};
use crate::entry::Path;
use crate::error::{ImageError, Step, shown};
use crate::tree::Tree;
use crate::unpack::{Whiteouts, put_all};

/// An index may name others, but not without end.
const MOST_INDEXES: usize = 4;

/// More layers than this has no image.
const MOST_LAYERS: usize = 512;

/// Folders that a root file system has and an archive of an image has not.
const OF_SYSTEMS: [&str; 4] = ["usr", "bin", "etc", "lib"];

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    config: Option<Written>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

/// What the files of an archive are.
pub(crate) fn recognise(arrived: &Tree) -> Result<ImageFormat, ImageError> {
    let is_file = |name: &str| {
        let found = arrived.open_plainly(&Path::own(name), OFlags::PATH | OFlags::CLOEXEC);
        found.and_then(fstat).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    };
    let is_there =
        |name: &str| arrived.open_plainly(&Path::own(name), OFlags::PATH | OFlags::CLOEXEC).is_ok();
    if OF_SYSTEMS.iter().any(|name| is_there(name)) {
        return Ok(ImageFormat::RootFileSystem);
    }
    if is_file("oci-layout") && is_file("index.json") {
        return Ok(ImageFormat::OciLayout);
    }
    if is_file("manifest.json") {
        return Ok(ImageFormat::DockerArchive);
    }
    let names = crate::tree::names_in(arrived.root()).step("read", b"/")?;
    if names.is_empty() {
        return Err(ImageError::unfit("there is nothing in the archive"));
    }
    Err(ImageError::unfit(
        "this is no image: it has neither `/usr`, `/bin`, `/etc` nor `/lib` as a system has, and no \
         `oci-layout` or `manifest.json` as an archive of an image has; make the archive from \
         within the folder (`tar -C FOLDER -cf - .`)",
    ))
}

/// Unpacks the layers of the one image that arrived.
pub(crate) fn unpack(
    arrived: &Tree,
    root: &Tree,
    report: &mut ImageReport,
) -> Result<(), ImageError> {
    let (configuration, layers) = match report.format {
        ImageFormat::DockerArchive => read_saved(arrived)?,
        _ => read_layout(arrived, report)?,
    };
    let Configuration { architecture, os, config, rootfs } = configuration;
    if !fits(&architecture, &os) {
        return Err(ImageError::unfit(format!(
            "the image is for `{}/{}`, and this machine is `linux/{}`",
            shown(os.as_bytes()),
            shown(architecture.as_bytes()),
            this_architecture()
        )));
    }
    if layers.len() != rootfs.diff_ids.len() {
        let reason = "its configuration has another number of layers than its manifest";
        return Err(ImageError::damaged(reason));
    }
    let meter = Meter::new(root.bounds);
    for (layer, content) in layers.iter().zip(&rootfs.diff_ids) {
        let content = Digest::parse(content)?;
        let file = layer.open(arrived)?;
        let stream = decompress(file).map_err(|error| meter.explain(&error))?;
        let (stream, sum) = Summed::new(stream);
        put_all(stream, root, &meter, Whiteouts::Removals, &mut report.counts)?;
        if sum.digest() != content {
            let digits = content.digits();
            return Err(ImageError::damaged(format!(
                "what is in a layer is not what its configuration names: sha256:{digits}"
            )));
        }
        report.counts.layers += 1;
    }
    report.config = config.unwrap_or_default().into_config(report);
    Ok(())
}

/// Where a layer lies, and what is known of it.
#[derive(Debug)]
enum Layer {
    Blob(Descriptor),
    Saved(String),
}

impl Layer {
    fn open(&self, arrived: &Tree) -> Result<File, ImageError> {
        match self {
            Self::Blob(descriptor) => {
                // Read once to check it and once to unpack it: nothing unchecked is unpacked.
                let mut file = open_blob(arrived, descriptor)?;
                check(&mut file, descriptor)?;
                open_blob(arrived, descriptor)
            }
            Self::Saved(name) => {
                open_file(arrived, &Path::parse(name.as_bytes(), &arrived.bounds)?)
            }
        }
    }
}

fn read_layout(
    arrived: &Tree,
    report: &mut ImageReport,
) -> Result<(Configuration, Vec<Layer>), ImageError> {
    let index: Index = parse(&read_small(arrived, open_file(arrived, &Path::own("index.json"))?)?)?;
    let chosen = choose(arrived, index)?;
    let manifest: Manifest = parse(&read_blob(arrived, &chosen)?)?;
    report.digest = Some(Digest::parse(&chosen.digest)?.to_text());
    check_count(manifest.layers.len())?;
    let configuration = parse(&read_blob(arrived, &manifest.config)?)?;
    Ok((configuration, manifest.layers.into_iter().map(Layer::Blob).collect()))
}

fn read_saved(arrived: &Tree) -> Result<(Configuration, Vec<Layer>), ImageError> {
    let file = open_file(arrived, &Path::own("manifest.json"))?;
    let mut saved: Vec<Saved> = parse(&read_small(arrived, file)?)?;
    let (Some(image), true) = (saved.pop(), saved.is_empty()) else {
        return Err(ImageError::unfit(
            "the archive must hold exactly one image: save one alone (`docker save IMAGE`)",
        ));
    };
    check_count(image.layers.len())?;
    let path = Path::parse(image.config.as_bytes(), &arrived.bounds)?;
    let configuration = parse(&read_small(arrived, open_file(arrived, &path)?)?)?;
    Ok((configuration, image.layers.into_iter().map(Layer::Saved).collect()))
}

/// Follows indexes to the one manifest for this machine.
fn choose(arrived: &Tree, mut index: Index) -> Result<Descriptor, ImageError> {
    for _ in 0..MOST_INDEXES {
        let fitting = index.manifests.iter().filter(|descriptor| {
            let platform = descriptor.platform.as_ref();
            platform.is_none_or(|platform| fits(&platform.architecture, &platform.os))
        });
        let mut fitting: Vec<Descriptor> = fitting.cloned().collect();
        let (Some(chosen), true) = (fitting.pop(), fitting.is_empty()) else {
            let wanted = this_architecture();
            let count = index.manifests.len();
            return Err(ImageError::unfit(format!(
                "among the {count} images of the layout there is not exactly one for \
                 `linux/{wanted}`: export one image alone"
            )));
        };
        let is_index =
            chosen.media_type.contains("index") || chosen.media_type.contains("manifest.list");
        if !is_index {
            return Ok(chosen);
        }
        index = parse(&read_blob(arrived, &chosen)?)?;
    }
    Err(ImageError::damaged("its indexes name each other without end"))
}

fn fits(architecture: &str, os: &str) -> bool {
    os == "linux" && architecture == this_architecture()
}

/// This machine's kind, in the words of images.
fn this_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn check_count(layers: usize) -> Result<(), ImageError> {
    if layers > MOST_LAYERS {
        return Err(ImageError::TooMuch { what: "layers", most: MOST_LAYERS as u64 });
    }
    Ok(())
}

fn read_blob(arrived: &Tree, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    check(&mut open_blob(arrived, descriptor)?, descriptor)?;
    read_small(arrived, open_blob(arrived, descriptor)?)
}

fn open_blob(arrived: &Tree, descriptor: &Descriptor) -> Result<File, ImageError> {
    let digest = Digest::parse(&descriptor.digest)?;
    open_file(arrived, &Path::own("blobs/sha256").join(digest.digits().as_bytes()))
}

/// Reads all of a blob, and compares it with what is said of it.
fn check(file: &mut File, descriptor: &Descriptor) -> Result<(), ImageError> {
    let (mut stream, sum) = Summed::new(file.take(descriptor.size.saturating_add(1)));
    let read = io::copy(&mut stream, &mut io::sink())
        .map_err(|error| ImageError::damaged(error.to_string()))?;
    if read != descriptor.size || sum.digest() != Digest::parse(&descriptor.digest)? {
        let name = shown(descriptor.digest.as_bytes());
        return Err(ImageError::damaged(format!("the blob `{name}` is not what its name says")));
    }
    Ok(())
}

fn open_file(arrived: &Tree, path: &Path) -> Result<File, ImageError> {
    let missing = || {
        let name = shown(path.bytes());
        ImageError::damaged(format!("`{name}`, which it needs, is not in it as a file"))
    };
    // Archives of older programs have links to layers; none of them leads out of the archive.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(arrived.open(path, flags).map_err(|_| missing())?);
    let stat = fstat(&file).step("look at", path.bytes())?;
    if FileType::from_raw_mode(stat.st_mode).is_file() { Ok(file) } else { Err(missing()) }
}

fn read_small(arrived: &Tree, file: File) -> Result<Vec<u8>, ImageError> {
    let most = arrived.bounds.metadata;
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| ImageError::damaged(error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(ImageError::TooMuch { what: "bytes in one description", most });
    }
    Ok(bytes)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ImageError::damaged(format!("what describes the image is odd: {error}")))
}
