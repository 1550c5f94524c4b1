//! Finding names and lines, by our own client against the real guest.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use guest_proto::client::{Found, GlobOptions, GrepOptions, Lines};
use guest_proto::{GuestClient, GuestError};
use harness::{Guest, resident_kilobytes};

const USER: Option<&str> = Some("nobody");

struct Scene {
    guest: Guest,
    client: GuestClient,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let guest = Guest::start();
        let client = guest.client();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Self { guest, client, folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), content).unwrap();
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    /// What is found, relative to the folder.
    async fn glob(&self, pattern: &str, exclude: &[&str]) -> Vec<String> {
        let found = self.try_glob(pattern, exclude, None).await.unwrap();
        assert!(!found.truncated);
        let relative = |path: String| {
            Path::new(&path).strip_prefix(self.folder.path()).unwrap().to_str().unwrap().to_owned()
        };
        found.paths.into_iter().map(relative).collect()
    }

    async fn try_glob(
        &self,
        pattern: &str,
        exclude: &[&str],
        limit: Option<u32>,
    ) -> Result<Found, GuestError> {
        let exclude = exclude.iter().map(|one| (*one).to_owned()).collect();
        let options = GlobOptions { pattern: pattern.to_owned(), exclude, limit };
        self.client.glob(self.path(), USER, options).await
    }

    async fn grep(&self, options: GrepOptions) -> Result<Lines, GuestError> {
        self.client.grep(self.path(), USER, options).await
    }
}

fn lines(pattern: &str) -> GrepOptions {
    GrepOptions { pattern: pattern.to_owned(), ..GrepOptions::default() }
}

fn told(lines: &Lines, scene: &Scene) -> Vec<(String, u32, String)> {
    let relative = |path: &str| {
        Path::new(path).strip_prefix(scene.folder.path()).unwrap().to_str().unwrap().to_owned()
    };
    let matches = lines.matches.iter();
    matches.map(|found| (relative(&found.path), found.line, found.content.clone())).collect()
}

#[tokio::test]
async fn names_are_found_sorted_and_absolute() {
    let scene = Scene::new();
    for name in
        ["src/a.rs", "src/deep/b.rs", "src/c.txt", "a-b/x.rs", "a/x.rs", "node_modules/x.rs"]
    {
        scene.write(name, "");
    }
    assert_eq!(scene.glob("src/*.rs", &[]).await, ["src/a.rs"]);
    assert_eq!(
        scene.glob("src/**/*.{rs,txt}", &[]).await,
        ["src/a.rs", "src/c.txt", "src/deep/b.rs"]
    );
    let all = scene.glob("**/*.rs", &["node_modules"]).await;
    assert_eq!(all, ["a-b/x.rs", "a/x.rs", "src/a.rs", "src/deep/b.rs"]);
    let some = scene.glob("**", &["src/deep", "a*", "*.rs"]).await;
    assert_eq!(some, ["node_modules", "src", "src/c.txt"]);
    assert_eq!(scene.glob("[!sn]*", &[]).await, ["a", "a-b"]);
    assert_eq!(scene.glob("s?c", &[]).await, ["src"]);
}

#[tokio::test]
async fn links_are_found_and_not_followed_and_odd_names_hide_nothing() {
    let scene = Scene::new();
    scene.write("real/file", "");
    symlink(".", scene.at("real/loop")).unwrap();
    symlink("/", scene.at("out")).unwrap();
    scene.write("new\nline", "");
    fs::write(scene.folder.path().join(OsStr::from_bytes(b"not\xfftext")), "").unwrap();
    fs::create_dir(scene.at("shut")).unwrap();
    fs::write(scene.at("shut/hidden"), "").unwrap();
    fs::set_permissions(scene.at("shut"), Permissions::from_mode(0o700)).unwrap();
    let found = scene.glob("**", &[]).await;
    let expected =
        ["new\nline", "not\u{fffd}text", "out", "real", "real/file", "real/loop", "shut"];
    assert_eq!(found, expected);
    assert!(scene.glob("shut/*", &[]).await.is_empty(), "the user may not look into it");
    // What is named itself is followed.
    let below = GlobOptions { pattern: "real/f*".to_owned(), ..GlobOptions::default() };
    symlink(scene.path(), scene.at("self")).unwrap();
    let path = scene.at("self");
    let found = scene.client.glob(path.to_str().unwrap(), USER, below).await.unwrap();
    assert_eq!(found.paths, [path.join("real/file").to_str().unwrap()]);
}

#[tokio::test]
async fn a_search_for_names_that_cannot_be_is_refused() {
    let scene = Scene::new();
    scene.write("file", "");
    for (pattern, exclude, limit, words) in [
        ("[a", &[][..], None, "'[' is not closed"),
        ("", &[], None, "1 to 4096"),
        ("/etc/*", &[], None, "not at the root"),
        ("../*", &[], None, "match nothing"),
        ("*", &["{a"][..], None, "'{' is not closed"),
        ("*", &[], Some(0), "limit"),
        ("*", &[], Some(100_001), "limit"),
    ] {
        let error = scene.try_glob(pattern, exclude, limit).await.unwrap_err();
        assert!(matches!(error, GuestError::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let options = GlobOptions { pattern: "*".to_owned(), ..GlobOptions::default() };
    let at = |name: &str| scene.at(name).to_str().unwrap().to_owned();
    let error = scene.client.glob(&at("file"), USER, options.clone()).await.unwrap_err();
    assert!(matches!(error, GuestError::NotADirectory { .. }), "{error:?}");
    let error = scene.client.glob(&at("none"), USER, options.clone()).await.unwrap_err();
    assert!(matches!(error, GuestError::NotFound { .. }), "{error:?}");
    fs::create_dir(scene.at("shut")).unwrap();
    fs::set_permissions(scene.at("shut"), Permissions::from_mode(0o700)).unwrap();
    let error = scene.client.glob(&at("shut"), USER, options).await.unwrap_err();
    assert!(matches!(error, GuestError::PermissionDenied { .. }), "{error:?}");
    let error = scene.client.grep(&at("shut"), USER, lines("x")).await.unwrap_err();
    assert!(matches!(error, GuestError::PermissionDenied { .. }), "{error:?}");
}

#[tokio::test]
async fn more_than_the_limit_is_said() {
    let scene = Scene::new();
    for number in 0..30 {
        scene.write(&format!("{number:02}"), "line\nline\n");
    }
    let found = scene.try_glob("*", &[], Some(10)).await.unwrap();
    assert_eq!((found.paths.len(), found.truncated), (10, true));
    assert!(found.paths[9].ends_with("/09"));
    let found = scene.try_glob("*", &[], Some(30)).await.unwrap();
    assert_eq!((found.paths.len(), found.truncated), (30, false));
    let found = scene.grep(GrepOptions { limit: Some(7), ..lines("line") }).await.unwrap();
    assert_eq!((found.matches.len(), found.truncated), (7, true));
    let found = scene.grep(GrepOptions { limit: Some(60), ..lines("line") }).await.unwrap();
    assert_eq!((found.matches.len(), found.truncated), (60, false));
}

#[tokio::test]
async fn lines_are_found_with_their_numbers() {
    let scene = Scene::new();
    scene.write("a.rs", "fn one() {}\n// é\r\nfn two() {}");
    scene.write("below/b.rs", "let x = 1;\nfn three() {}\n");
    scene.write("below/c.txt", "fn four() {}\n");
    scene.write("node_modules/d.rs", "fn five() {}\n");
    symlink("a.rs", scene.at("link.rs")).unwrap();
    symlink(".", scene.at("below/loop")).unwrap();
    let options = GrepOptions {
        include: Some("*.rs".to_owned()),
        exclude: vec!["node_modules".to_owned()],
        ..lines(r"^fn \w+\(\)")
    };
    let found = scene.grep(options).await.unwrap();
    let expected = [
        ("a.rs".to_owned(), 1, "fn one() {}".to_owned()),
        ("a.rs".to_owned(), 3, "fn two() {}".to_owned()),
        ("below/b.rs".to_owned(), 2, "fn three() {}".to_owned()),
    ];
    assert_eq!((told(&found, &scene).as_slice(), found.truncated), (&expected[..], false));
    let found = scene.grep(lines("(?i)É$")).await.unwrap();
    assert_eq!(told(&found, &scene), [("a.rs".to_owned(), 2, "// é".to_owned())]);
    let include = Some("below/*.rs".to_owned());
    let found = scene.grep(GrepOptions { include, ..lines("fn") }).await.unwrap();
    assert_eq!(told(&found, &scene).len(), 1);

    let file = scene.at("link.rs");
    let found = scene.client.grep(file.to_str().unwrap(), USER, lines("two")).await.unwrap();
    assert_eq!((found.matches.len(), found.matches[0].line), (1, 3));
    assert_eq!(found.matches[0].path, file.to_str().unwrap());
}

#[tokio::test]
async fn what_is_no_text_or_not_for_the_user_is_passed_over() {
    let scene = Scene::new();
    scene.write("binary", b"needle\0needle\n");
    scene.write("text", b"a needle \xff\n");
    scene.write("shut", "needle\n");
    fs::set_permissions(scene.at("shut"), Permissions::from_mode(0o600)).unwrap();
    let large = fs::File::create(scene.at("large")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    let pipe = rustix::fs::Mode::from_raw_mode(0o644);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, scene.at("pipe"), kind, pipe, 0).unwrap();
    let found = scene.grep(lines("needle")).await.unwrap();
    assert_eq!(told(&found, &scene), [("text".to_owned(), 1, "a needle \u{fffd}".to_owned())]);

    for (pattern, words) in [("(a", "unclosed group"), ("", "1 to 4096"), ("a{999}{999}", "size")] {
        let error = scene.grep(lines(pattern)).await.unwrap_err();
        assert!(matches!(error, GuestError::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = scene.grep(GrepOptions { limit: Some(10_001), ..lines("x") }).await.unwrap_err();
    assert!(matches!(error, GuestError::InvalidArgument { .. }), "{error:?}");
    let pipe = scene.at("pipe");
    let error = scene.client.grep(pipe.to_str().unwrap(), USER, lines("x")).await.unwrap_err();
    assert!(error.to_string().contains("neither a file nor a directory"), "{error}");
}

#[tokio::test]
async fn a_line_without_end_takes_no_memory_and_is_told_in_short() {
    let scene = Scene::new();
    let mut line = "needle ".repeat(1000);
    line.push_str(&"x".repeat(60 << 20));
    scene.write("long", format!("{line}\nneedle\n"));
    scene.grep(lines("warm")).await.unwrap();
    let before = resident_kilobytes(scene.guest.pid());
    let found = scene.grep(lines("needle")).await.unwrap();
    let numbers: Vec<_> = found.matches.iter().map(|found| found.line).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(found.matches[0].content.len(), 4096);
    let after = resident_kilobytes(scene.guest.pid());
    assert!(after < before + 8192, "{before} kB became {after} kB");
}

#[tokio::test]
async fn a_large_answer_is_cut_and_reaches_the_client() {
    let scene = Scene::new();
    let line = format!("needle{}\n", "x".repeat(4090));
    scene.write("many", line.repeat(5000));
    let found = scene.grep(GrepOptions { limit: Some(10_000), ..lines("needle") }).await.unwrap();
    assert!(found.truncated);
    assert!((2900..4000).contains(&found.matches.len()), "{}", found.matches.len());
}
