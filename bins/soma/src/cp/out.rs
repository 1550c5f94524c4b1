//! From a sandbox to here.

use std::io::Write as _;
use std::path::Path;

use guest_proto::GuestError;
use guest_proto::client::Download;
use guest_proto::filesystem::EntryInfo;

use super::folder::Folder;
use super::inside::{Inside, Kind, below, followed, kind};
use super::{here, is_contents};
use crate::failure::{FAILED, Failure, refused_inside};
use crate::output::progress::Progress;
use crate::output::{self, Stream};

/// The deepest tree that is copied. Each level holds a descriptor.
const DEEPEST: usize = 256;

/// Copies a file or a folder.
pub(super) async fn copy(
    inside: &Inside,
    source: &str,
    destination: &Path,
    progress: &Progress,
) -> Result<(), Failure> {
    let entry = find(inside, source).await?;
    if is_contents(source.as_bytes()) && destination.is_dir() {
        return match followed(&entry) {
            Kind::Folder => tree(inside, entry.path, Folder::open(destination)?, progress).await,
            _ => Err(no_file(source)),
        };
    }
    let (folder, name) = split(destination, &entry)?;
    match followed(&entry) {
        Kind::File => {
            progress.expect(u64::try_from(entry.size).ok());
            let download = inside.guest.download(&entry.path, inside.user()).await;
            let download = download.map_err(|error| refused_inside(&error))?;
            file(download, entry.mode, &folder, &name, progress).await
        }
        Kind::Folder => {
            let folder = folder.folder(&name, entry.mode)?;
            tree(inside, entry.path, folder, progress).await
        }
        Kind::Link | Kind::Other => Err(no_file(source)),
    }
}

/// Writes a file to standard output.
pub(super) async fn stream(
    inside: &Inside,
    source: &str,
    progress: &Progress,
) -> Result<(), Failure> {
    let entry = find(inside, source).await?;
    if !matches!(followed(&entry), Kind::File) {
        return Err(no_file(source));
    }
    progress.expect(u64::try_from(entry.size).ok());
    let download = inside.guest.download(&entry.path, inside.user()).await;
    let mut download = download.map_err(|error| refused_inside(&error))?;
    while let Some(bytes) = download.next().await.map_err(|error| refused_inside(&error))? {
        output::bytes(Stream::Stdout, &bytes)?;
        progress.passed(bytes.len());
    }
    Ok(())
}

async fn find(inside: &Inside, source: &str) -> Result<EntryInfo, Failure> {
    inside
        .find(source)
        .await?
        .ok_or_else(|| Failure::new(FAILED, format!("there is no `{source}` in the sandbox")))
}

fn no_file(source: &str) -> Failure {
    Failure::new(FAILED, format!("`{source}` in the sandbox is neither a file nor a folder"))
}

/// The folder that gets it, and what it is called there.
fn split(destination: &Path, entry: &EntryInfo) -> Result<(Folder, String), Failure> {
    // What it is called inside, from the path that the guest made of what was typed.
    let own_name = || entry.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let ends_in_slash = destination.as_os_str().as_encoded_bytes().ends_with(b"/");
    if destination.is_dir() || ends_in_slash {
        let name = match own_name() {
            "" => return Err(Failure::usage("the whole of a sandbox has no name to be copied to")),
            name => name.to_owned(),
        };
        return Ok((Folder::open(destination)?, name));
    }
    let name = destination.file_name().and_then(|name| name.to_str());
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
    name: &str,
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
    path: String,
    folder: Folder,
    progress: &Progress,
) -> Result<(), Failure> {
    struct Level {
        folder: Folder,
        path: String,
        left: std::vec::IntoIter<EntryInfo>,
    }
    let enter = async |folder: Folder, path: String| {
        let listed = inside.guest.list_dir(&path, 1, inside.user()).await;
        let left = listed.map_err(|error| refused_inside(&error))?.into_iter();
        Ok::<_, Failure>(Level { folder, path, left })
    };
    let mut left_out = 0_u64;
    let mut levels = vec![enter(folder, path).await?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.left.next() else {
            levels.pop();
            continue;
        };
        let path = below(&level.path, &entry.name);
        match kind(&entry) {
            Kind::File => {
                match inside.guest.download(&path, inside.user()).await {
                    Ok(download) => {
                        file(download, entry.mode, &level.folder, &entry.name, progress).await?;
                    }
                    // One file that nobody may read, or whose name is no text, does not keep the
                    // others.
                    Err(
                        error @ (GuestError::NotFound { .. }
                        | GuestError::PermissionDenied { .. }
                        | GuestError::IsADirectory { .. }
                        | GuestError::InvalidArgument { .. }
                        | GuestError::FailedPrecondition { .. }),
                    ) => {
                        left_out += 1;
                        progress.say(&format!("`{path}` is left out: {error}\n"));
                    }
                    Err(error) => return Err(refused_inside(&error)),
                }
            }
            Kind::Link => {
                let text = inside.link(&path).await?;
                level.folder.link(&entry.name, &text)?;
            }
            Kind::Folder => {
                let folder = level.folder.folder(&entry.name, entry.mode)?;
                if levels.len() >= DEEPEST {
                    let message = format!("`{path}` in the sandbox is too deep to be copied");
                    return Err(Failure::new(FAILED, message));
                }
                levels.push(enter(folder, path).await?);
            }
            Kind::Other => progress.say(&format!("`{path}` is left out: it is no file\n")),
        }
    }
    match left_out {
        0 => Ok(()),
        count => Err(Failure::new(FAILED, format!("{count} of the files could not be copied"))),
    }
}
