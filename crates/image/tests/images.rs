//! Images as they come, and images that mean harm.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod archive;

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use archive::{Archive, Item};
use domain::{ImageFormat, ImageReport};
use image::{Bounds, ImageError, unpack};
use sha2::{Digest as _, Sha256};

/// A folder to unpack into, beside a file that must stay as it is.
struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("staging")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/canary"), "alive").unwrap();
        Self { folder }
    }

    fn unpack(&self, bytes: &[u8], bounds: Bounds) -> Result<ImageReport, ImageError> {
        let staging = OwnedFd::from(fs::File::open(self.folder.path().join("staging")).unwrap());
        let result = unpack(bytes, &staging, bounds);
        let outside = self.outside();
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "alive");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "something new lies outside");
        assert_eq!(fs::metadata(outside.join("canary")).unwrap().nlink(), 1);
        assert_eq!(fs::read_dir(self.folder.path()).unwrap().count(), 2);
        result
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("staging/root")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root().join(name)).unwrap()
    }
}

fn taken(archive: Archive) -> (Ground, ImageReport) {
    let ground = Ground::new();
    let report = ground.unpack(&archive.end(), Bounds::default()).unwrap();
    (ground, report)
}

fn refused(archive: Archive) -> String {
    let ground = Ground::new();
    ground.unpack(&archive.end(), Bounds::default()).unwrap_err().to_string()
}

#[test]
fn a_system_is_unpacked_and_furnished() {
    let archive = Archive::system()
        .folder("bin")
        .item(&Item { name: "bin/sh", mode: 0o755, content: b"#!", ..Item::default() })
        .link("etc/hosts", "/etc/passwd")
        .file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n")
        .file("etc/group", "root:x:0:\nsudo:x:27:ann")
        .link("usr/bin/sudo", "../../etc/passwd");
    let (ground, report) = taken(archive);
    assert_eq!(report.format, ImageFormat::RootFileSystem);
    assert_eq!(report.counts.links, 2);
    assert!(report.warnings.iter().all(|warning| !warning.contains("/bin/sh")), "{report:?}");
    assert!(ground.read("etc/hosts").starts_with("127.0.0.1 localhost"));
    let users = ground.read("etc/passwd");
    let lines: Vec<&str> = users.lines().collect();
    assert_eq!(lines[1], "user:x:1000:1000:user:/home/user:/bin/sh");
    assert!(lines[0].starts_with("root:") && lines[2].starts_with("node:"), "{users}");
    assert_eq!(ground.read("etc/group"), "root:x:0:\nsudo:x:27:ann,user\nuser:x:1000:\n");
    let sudo = fs::read_link(ground.root().join("usr/bin/sudo")).unwrap();
    assert_eq!(sudo, Path::new("/run/soma/guest"));
    for folder in ["dev", "proc", "sys", "run/soma", "tmp", "home/user", "workspace"] {
        assert!(ground.root().join(folder).is_dir(), "{folder}");
    }
    let mode = fs::metadata(ground.root().join("tmp")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1777);
}

#[test]
fn a_link_or_file_where_a_sandbox_mounts_is_refused() {
    for name in ["dev", "proc", "sys", "run", "run/soma", "etc", "home", "tmp", "usr"] {
        for target in ["/", "/etc", "../../outside", "nowhere"] {
            let error = refused(Archive::default().folder("lib").link(name, target));
            assert!(error.contains("is a symbolic link"), "{name} -> {target}: {error}");
        }
        let error = refused(Archive::default().folder("lib").file(name, ""));
        assert!(error.contains("is not a folder"), "{name}: {error}");
    }
    // Below a folder that is covered, anything may be.
    taken(Archive::system().folder("dev").link("dev/null", "/etc/passwd").link("dev/console", "x"));
}

#[test]
fn the_users_of_a_hostile_image_are_not_written_through_links() {
    let error = refused(Archive::system().link("etc/passwd", "../../../outside/canary"));
    assert!(error.contains("/etc/passwd"), "{error}");
    let error =
        refused(Archive::system().item(&Item { name: "etc/group", kind: b'6', ..Item::default() }));
    assert!(error.contains("/etc/group"), "{error}");
    let (ground, _) = taken(Archive::system().link("etc/resolv.conf", "../../../outside/canary"));
    assert_eq!(ground.read("etc/resolv.conf"), "nameserver 198.18.0.1\noptions timeout:5\n");
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["../canary", "usr/../../outside/canary", "..", "usr/.."] {
        let error = refused(Archive::system().file(name, "dead"));
        assert!(error.contains("`..`"), "{name}: {error}");
    }
    // An absolute one is the image's own.
    let ground = Ground::new();
    let absolute = ground.outside().join("canary");
    let archive = Archive::system().file(absolute.to_str().unwrap(), "inside");
    ground.unpack(&archive.end(), Bounds::default()).unwrap();
    assert_eq!(ground.read(absolute.to_str().unwrap().trim_start_matches('/')), "inside");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let long = "x".repeat(256);
    for (key, value) in [
        ("path", long.as_bytes()),
        ("path", "x/".repeat(3000).as_bytes()),
        ("path", b"a\0b"),
        ("linkpath", "x".repeat(5000).as_bytes()),
        ("linkpath", b"a\0b"),
    ] {
        let archive = Archive::system().pax(&[(key, value)]).link("name", "target");
        assert!(refused(archive).contains("is refused"), "{key}");
    }
    let deep = "d/".repeat(129);
    let archive = Archive::system().pax(&[("path", deep.as_bytes())]).folder("d");
    assert!(refused(archive).contains("128 folders within folders"));
}

#[test]
fn a_file_below_a_link_lands_in_the_image_or_nowhere() {
    for target in ["../../outside", "/outside", "../../../../../../../../tmp", "/proc/self/cwd"] {
        let archive = Archive::system().link("way", target).file("way/canary", "dead");
        let error = refused(archive);
        assert!(error.contains("way"), "{error}");
    }
    let ground = Ground::new();
    let archive = Archive::system().link("way", ground.outside().to_str().unwrap());
    ground.unpack(&archive.file("way/canary", "dead").end(), Bounds::default()).unwrap_err();
    // Links that images have for good reasons.
    let archive = Archive::system().folder("usr/lib").link("lib", "usr/lib").file("lib/so", "1");
    assert_eq!(taken(archive).0.read("usr/lib/so"), "1");
    let archive = Archive::system().link("lib", "/usr/../../../usr").file("lib/so", "1");
    assert_eq!(taken(archive).0.read("usr/so"), "1");
}

#[test]
fn a_hard_link_leads_to_a_file_of_the_image_or_is_refused() {
    for target in ["../../etc/shadow", "outside/canary", "/etc/shadow", "usr", "nowhere/x", ""] {
        let error = refused(Archive::system().hard_link("usr/stolen", target));
        assert!(error.contains("hard link") || error.contains("`..`"), "{target}: {error}");
    }
    let archive = Archive::system().link("way", "../../outside").hard_link("x", "way/canary");
    assert!(refused(archive).contains("hard link"));
    // A link to a file outside is a link, also under a second name.
    let archive = Archive::system().link("way", "../../outside/canary").hard_link("way2", "way");
    let (ground, _) = taken(archive.hard_link("os", "etc/os-release").hard_link("os", "os"));
    assert_eq!(ground.read("os"), "ID=small\n");
    assert!(fs::symlink_metadata(ground.root().join("way2")).unwrap().is_symlink());
}

#[test]
fn what_comes_later_replaces_what_was_there_and_never_writes_through_it() {
    let archive = Archive::system()
        .link("a", "../../outside/canary")
        .file("a", "a file")
        .folder("b")
        .file("b/c", "")
        .file("b", "a file")
        .file("c", "")
        .folder("c")
        .link("d", "../../outside")
        .folder("d")
        .file("d/canary", "inside")
        .hard_link("e", "etc/os-release")
        .file("e", "own");
    let (ground, _) = taken(archive);
    assert_eq!((ground.read("a"), ground.read("b")), ("a file".into(), "a file".into()));
    assert!(ground.root().join("c").is_dir());
    assert_eq!(ground.read("d/canary"), "inside");
    assert_eq!(ground.read("etc/os-release"), "ID=small\n");
}

#[test]
fn privileges_devices_and_attributes_are_dropped_and_counted() {
    let device = |name, kind| Item { name, kind, device: (8, 0), ..Item::default() };
    let archive = Archive::system()
        .item(&Item { name: "usr/su", mode: 0o6755, content: b"x", ..Item::default() })
        .item(&device("usr/sda", b'4'))
        .item(&device("usr/mem", b'3'))
        .item(&Item { name: "usr/pipe", kind: b'6', ..Item::default() })
        .item(&Item { name: "usr/odd", kind: b'Z', content: b"content", ..Item::default() })
        .pax(&[
            ("SCHILY.xattr.security.capability", b"x"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ])
        .file("usr/ping", "x")
        .item(&Item { name: "usr/share", kind: b'5', mode: 0o500, ..Item::default() })
        .file("usr/share/inner", "x")
        .file("etc/os-release", "ID=small\n")
        .item(&Item { name: "etc/os-release", kind: b'3', ..Item::default() });
    let (ground, report) = taken(archive);
    let counts = report.counts;
    assert_eq!((counts.privileges_dropped, counts.devices_dropped), (1, 2));
    assert_eq!((counts.attributes_dropped, counts.unknown_dropped), (3, 1));
    assert_eq!(counts.whiteouts, 1);
    let mode = |name: &str| fs::metadata(ground.root().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("usr/su"), mode("usr/share")), (0o755, 0o500));
    for gone in ["usr/sda", "usr/mem", "usr/odd", "etc/os-release"] {
        assert!(!ground.root().join(gone).exists(), "{gone}");
    }
    assert_eq!(report.warnings.iter().filter(|w| w.contains("set-user-id")).count(), 1);
}

#[test]
fn bombs_are_refused_by_what_they_have_too_much_of() {
    let bounds = Bounds { bytes: 1 << 20, entries: 1000, ..Bounds::default() };
    let mut many = Archive::system();
    for number in 0..1000 {
        many = many.file(&format!("usr/{number}"), "");
    }
    let mut zeros = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    zeros.write_all(&Archive::system().bytes("usr/zeros", &vec![0; 4 << 20]).end()).unwrap();
    let mut headers = Archive::system();
    for _ in 0..1000 {
        headers = headers.pax(&[("comment", b"x")]);
    }
    let large = vec![b'x'; 2 << 20];
    for (bytes, message) in [
        (many.end(), "more than 1000 entries"),
        (zeros.finish().unwrap(), "more than 1048576 bytes"),
        (headers.end(), "more than 1000 entries"),
        (Archive::system().pax(&[("comment", &large)]).end(), "bytes in one header"),
    ] {
        let error = Ground::new().unpack(&bytes, bounds).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn archives_that_are_none_are_said_to_be() {
    let whole = Archive::system().file("usr/x", "content").end();
    let mut damaged = whole.clone();
    damaged[0] = b'X';
    for (bytes, message) in [
        (&b""[..], "nothing in the archive"),
        (&[0; 1024][..], "nothing in the archive"),
        (b"hello", "in the middle of a header"),
        (&whole[..1800], "ends in the middle"),
        (&whole[..2100], "ends in the middle"),
        (&damaged, "no tar file"),
        (b"BZh91AY", "bzip2"),
        (b"\x1f\x8b\x08\0\0\0", "cannot be read"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0\0\0", "cannot be read"),
        (&Archive::default().file("README", "").end(), "this is no image"),
    ] {
        let error = Ground::new().unpack(bytes, Bounds::default()).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn gzip_and_zstd_are_unpacked_also_in_several_pieces() {
    let plain = Archive::system().file("usr/text", &"text ".repeat(10_000)).end();
    let (first, second) = plain.split_at(plain.len() / 2);
    let mut gzip = Vec::new();
    for part in [first, second] {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).unwrap();
        gzip.extend(encoder.finish().unwrap());
    }
    let skipped = [&b"\x50\x2a\x4d\x18\x03\0\0\0"[..], b"abc"].concat();
    let fastest = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = |part| ruzstd::encoding::compress_to_vec(part, fastest);
    let zstd = [skipped.clone(), zstd(first), skipped, zstd(second)].concat();
    for bytes in [gzip, zstd] {
        let ground = Ground::new();
        ground.unpack(&bytes, Bounds::default()).unwrap();
        assert_eq!(ground.read("usr/text").len(), 50_000);
    }
}

/// An image of layers, as a layout has it.
fn layout(layers: &[Vec<u8>], change: impl Fn(&mut serde_json::Value)) -> Archive {
    let digest = |bytes: &[u8]| {
        let hash = Sha256::digest(bytes);
        hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    };
    let mut archive = Archive::default().file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
    let mut blob = |bytes: &[u8], kind: &str| {
        let name = format!("blobs/sha256/{}", digest(bytes));
        archive = std::mem::take(&mut archive).bytes(&name, bytes);
        serde_json::json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", digest(bytes)),
            "size": bytes.len(),
        })
    };
    let mut parts = serde_json::json!({
        "config": {
            "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/bin", "A=b=c", "odd"],
                "Cmd": ["sh"],
                "WorkingDir": "/srv",
                "ExposedPorts": {"80/tcp": {}},
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": layers.iter().map(|l| format!("sha256:{}", digest(l))).collect::<Vec<_>>(),
            },
        },
        "layers": layers.iter().map(|layer| blob(layer, "layer.v1.tar")).collect::<Vec<_>>(),
    });
    change(&mut parts);
    let config = blob(parts["config"].to_string().as_bytes(), "config.v1+json");
    let manifest = serde_json::json!({"config": config, "layers": parts["layers"]});
    let manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
    let mut outer = serde_json::json!({"manifests": [manifest]});
    for _ in 0..parts["indexes"].as_u64().unwrap_or(0) {
        outer =
            serde_json::json!({"manifests": [blob(outer.to_string().as_bytes(), "index.v1+json")]});
    }
    if let Some(other) = parts.get("manifests") {
        outer["manifests"] = other.clone();
    }
    archive.file("index.json", &outer.to_string())
}

fn two_layers() -> Vec<Vec<u8>> {
    let first = Archive::system()
        .folder("usr/kept")
        .file("usr/kept/file", "1")
        .folder("usr/opaque")
        .file("usr/opaque/old", "1")
        .file("usr/gone", "1")
        .folder("usr/lib")
        .link("lib", "usr/lib")
        .end();
    let second = Archive::default()
        .file("usr/.wh.gone", "")
        .file("usr/opaque/new", "2")
        .file("usr/opaque/.wh..wh..opq", "")
        .file("usr/kept/more", "2")
        .file("usr/.wh.never-was", "")
        .file("lib/so", "2")
        .end();
    vec![first, second]
}

#[test]
fn a_layout_is_unpacked_layer_by_layer() {
    for indexes in [0, 2] {
        let (ground, report) =
            taken(layout(&two_layers(), |parts| parts["indexes"] = indexes.into()));
        assert_eq!(report.format, ImageFormat::OciLayout);
        assert_eq!((report.counts.layers, report.counts.whiteouts), (2, 2));
        assert!(report.digest.as_ref().unwrap().starts_with("sha256:"));
        assert_eq!(report.config.environment["A"], "b=c");
        assert_eq!(report.config.environment.len(), 2);
        assert_eq!(
            (report.config.working_folder.as_str(), &*report.config.ports),
            ("/srv", &["80/tcp".to_owned()][..])
        );
        let there = |name: &str| ground.root().join(name).exists();
        assert!(there("usr/opaque/new") && there("usr/kept/file") && there("usr/kept/more"));
        assert!(there("usr/lib/so") && there("etc/os-release"));
        assert!(!there("usr/opaque/old") && !there("usr/gone") && !there("usr/.wh.gone"));
        assert!(!ground.folder.path().join("staging/in").exists());
    }
}

#[test]
fn what_docker_saves_is_unpacked() {
    let digest = |bytes: &[u8]| {
        Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    };
    let layers = two_layers();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let config = serde_json::json!({
        "architecture": architecture, "os": "linux", "config": null,
        "rootfs": {"diff_ids": layers.iter().map(|l| format!("sha256:{}", digest(l))).collect::<Vec<_>>()},
    });
    let image = serde_json::json!({"Config": "c.json", "Layers": ["1/layer.tar", "2/layer.tar"]});
    let archive = Archive::default()
        .file("c.json", &config.to_string())
        .bytes("1/layer.tar", &layers[0])
        .bytes("3/layer.tar", &layers[1])
        .link("2/layer.tar", "../3/layer.tar");
    let (ground, report) =
        taken(archive.clone().file("manifest.json", &serde_json::json!([image]).to_string()));
    assert_eq!(report.format, ImageFormat::DockerArchive);
    assert!(ground.root().join("usr/opaque/new").exists());
    let two = serde_json::json!([image, image]).to_string();
    assert!(refused(archive.file("manifest.json", &two)).contains("exactly one image"));
}

#[test]
fn a_layout_that_lies_is_refused() {
    type Change = fn(&mut serde_json::Value);
    let cases: [(Change, &str); 9] = [
        (|parts| parts["layers"][0]["size"] = 1.into(), "not what its name says"),
        (|parts| parts["layers"][0]["size"] = u64::MAX.into(), "not what its name says"),
        (|parts| parts["layers"][0]["digest"] = "sha256:../../outside/canary".into(), "no digest"),
        (
            |parts| parts["layers"][0]["digest"] = format!("sha256:{}", "0".repeat(64)).into(),
            "is not in it",
        ),
        (
            |parts| {
                parts["config"]["rootfs"]["diff_ids"][1] =
                    format!("sha256:{}", "0".repeat(64)).into();
            },
            "not what its configuration names",
        ),
        (
            |parts| parts["config"]["rootfs"]["diff_ids"] = serde_json::json!([]),
            "another number of layers",
        ),
        (
            |parts| parts["config"]["architecture"] = "s390x".into(),
            "the image is for `linux/s390x`",
        ),
        (|parts| parts["indexes"] = 9.into(), "without end"),
        (|parts| parts["manifests"] = serde_json::json!([]), "not exactly one"),
    ];
    for (change, message) in cases {
        let error = refused(layout(&two_layers(), change));
        assert!(error.contains(message), "{message}: {error}");
    }
    for mark in [".wh.", ".wh..", ".wh..."] {
        let second = Archive::default().file(&format!("usr/{mark}"), "").end();
        let error = refused(layout(&[Archive::system().end(), second], |_| {}));
        assert!(error.contains("cannot be removed"), "{mark}: {error}");
    }
    let second =
        Archive::default().link("way", "../../../outside").file("way/.wh.canary", "").end();
    taken(layout(&[Archive::system().end(), second], |_| {}));
}

#[test]
fn sparse_files_are_refused_by_name() {
    let archive = Archive::system().pax(&[("GNU.sparse.major", b"1")]).file("usr/holes", "");
    assert!(refused(archive).contains("--sparse"));
    let archive = Archive::system().item(&Item { name: "usr/x", kind: b'S', ..Item::default() });
    assert!(refused(archive).contains("--sparse"));
}

#[test]
fn a_copy_is_the_same_tree_of_other_ids() {
    let (ground, _) = taken(
        Archive::system().hard_link("usr/again", "etc/os-release").link("usr/link", "/etc/shadow"),
    );
    let to = tempfile::tempdir().unwrap();
    let open = |path: &Path| OwnedFd::from(fs::File::open(path).unwrap());
    let shift = image::Shift { from: 7, to: 7 };
    image::copy(&open(&ground.root()), &open(to.path()), shift).unwrap();
    assert_eq!(fs::read_to_string(to.path().join("usr/again")).unwrap(), "ID=small\n");
    assert_eq!(fs::metadata(to.path().join("etc/os-release")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(to.path().join("usr/link")).unwrap(), Path::new("/etc/shadow"));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode();
    assert_eq!(mode(&to.path().join("tmp")), mode(&ground.root().join("tmp")));
}
