//! From a sandbox to here.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use guest_proto::GuestError;
use guest_proto::client::Download;
use guest_proto::filesystem::EntryInfo;

use super::folder::Folder;
use super::inside::{Inside, Kind, below, followed, kind, last, name_of, path_of, shown};
use super::{all_or_said, here, is_contents};
use crate::failure::{FAILED, Failure, refused_inside};
use crate::output::progress::Progress;
use crate::output::{self, Stream};

/// The deepest tree that is copied. Each level holds a descriptor.
const DEEPEST: usize = 256;

/// Copies a file or a folder.
pub(super) async fn copy(
    inside: &Inside,
    source: &[u8],
    destination: &Path,
    progress: &Progress,
) -> Result<(), Failure> {
    let entry = find(inside, source).await?;
    if is_contents(source) && destination.is_dir() {
        return match followed(&entry) {
            Kind::Folder => {
                let path = path_of(&entry).to_owned();
                tree(inside, path, Folder::open(destination)?, progress).await
            }
            _ => Err(no_file(source)),
        };
    }
    let (folder, name) = split(destination, &entry)?;
    match followed(&entry) {
        Kind::File => {
            progress.expect(u64::try_from(entry.size).ok());
            let download = inside.guest.download(path_of(&entry), inside.user()).await;
            let download = download.map_err(|error| refused_inside(&error))?;
            file(download, entry.mode, &folder, &name, progress).await
        }
        Kind::Folder => {
            let folder = folder.folder(&name, entry.mode)?;
            tree(inside, path_of(&entry).to_owned(), folder, progress).await
        }
        Kind::Link | Kind::Other => Err(no_file(source)),
    }
}

/// Writes a file to standard output.
pub(super) async fn stream(
    inside: &Inside,
    source: &[u8],
    progress: &Progress,
) -> Result<(), Failure> {
    let entry = find(inside, source).await?;
    if !matches!(followed(&entry), Kind::File) {
        return Err(no_file(source));
    }
    progress.expect(u64::try_from(entry.size).ok());
    let download = inside.guest.download(path_of(&entry), inside.user()).await;
    let mut download = download.map_err(|error| refused_inside(&error))?;
    while let Some(bytes) = download.next().await.map_err(|error| refused_inside(&error))? {
        output::bytes(Stream::Stdout, &bytes)?;
        progress.passed(bytes.len());
    }
    Ok(())
}

async fn find(inside: &Inside, source: &[u8]) -> Result<EntryInfo, Failure> {
    inside.find(source).await?.ok_or_else(|| {
        Failure::new(FAILED, format!("there is no `{}` in the sandbox", shown(source)))
    })
}

fn no_file(source: &[u8]) -> Failure {
    let source = shown(source);
    Failure::new(FAILED, format!("`{source}` in the sandbox is neither a file nor a folder"))
}

/// The folder that gets it, and what it is called there.
fn split(destination: &Path, entry: &EntryInfo) -> Result<(Folder, Vec<u8>), Failure> {
    // What it is called inside, from the path that the guest made of what was typed.
    let ends_in_slash = destination.as_os_str().as_encoded_bytes().ends_with(b"/");
    if destination.is_dir() || ends_in_slash {
        let name = match last(path_of(entry)) {
            b"" => {
                return Err(Failure::usage("the whole of a sandbox has no name to be copied to"));
            }
            name => name.to_owned(),
        };
        return Ok((Folder::open(destination)?, name));
    }
    let name = destination.file_name().map(OsStrExt::as_bytes);
    let name = name.ok_or_else(|| {
        Failure::usage(format!("`{}` is no name for a file", destination.display()))
    })?;
    let folder = Folder::open(destination.parent().unwrap_or(Path::new("")))?;
    Ok((folder, name.to_owned()))
}

/// The download is begun first of all: what cannot be read empties nothing here.
async fn file(
    mut download: Download,
    mode: u32,
    folder: &Folder,
    name: &[u8],
    progress: &Progress,
) -> Result<(), Failure> {
    let (mut file, written) = folder.file(name, mode)?;
    while let Some(bytes) = download.next().await.map_err(|error| refused_inside(&error))? {
        file.write_all(&bytes).map_err(|error| here(&written, "written", error))?;
        progress.passed(bytes.len());
    }
    Ok(())
}

/// Copies all that is in a folder. A folder that is changed meanwhile is copied as it is found:
/// what it holds may be from anywhere inside, and ends up here where it was going to.
async fn tree(
    inside: &Inside,
    path: Vec<u8>,
    folder: Folder,
    progress: &Progress,
) -> Result<(), Failure> {
    struct Level {
        folder: Folder,
        path: Vec<u8>,
        left: std::vec::IntoIter<EntryInfo>,
    }
    let enter = async |folder: Folder, path: Vec<u8>| {
        let listed = inside.guest.list_dir(&path, 1, inside.user()).await;
        let left = listed.map_err(|error| refused_inside(&error))?.into_iter();
        Ok::<_, Failure>(Level { folder, path, left })
    };
    let mut left_out = 0_u64;
    let mut levels = vec![enter(folder, path).await?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.left.next() else {
            if let Some(level) = levels.pop() {
                level.folder.finish()?;
            }
            continue;
        };
        let name = name_of(&entry);
        let path = below(&level.path, name);
        match kind(&entry) {
            Kind::File => {
                match inside.guest.download(&path, inside.user()).await {
                    Ok(download) => {
                        file(download, entry.mode, &level.folder, name, progress).await?;
                    }
                    // One file that nobody may read, or whose name an older guest cannot be told,
                    // does not keep the others.
                    Err(
                        error @ (GuestError::NotFound { .. }
                        | GuestError::PermissionDenied { .. }
                        | GuestError::IsADirectory { .. }
                        | GuestError::InvalidArgument { .. }
                        | GuestError::FailedPrecondition { .. }),
                    ) => {
                        left_out += 1;
                        progress.say(&format!("`{}` is left out: {error}\n", shown(&path)));
                    }
                    Err(error) => return Err(refused_inside(&error)),
                }
            }
            Kind::Link => {
                let text = inside.link(&entry, &path).await?;
                level.folder.link(name, &text)?;
            }
            Kind::Folder => {
                let folder = level.folder.folder(name, entry.mode)?;
                if levels.len() >= DEEPEST {
                    let path = shown(&path);
                    let message = format!("`{path}` in the sandbox is too deep to be copied");
                    return Err(Failure::new(FAILED, message));
                }
                levels.push(enter(folder, path).await?);
            }
            Kind::Other => {
                progress.say(&format!("`{}` is left out: it is no file\n", shown(&path)));
            }
        }
    }
    all_or_said(left_out)
}
