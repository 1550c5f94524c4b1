//! Files beyond E2B's service, by our own client against the real guest: directories, removing,
//! moving, copying, attributes, parts of files and uploads with a mode.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::stream;
use guest_proto::client::{Attributes, CopyOptions, GlobOptions, GrepOptions, MakeDirectory};
use guest_proto::version::FILES;
use guest_proto::{GuestClient, GuestError};
use harness::Guest;
use rustix::fs::{FileType, Mode, OFlags};

/// Who has no permissions of its own.
const NOBODY: u32 = 65534;
const ROOT: Option<&str> = Some("root");
const USER: Option<&str> = Some("nobody");

/// A guest, and a folder that belongs to nobody and everybody can enter.
struct Scene {
    _guest: Guest,
    client: GuestClient,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let guest = Guest::start();
        let client = guest.client();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { _guest: guest, client, folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    /// A file of nobody's.
    fn write(&self, name: &str, content: &str) {
        fs::write(self.at(name), content).unwrap();
        chown(self.at(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }

    /// A directory of nobody's.
    fn make(&self, name: &str) {
        fs::create_dir(self.at(name)).unwrap();
        chown(self.at(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }

    fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn copy(&self, from: &str, to: &str, options: CopyOptions) -> Result<(), GuestError> {
        self.client.copy_entry(&self.path(from), &self.path(to), USER, options).await
    }

    async fn relocate(&self, from: &str, to: &str, overwrite: bool) -> Result<(), GuestError> {
        self.client.move_entry(&self.path(from), &self.path(to), USER, overwrite).await
    }

    async fn remove(&self, name: &str, recursive: bool) -> Result<(), GuestError> {
        self.client.remove_entry(&self.path(name), USER, recursive).await
    }
}

const ONE: CopyOptions = CopyOptions { recursive: false, overwrite: false };
const TREE: CopyOptions = CopyOptions { recursive: true, overwrite: false };
const OVER: CopyOptions = CopyOptions { recursive: true, overwrite: true };

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn owner(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.gid())
}

/// Checks the kind of an error, and that its words name something.
macro_rules! refused {
    ($kind:ident, $result:expr, $words:expr) => {{
        let error = $result.unwrap_err();
        assert!(matches!(error, GuestError::$kind { .. }), "{error:?}");
        let words: &str = $words;
        assert!(error.to_string().contains(words), "{error} says nothing of {words}");
    }};
}

#[tokio::test]
async fn a_directory_has_exactly_the_mode_that_was_asked_and_belongs_to_the_user() {
    let scene = Scene::new();
    let make = |name: &str, parents, mode| {
        let path = scene.path(name);
        let client = &scene.client;
        async move { client.make_directory(&path, USER, MakeDirectory { parents, mode }).await }
    };
    make("plain", false, None).await.unwrap();
    assert_eq!((mode(&scene.at("plain")), owner(&scene.at("plain"))), (0o755, (NOBODY, NOBODY)));
    make("open", false, Some(0o1777)).await.unwrap();
    assert_eq!(mode(&scene.at("open")), 0o1777);
    make("shut", false, Some(0)).await.unwrap();
    assert_eq!(mode(&scene.at("shut")), 0);
    refused!(NotFound, make("a/b/c", false, None).await, "a/b/c");
    make("a/b/c", true, Some(0o700)).await.unwrap();
    assert_eq!((mode(&scene.at("a/b")), mode(&scene.at("a/b/c"))), (0o755, 0o700));
    assert_eq!(owner(&scene.at("a")), (NOBODY, NOBODY));

    refused!(AlreadyExists, make("plain", false, None).await, "plain");
    make("plain", true, Some(0o700)).await.unwrap();
    assert_eq!(mode(&scene.at("plain")), 0o755, "what was there is left as it is");
    scene.write("file", "");
    refused!(AlreadyExists, make("file", true, None).await, "is not a directory");
    refused!(NotADirectory, make("file/below", true, None).await, "file");
    symlink("nowhere", scene.at("link")).unwrap();
    refused!(AlreadyExists, make("link", false, None).await, "link");
    refused!(InvalidArgument, make("wrong", false, Some(0o10000)).await, "10000");
    refused!(PermissionDenied, make("shut/x", false, None).await, "shut/x");
    let below_root = scene.client.make_directory("/soma-test", USER, MakeDirectory::default());
    refused!(PermissionDenied, below_root.await, "/soma-test");
}

#[tokio::test]
async fn a_full_directory_is_removed_only_with_all_in_it() {
    let scene = Scene::new();
    refused!(NotFound, scene.remove("none", true).await, "none");
    refused!(NotFound, scene.remove("none/below", false).await, "none/below");
    scene.make("full");
    scene.write("full/file", "");
    refused!(NotEmpty, scene.remove("full", false).await, "is not empty; remove it recursively");
    assert!(scene.at("full/file").exists());
    symlink("full", scene.at("link")).unwrap();
    scene.remove("link", true).await.unwrap();
    assert!(scene.at("full/file").exists(), "a link is removed and not what it leads to");
    scene.remove("full", true).await.unwrap();
    scene.make("empty");
    scene.remove("empty", false).await.unwrap();
    assert!(scene.names("").is_empty());

    fs::create_dir(scene.at("roots")).unwrap();
    fs::write(scene.at("roots/file"), "").unwrap();
    refused!(PermissionDenied, scene.remove("roots", true).await, "roots");
    assert!(scene.at("roots/file").exists());
    scene.client.remove_entry(&scene.path("roots"), ROOT, true).await.unwrap();
    refused!(InvalidArgument, scene.client.remove_entry("/", ROOT, true).await, "/");
    let mount = scene.client.remove_entry("/proc", ROOT, true).await;
    refused!(FailedPrecondition, mount, "mount point");
}

#[tokio::test]
async fn a_move_replaces_only_what_it_may() {
    let scene = Scene::new();
    scene.write("one", "1");
    scene.write("two", "2");
    refused!(AlreadyExists, scene.relocate("one", "two", false).await, "two");
    assert_eq!(fs::read(scene.at("two")).unwrap(), b"2");
    scene.relocate("one", "two", true).await.unwrap();
    assert_eq!(fs::read(scene.at("two")).unwrap(), b"1");
    scene.relocate("two", "a/b/three", false).await.unwrap();
    assert_eq!(owner(&scene.at("a/b")), (NOBODY, NOBODY));
    refused!(NotFound, scene.relocate("two", "x", false).await, "two");
    refused!(InvalidArgument, scene.relocate("a", "a/b/c", false).await, "into itself");
    scene.make("full");
    scene.write("full/file", "");
    refused!(NotEmpty, scene.relocate("a", "full", true).await, "full");
    refused!(IsADirectory, scene.relocate("full/file", "a", true).await, "is a directory");
    refused!(NotADirectory, scene.relocate("a", "full/file", true).await, "is a directory");
    fs::create_dir(scene.at("roots")).unwrap();
    fs::write(scene.at("roots/file"), "").unwrap();
    refused!(PermissionDenied, scene.relocate("roots/file", "mine", false).await, "mine");
    refused!(PermissionDenied, scene.relocate("full/file", "roots/file2", false).await, "roots");
}

#[tokio::test]
async fn a_move_to_another_file_system_keeps_what_is_there_too() {
    let scene = Scene::new();
    let there = Memory::mount("1m");
    scene.make("tree");
    scene.make("tree/below");
    scene.write("tree/below/file", "content");
    fs::set_permissions(scene.at("tree/below"), Permissions::from_mode(0o555)).unwrap();
    let to = there.path("moved");
    // A directory without permission to write cannot be emptied by its owner, on either side.
    let moved = scene.client.move_entry(&scene.path("tree"), &to, USER, false).await;
    refused!(PermissionDenied, moved, "tree");
    fs::set_permissions(scene.at("tree/below"), Permissions::from_mode(0o755)).unwrap();
    let again = scene.client.move_entry(&scene.path("tree"), &to, USER, false).await;
    refused!(AlreadyExists, again, "moved");
    assert_eq!(fs::read(scene.at("tree/below/file")).unwrap(), b"content");
    let to = there.path("other");
    scene.client.move_entry(&scene.path("tree"), &to, USER, false).await.unwrap();
    assert!(!scene.at("tree").exists());
    let file = Path::new(&to).join("below/file");
    assert_eq!((fs::read(&file).unwrap(), owner(&file)), (b"content".to_vec(), (NOBODY, NOBODY)));
}

#[tokio::test]
async fn a_copy_has_content_and_mode_and_belongs_to_the_user() {
    let scene = Scene::new();
    let content = "line\n".repeat(1_000_000);
    fs::write(scene.at("roots"), &content).unwrap();
    fs::set_permissions(scene.at("roots"), Permissions::from_mode(0o4754)).unwrap();
    scene.copy("roots", "a/mine", ONE).await.unwrap();
    assert!(fs::read_to_string(scene.at("a/mine")).unwrap() == content);
    assert_eq!(owner(&scene.at("a/mine")), (NOBODY, NOBODY));
    assert_eq!(mode(&scene.at("a/mine")), 0o754, "no other owner gets the set-user-id bit");

    scene.write("other", "other");
    refused!(AlreadyExists, scene.copy("other", "a/mine", ONE).await, "a/mine");
    let over = CopyOptions { recursive: false, overwrite: true };
    scene.copy("other", "a/mine", over).await.unwrap();
    assert_eq!(fs::read(scene.at("a/mine")).unwrap(), b"other");
    scene.copy("a/mine", "a/mine", over).await.unwrap();
    assert_eq!(fs::read(scene.at("a/mine")).unwrap(), b"other");

    refused!(NotFound, scene.copy("none", "x", ONE).await, "none");
    fs::write(scene.at("secret"), "").unwrap();
    fs::set_permissions(scene.at("secret"), Permissions::from_mode(0o600)).unwrap();
    refused!(PermissionDenied, scene.copy("secret", "x", ONE).await, "secret");
    refused!(
        PermissionDenied,
        scene.client.copy_entry(&scene.path("other"), "/soma-test", USER, ONE).await,
        "/soma-test"
    );
    assert_eq!(scene.names(""), ["a", "other", "roots", "secret"], "nothing is left over");
}

#[tokio::test]
async fn a_tree_is_copied_with_its_links_and_none_is_followed() {
    let scene = Scene::new();
    scene.make("tree");
    scene.make("tree/shut");
    scene.write("tree/shut/file", "x");
    scene.write("tree/odd\nname", "y");
    symlink("/etc", scene.at("tree/out")).unwrap();
    symlink(".", scene.at("tree/loop")).unwrap();
    fs::set_permissions(scene.at("tree/shut"), Permissions::from_mode(0o555)).unwrap();
    refused!(FailedPrecondition, scene.copy("tree", "new", ONE).await, "copy it recursively");
    scene.copy("tree", "new", TREE).await.unwrap();
    assert_eq!(scene.names("new"), ["loop", "odd\nname", "out", "shut"]);
    assert_eq!(fs::read_link(scene.at("new/out")).unwrap(), Path::new("/etc"));
    assert_eq!(mode(&scene.at("new/shut")), 0o555);
    assert_eq!(fs::read(scene.at("new/shut/file")).unwrap(), b"x");
    symlink("tree", scene.at("link")).unwrap();
    scene.copy("link", "link2", ONE).await.unwrap();
    assert_eq!(fs::read_link(scene.at("link2")).unwrap(), Path::new("tree"));

    refused!(AlreadyExists, scene.copy("tree", "new", TREE).await, "new");
    refused!(NotEmpty, scene.copy("tree", "new", OVER).await, "new");
    scene.make("empty");
    scene.copy("tree", "empty", OVER).await.unwrap();
    assert!(scene.at("empty/out").is_symlink());
    for inside in ["tree/copy", "link/copy", "tree/shut/../copy"] {
        refused!(InvalidArgument, scene.copy("tree", inside, TREE).await, "into itself");
    }
    let pipe = Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, scene.at("new/pipe"), FileType::Fifo, pipe, 0).unwrap();
    refused!(InvalidArgument, scene.copy("new", "x", TREE).await, "new/pipe' is a pipe");
    let device = scene.client.copy_entry("/dev/null", &scene.path("x"), ROOT, ONE).await;
    refused!(InvalidArgument, device, "is a device");
    fs::set_permissions(scene.at("tree/shut"), Permissions::from_mode(0o700)).unwrap();
    chown(scene.at("tree/shut"), Some(0), Some(0)).unwrap();
    refused!(PermissionDenied, scene.copy("tree", "x", TREE).await, "tree/shut");
    assert_eq!(scene.names(""), ["empty", "link", "link2", "new", "tree"], "nothing is left over");
}

#[tokio::test]
async fn a_tree_deeper_than_any_path_is_copied_and_removed() {
    const LEVELS: usize = 5000;
    let scene = Scene::new();
    scene.make("deep");
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = rustix::fs::open(scene.at("deep"), open, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, "d", open, Mode::empty()).unwrap();
    }
    rustix::fs::symlinkat("end", &at, "end").unwrap();
    let root = |name: &str| scene.path(name);
    scene.client.copy_entry(&root("deep"), &root("copy"), ROOT, TREE).await.unwrap();
    let mut at: OwnedFd = rustix::fs::open(scene.at("copy"), open, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        at = rustix::fs::openat(&at, "d", open, Mode::empty()).unwrap();
    }
    rustix::fs::readlinkat(&at, "end", Vec::new()).unwrap();
    let options = GlobOptions { pattern: "**/end".to_owned(), ..GlobOptions::default() };
    let found = scene.client.glob(&root("deep"), USER, options).await.unwrap();
    assert_eq!((found.paths.len(), found.truncated), (1, false));
    for name in ["deep", "copy"] {
        scene.client.remove_entry(&root(name), ROOT, true).await.unwrap();
        assert!(!scene.at(name).exists());
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_nothing_is_left_on_it() {
    let scene = Scene::new();
    let there = Memory::mount("256k");
    scene.make("tree");
    scene.write("tree/a", "small");
    scene.write("tree/large", &"x".repeat(1 << 20));
    scene.make("tree/shut");
    fs::set_permissions(scene.at("tree/shut"), Permissions::from_mode(0o0)).unwrap();
    for (from, options) in [("tree/large", ONE), ("tree", TREE)] {
        let to = there.path("x");
        let full = scene.client.copy_entry(&scene.path(from), &to, USER, options).await;
        refused!(NoSpace, full, "not enough disk space");
        assert_eq!(fs::read_dir(&there.folder).unwrap().count(), 0);
    }
    let (from, to) = (scene.path("tree/large"), there.path("x"));
    let moved = scene.client.move_entry(&from, &to, USER, false).await;
    refused!(NoSpace, moved, "not enough disk space");
    assert!(scene.at("tree/large").exists());
    let body = stream::iter([Ok(Bytes::from(vec![0; 1 << 20]))]);
    refused!(NoSpace, scene.client.upload(&there.path("x"), ROOT, body).await, "space");
}

#[tokio::test]
async fn what_would_take_the_guests_memory_is_not_copied_into_it() {
    let scene = Scene::new();
    let there = Memory::mount("128m");
    fs::write(scene.at("large"), vec![0; 70 << 20]).unwrap();
    let copied = scene.client.copy_entry(&scene.path("large"), &there.path("x"), USER, ONE).await;
    refused!(NoSpace, copied, "in memory");
    assert_eq!(fs::read_dir(&there.folder).unwrap().count(), 0);
}

#[tokio::test]
async fn attributes_change_as_far_as_the_user_may() {
    let scene = Scene::new();
    scene.write("mine", "");
    fs::write(scene.at("roots"), "").unwrap();
    let set = |name: &str, user, attributes: Attributes| {
        let path = scene.path(name);
        let client = &scene.client;
        async move { client.set_attributes(&path, user, attributes).await }
    };
    let to_mode = |mode| Attributes { mode: Some(mode), ..Attributes::default() };
    let to_owner =
        |owner: &str| Attributes { owner: Some(owner.to_owned()), ..Attributes::default() };
    let to_group =
        |group: &str| Attributes { group: Some(group.to_owned()), ..Attributes::default() };
    set("mine", USER, to_mode(0o4711)).await.unwrap();
    assert_eq!(mode(&scene.at("mine")), 0o4711);
    symlink("mine", scene.at("link")).unwrap();
    set("link", USER, to_mode(0o640)).await.unwrap();
    assert_eq!(mode(&scene.at("mine")), 0o640);
    refused!(PermissionDenied, set("roots", USER, to_mode(0o777)).await, "roots");
    refused!(PermissionDenied, set("mine", USER, to_owner("root")).await, "mine");
    refused!(PermissionDenied, set("mine", USER, to_group("root")).await, "mine");
    refused!(NotFound, set("none", USER, to_mode(0o777)).await, "none");
    refused!(InvalidArgument, set("mine", USER, Attributes::default()).await, "nothing to change");
    refused!(InvalidArgument, set("mine", ROOT, to_owner("who")).await, "no user 'who'");
    refused!(InvalidArgument, set("mine", ROOT, to_group("who")).await, "no group 'who'");
    refused!(InvalidArgument, set("mine", USER, to_mode(0o10000)).await, "10000");
    set("roots", ROOT, to_owner("nobody")).await.unwrap();
    set("roots", ROOT, to_group("12345")).await.unwrap();
    assert_eq!(owner(&scene.at("roots")), (NOBODY, 12345));
    let all = Attributes {
        mode: Some(0o6755),
        owner: Some("0".to_owned()),
        group: Some("root".to_owned()),
    };
    set("roots", ROOT, all).await.unwrap();
    assert_eq!((mode(&scene.at("roots")), owner(&scene.at("roots"))), (0o6755, (0, 0)));
}

async fn part(
    scene: &Scene,
    name: &str,
    start: u64,
    length: Option<u64>,
) -> (Vec<u8>, Option<u64>) {
    let path = scene.path(name);
    let mut download = scene.client.download_range(&path, ROOT, start, length).await.unwrap();
    let (told, mut all) = (download.length(), Vec::new());
    while let Some(bytes) = download.next().await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    if let Some(told) = told {
        assert_eq!(told, all.len() as u64);
    }
    (all, download.total())
}

#[tokio::test]
async fn a_part_of_a_file_is_exactly_that_part() {
    let scene = Scene::new();
    let content: Vec<u8> = (0..=250).cycle().take(600_001).collect();
    fs::write(scene.at("file"), &content).unwrap();
    let size = content.len() as u64;
    for (start, length) in [(0, None), (5, Some(10)), (600_000, Some(1)), (599_990, None)] {
        let end = length.map_or(size, |length| start + length);
        let expected = &content[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
        let (found, total) = part(&scene, "file", start, length).await;
        assert!(found == expected, "{start} {length:?}");
        assert_eq!(total, Some(size));
    }
    assert_eq!(part(&scene, "file", 600_000, Some(100)).await.0, content[600_000..]);
    for (start, length) in [(size, None), (size + 5, Some(3)), (3, Some(0)), (u64::MAX, Some(9))] {
        assert!(part(&scene, "file", start, length).await.0.is_empty(), "{start} {length:?}");
    }
    fs::write(scene.at("empty"), "").unwrap();
    assert!(part(&scene, "empty", 4, Some(2)).await.0.is_empty());
    // It tells no length, so all of it comes, and only the part is given on.
    let mut version = scene.client.download_range("/proc/version", ROOT, 1, Some(4)).await.unwrap();
    assert_eq!(version.next().await.unwrap().unwrap(), "inux");
    assert_eq!(version.next().await.unwrap(), None);

    let folder = scene.client.download_range(&scene.path(""), ROOT, 0, Some(1)).await;
    refused!(IsADirectory, folder, "is a directory");
    refused!(IsADirectory, scene.client.download(&scene.path(""), ROOT).await, "is a directory");
    refused!(NotFound, scene.client.download_range("/none", ROOT, 0, None).await, "/none");
}

#[tokio::test]
async fn an_upload_has_exactly_the_mode_that_was_asked() {
    let scene = Scene::new();
    let upload = |name: &str, mode| {
        let body = stream::iter([Ok(Bytes::from_static(b"content"))]);
        let path = scene.path(name);
        let client = &scene.client;
        async move { client.upload_with(&path, USER, mode, body).await }
    };
    upload("a/new", Some(0o4666)).await.unwrap();
    assert_eq!((mode(&scene.at("a/new")), owner(&scene.at("a/new"))), (0o4666, (NOBODY, NOBODY)));
    upload("a/new", Some(0o600)).await.unwrap();
    assert_eq!(mode(&scene.at("a/new")), 0o600, "also of a file that is replaced");
    upload("a/new", None).await.unwrap();
    assert_eq!(mode(&scene.at("a/new")), 0o600);
    upload("plain", None).await.unwrap();
    assert_eq!(mode(&scene.at("plain")), 0o644);
    refused!(InvalidArgument, upload("x", Some(0o10000)).await, "10000");
    refused!(IsADirectory, upload("a", Some(0o600)).await, "is a directory");
    refused!(NotADirectory, upload("plain/below", None).await, "is not a directory");
    assert!(!scene.at("x").exists());
}

#[tokio::test]
async fn a_guest_from_before_is_refused_at_once() {
    let guest = Guest::start_as(&["--protocol", "2"]);
    let client = guest.client();
    assert_eq!(client.version().await.unwrap().protocol, 2);
    client.ports().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let path = path.to_str().unwrap();
    let too_old = |result: Result<(), GuestError>| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, GuestError::TooOld { needs, has: 2 } if needs == FILES),
            "{error:?}"
        );
    };
    too_old(client.make_directory(path, ROOT, MakeDirectory::default()).await);
    too_old(client.remove_entry(path, ROOT, true).await);
    too_old(client.move_entry(path, path, ROOT, true).await);
    too_old(client.copy_entry(path, path, ROOT, ONE).await);
    too_old(client.set_attributes(path, ROOT, Attributes::default()).await);
    too_old(client.glob(path, ROOT, GlobOptions::default()).await.map(drop));
    too_old(client.grep(path, ROOT, GrepOptions::default()).await.map(drop));
    let body = || stream::iter([Ok(Bytes::from_static(b"content"))]);
    too_old(client.upload_with(path, ROOT, Some(0o600), body()).await);
    client.upload_with(path, ROOT, None, body()).await.unwrap();
    assert_eq!(client.download_range(path, ROOT, 3, None).await.unwrap().length(), Some(4));
}

/// A file system in memory, gone when dropped.
struct Memory {
    folder: PathBuf,
    _parent: tempfile::TempDir,
}

impl Memory {
    fn mount(size: &str) -> Self {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
        let folder = parent.path().join("memory");
        fs::create_dir(&folder).unwrap();
        let data = std::ffi::CString::new(format!("size={size},mode=0777")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", &folder, "tmpfs", flags, data.as_c_str()).unwrap();
        Self { folder, _parent: parent }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What is still open there keeps it, without a name.
        let _ = rustix::mount::unmount(&self.folder, rustix::mount::UnmountFlags::DETACH);
    }
}
