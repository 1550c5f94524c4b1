//! Templates from images: a real system imported in every form, and images that mean harm.
//!
//! The real one is Debian, made by `mmdebstrap` once and kept beside what was built. The hostile
//! ones are made here; beside each lies a file that must stay as it is.

#[path = "../crates/image/tests/archive/mod.rs"]
#[expect(dead_code, reason = "the unpacker's own tests use more of it")]
mod archive;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

use archive::{Archive, Item};
use sha2::{Digest as _, Sha256};

use crate::support::{Home, is_root, needs_root, skip};

/// What `soma` with these words writes, which has to work.
#[track_caller]
fn works(home: &Home, words: &[&str]) -> String {
    let output = home.soma(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the templates beside the one that is built, which is always listed.
#[track_caller]
fn imported(home: &Home) -> String {
    works(home, &["template", "ls", "-q"]).replace("code-interpreter\n", "")
}

/// What `soma` with these words says when it refuses.
#[track_caller]
fn refused(home: &Home, words: &[&str]) -> String {
    let output = home.soma(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A root file system of Debian as a tar file, or why there is none.
fn debian() -> Result<PathBuf, String> {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Ok(given) = std::env::var("SOMA_DEBIAN_TAR") {
        return Ok(given.into());
    }
    let built = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = built.parent().ok_or("the tests lie nowhere")?.to_owned();
    let (tar, new) = (folder.join("debian.tar"), folder.join("debian.new.tar"));
    if tar.exists() {
        return Ok(tar);
    }
    let mirrors = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/debian-mirrors");
    let mirror = sys_linux::command::command(mirrors).output().map_err(|e| e.to_string())?;
    let mirror = String::from_utf8_lossy(&mirror.stdout).lines().next().map(ToOwned::to_owned);
    let mirror = mirror.ok_or("no archive of Debian's packages is known")?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let made = sys_linux::command::command("mmdebstrap")
        .args(["--quiet", "--variant=minbase", release.unwrap_or("stable")])
        .arg(&new)
        .arg(mirror)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("mmdebstrap does not run: {error}"))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(format!("mmdebstrap: {}", said.lines().last().unwrap_or_default()));
    }
    fs::rename(&new, &tar).map_err(|error| error.to_string())?;
    Ok(tar)
}

/// A system in which a shell runs: that of this host, with what it needs.
fn small_system() -> Archive {
    let mut archive = Archive::default().folder("bin").folder("etc").folder("usr");
    let shell = fs::read("/bin/dash").unwrap();
    archive =
        archive.item(&Item { name: "bin/sh", mode: 0o755, content: &shell, ..Item::default() });
    let mut libraries = vec!["/lib64/ld-linux-x86-64.so.2".to_owned()];
    for entry in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"] {
        if Path::new(entry).exists() {
            libraries.push(entry.to_owned());
        }
    }
    for library in libraries {
        let content = fs::read(&library).unwrap();
        let name = library.trim_start_matches('/');
        archive = archive.item(&Item { name, mode: 0o755, content: &content, ..Item::default() });
    }
    archive.file("etc/marker", "from the image\n")
}

/// That system as a tar file.
pub(crate) fn small_image() -> Vec<u8> {
    small_system().end()
}

fn write(folder: &Path, name: &str, archive: Archive) -> String {
    let path = folder.join(name);
    fs::write(&path, archive.end()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_real_debian_is_imported_as_file_folder_and_layout() {
    let name = "a_real_debian_is_imported_as_file_folder_and_layout";
    if needs_root(name, "way to make a Debian with all of its owners") {
        return;
    }
    let tar = match debian() {
        Ok(tar) => tar,
        Err(reason) => return skip(name, &reason),
    };
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    works(&home, &["template", "import", "--name", "file", tar.to_str().unwrap()]);
    let unpacked = folder.path().join("rootfs");
    fs::create_dir(&unpacked).unwrap();
    let untar = sys_linux::command::command("tar")
        .args(["-x", "--numeric-owner", "--exclude=./dev/*", "-C"])
        .args([&unpacked, Path::new("-f"), &tar])
        .status();
    assert!(untar.unwrap().success());
    works(&home, &["template", "import", "--name", "folder", unpacked.to_str().unwrap()]);
    let second = Archive::default()
        .file("etc/.wh.debian_version", "")
        .file("opt/.wh..wh..opq", "")
        .file("etc/second-layer", "2")
        .end();
    let layout = folder.path().join("layout");
    write_layout(&layout, &[fs::read(&tar).unwrap(), second]);
    works(&home, &["template", "import", layout.to_str().unwrap()]);
    for template in ["file", "folder", "layout"] {
        let inside = |words: &[&str]| {
            let run = ["run", "--template", template, "--lang", "bash"];
            works(&home, &run.iter().chain(words).copied().collect::<Vec<_>>())
        };
        let said = inside(&[". /etc/os-release; echo $ID; id -un; apt-get --version | head -n 1"]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..2], ["debian", "user"], "{template}: {said}");
        assert!(lines[2].starts_with("apt "), "{template}: {said}");
        // Nothing of the host's own `/usr` is there, and `sudo` works all the same.
        let said = inside(&["command -v python3; sudo id -un; stat -c %U /etc/shadow; pwd"]);
        assert_eq!(said, "root\nroot\n/home/user\n", "{template}");
        let version = inside(&["ls /etc/debian_version /etc/second-layer 2>/dev/null || true"]);
        let expected =
            if template == "layout" { "/etc/second-layer\n" } else { "/etc/debian_version\n" };
        assert_eq!(version, expected, "{template}");
        let image_env = inside(&["echo $FROM_IMAGE"]);
        assert_eq!(image_env, if template == "layout" { "yes\n" } else { "\n" }, "{template}");
    }
    for template in ["file", "folder", "layout"] {
        works(&home, &["template", "rm", template]);
    }
    home.assert_nothing_left();
}

/// A layout as a folder.
fn write_layout(folder: &Path, layers: &[Vec<u8>]) {
    let digest = |bytes: &[u8]| {
        Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    };
    fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8], kind: &str| {
        fs::write(folder.join("blobs/sha256").join(digest(bytes)), bytes).unwrap();
        serde_json::json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", digest(bytes)),
            "size": bytes.len(),
        })
    };
    let names: Vec<String> = layers.iter().map(|l| format!("sha256:{}", digest(l))).collect();
    let config = serde_json::json!({
        "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
        "os": "linux",
        "config": {"Env": ["FROM_IMAGE=yes"]},
        "rootfs": {"type": "layers", "diff_ids": names},
    });
    let layers: Vec<_> = layers.iter().map(|layer| blob(layer, "layer.v1.tar")).collect();
    let config = blob(config.to_string().as_bytes(), "config.v1+json");
    let manifest = serde_json::json!({"schemaVersion": 2, "config": config, "layers": layers});
    let manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json");
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn a_template_lives_by_its_name() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let image = write(folder.path(), "small.tar", small_system());
    assert_eq!(works(&home, &["template", "import", &image]), "small\n");
    assert_eq!(imported(&home), "small\n");
    let said = refused(&home, &["template", "import", &image]);
    assert!(said.contains("there is a template `small` already"), "{said}");
    let read = |id: &str| {
        works(&home, &["exec", id, "--", "/bin/sh", "-c", "read a < /etc/marker; echo $a"])
    };
    let first = works(&home, &["new", "--template", "small"]);
    let first = first.trim();
    assert_eq!(read(first), "from the image\n");
    // Whoever replaces it changes nothing for those that stand on it.
    let other = small_system().file("etc/marker", "replaced\n");
    let other = write(folder.path(), "other.tar", other);
    works(&home, &["template", "import", "--name", "small", "--replace", &other]);
    assert_eq!(read(first), "from the image\n");
    let second = works(&home, &["new", "--template", "small"]);
    let second = second.trim();
    assert_eq!(read(second), "replaced\n");
    // An engine that starts later keeps both.
    home.kill_engine();
    assert_eq!((read(first), read(second)), ("from the image\n".into(), "replaced\n".into()));
    let said = refused(&home, &["template", "rm", "small"]);
    assert!(said.contains(first) && said.contains("stand on the template"), "{said}");
    works(&home, &["rm", first, second]);
    works(&home, &["template", "rm", "small"]);
    assert_eq!(imported(&home), "");
    assert_eq!(fs::read_dir(home.path().join("templates")).unwrap().count(), 0);
    let said = refused(&home, &["new", "--template", "small"]);
    assert!(said.contains("no template `small`") && said.contains("template import"), "{said}");
    home.assert_nothing_left();
}

#[test]
fn e13_a_hostile_image_changes_nothing_outside_and_leaves_nothing() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let canary = folder.path().join("canary");
    fs::write(&canary, "alive").unwrap();
    let outside = canary.to_str().unwrap();
    let up = format!("{}{outside}", "../".repeat(16).trim_end_matches('/'));
    let up_folder =
        format!("{}{}", "../".repeat(16).trim_end_matches('/'), folder.path().display());
    let base = Archive::system;
    for (name, image, message) in [
        ("dev", Archive::default().folder("lib").link("dev", "/"), "`/dev` is a symbolic link"),
        ("proc", base().link("proc", "/etc"), "`/proc` is a symbolic link"),
        ("etc", Archive::default().folder("usr").link("etc", "/"), "`/etc` is a symbolic link"),
        ("sys", base().link("sys", "/etc"), "`/sys` is a symbolic link"),
        ("run", base().folder("run").link("run/soma", "/etc"), "`/run/soma` is a symbolic link"),
        ("shadow", base().hard_link("usr/shadow", "../../etc/shadow"), "`..`"),
        ("hosts-shadow", base().hard_link("usr/shadow", "/etc/shadow"), "hard link"),
        (
            "absolute",
            base().link("way", folder.path().to_str().unwrap()).file("way/canary", ""),
            "way",
        ),
        ("relative", base().link("way", &up_folder).file("way/canary", "dead"), "way"),
        ("traversal", base().file("../../../../canary", "dead"), "`..`"),
        ("hard", base().link("way", &up_folder).hard_link("x", "way/canary"), "hard link"),
        ("users", base().link("etc/passwd", &up), "/etc/passwd"),
    ] {
        let image = write(folder.path(), "hostile.tar", image);
        let said = refused(&home, &["template", "import", "--name", name, &image]);
        assert!(said.contains(message), "{name}: {said}");
        assert_eq!(fs::read_to_string(&canary).unwrap(), "alive", "{name}");
        assert_eq!(fs::metadata(&canary).unwrap().nlink(), 1, "{name}");
    }
    assert_eq!(imported(&home), "");
    home.assert_nothing_left();
}

#[test]
fn e13_what_an_image_must_not_have_is_left_out_and_said() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let device = |name| Item { name, kind: b'4', mode: 0o666, device: (8, 0), ..Item::default() };
    let image = small_system()
        .folder("dev")
        .link("dev/null", "/etc/marker")
        .link("dev/console", "/etc/marker")
        .folder("dev/pts")
        .link("dev/pts/0", "/etc/marker")
        .link("dev/shm", "/etc")
        .item(&device("usr/disk"))
        .item(&Item { name: "usr/su", mode: 0o6755, content: b"x", ..Item::default() })
        .item(&Item { name: "usr/far", owner: 1_000_000, content: b"x", ..Item::default() });
    let image = write(folder.path(), "odd.tar", image);
    let output = home.soma(["template", "import", &image]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for warning in ["1 device files", "1 files lost their set-user-id", "belong to nobody"] {
        assert!(said.contains(warning), "{warning}: {said}");
    }
    let code = "[ -c /dev/null ] && echo device; [ -u /usr/su ] || echo plain; \
                [ -e /usr/disk ] || echo gone";
    let ran = works(&home, &["run", "--template", "odd", "--", "/bin/sh", "-c", code]);
    assert_eq!(ran, "device\nplain\ngone\n");
    if is_root() {
        // Whoever has one id alone owns everything.
        let code = "[ -w /etc/marker ] || echo closed";
        let ran = works(&home, &["run", "--template", "odd", "--", "/bin/sh", "-c", code]);
        assert_eq!(ran, "closed\n");
        // On the disk the files have the ids that a sandbox sees.
        let root = home.path().join("templates/odd/1/tree/root");
        let owner = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().uid();
        assert_eq!((owner("etc/marker"), owner("home/user"), owner("usr/far")), (0, 1000, 65_534));
    }
    works(&home, &["template", "rm", "odd"]);
    home.assert_nothing_left();
}

#[test]
fn an_import_that_breaks_off_leaves_nothing() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let whole = small_system().end();
    let cut = folder.path().join("cut.tar");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let said = refused(&home, &["template", "import", cut.to_str().unwrap()]);
    assert!(said.contains("ends in the middle"), "{said}");
    // One that is killed while it sends.
    let mut import = home.soma(["template", "import", "--name", "killed", "-"]);
    let mut import = import.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(import.stdin.as_mut().unwrap(), &whole[..whole.len() / 2]).unwrap();
    let prepared = home.path().join("prepared");
    let unpacking = || {
        let folders = fs::read_dir(&prepared).into_iter().flatten().flatten();
        folders.filter(|folder| folder.path().join("tree").exists()).count()
    };
    crate::support::eventually("nothing is unpacked", || unpacking() == 1);
    import.kill().unwrap();
    import.wait().unwrap();
    crate::support::eventually("something is left", || unpacking() == 0);
    assert_eq!(imported(&home), "");
    home.assert_nothing_left();
}

#[test]
fn e13_an_engine_that_is_killed_in_the_middle_of_an_import_leaves_nothing_and_it_can_be_repeated() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let whole = small_system().end();
    let image = folder.path().join("small.tar");
    fs::write(&image, &whole).unwrap();
    let prepared = home.path().join("prepared");
    let unpacking = || {
        let folders = fs::read_dir(&prepared).into_iter().flatten().flatten();
        folders.filter(|folder| folder.path().join("tree").exists()).count()
    };
    for name in ["new", "there"] {
        // The second time in the place of one that is there, which stays.
        let mut import = home.soma(["template", "import", "--name", name, "--replace", "-"]);
        let mut import = import.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = import.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, &whole[..whole.len() / 2]).unwrap();
        crate::support::eventually("nothing is unpacked", || unpacking() == 1);
        home.kill_engine();
        // Whether the rest is taken or not: it is not unpacked.
        let _ = std::io::Write::write_all(&mut input, &whole[whole.len() / 2..]);
        drop(input);
        let ended = import.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{name}: {said}");
        let listed = imported(&home);
        assert_eq!(listed, if name == "new" { "" } else { "there\n" }, "{name}");
        crate::support::eventually("something is left", || unpacking() == 0);
        works(
            &home,
            &["template", "import", "--name", "there", "--replace", image.to_str().unwrap()],
        );
        let code = "read a < /etc/marker; echo $a";
        let ran = works(&home, &["run", "--template", "there", "--", "/bin/sh", "-c", code]);
        assert_eq!(ran, "from the image\n", "{name}");
    }
    works(&home, &["template", "rm", "there"]);
    assert_eq!(fs::read_dir(home.path().join("templates")).unwrap().count(), 0);
    home.assert_nothing_left();
}
