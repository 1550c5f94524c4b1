//! Trees with every kind of name and file go into a sandbox and come back the same.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use super::{new, text, works};
use crate::support::{Home, is_root};

/// `soma cp` with these words, which are bytes.
fn cp(home: &Home, from: impl Into<OsString>, to: impl Into<OsString>) -> Output {
    home.soma([OsString::from("cp"), from.into(), to.into()]).output().unwrap()
}

#[track_caller]
fn cp_works(home: &Home, from: impl Into<OsString>, to: impl Into<OsString>) {
    let output = cp(home, from, to);
    let said = (output.status.code(), text(&output.stderr));
    assert_eq!(said, (Some(0), String::new()));
}

#[test]
fn random_trees_go_in_and_come_back_the_same() {
    let home = Home::new();
    new(&home, &["--name", "work"]);
    let rounds = if std::env::var_os("SOMA_LONG").is_some() { 100 } else { 5 };
    for seed in 1..=rounds {
        let here = tempfile::tempdir().unwrap();
        let source = here.path().join("source");
        fs::create_dir(&source).unwrap();
        Random(seed).fill(&source, 0);
        let before = seen(&source);
        cp_works(&home, &source, format!("work:/tmp/tree-{seed}"));
        cp_works(&home, format!("work:/tmp/tree-{seed}"), here.path().join("back"));
        let after = seen(&here.path().join("back"));
        for (path, was) in &before {
            assert_eq!(after.get(path), Some(was), "{path:?} with seed {seed}");
        }
        assert_eq!(after.len(), before.len(), "there is more than before, with seed {seed}");
        assert!(before.len() > 10, "a tree of nothing, with seed {seed}");
    }
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn a_name_that_is_no_text_can_be_typed() {
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    let odd = OsStr::from_bytes(b"odd\xff\xfe");
    fs::write(here.path().join(odd), "bytes").unwrap();
    cp_works(&home, here.path().join(odd), "work:/tmp/");
    let listed = works(&home, &["exec", "work", "--", "sh", "-c", "ls /tmp | od -An -tx1"]);
    assert!(listed.contains("6f 64 64 ff fe"), "{listed}");
    let back = here.path().join("back");
    cp_works(&home, OsString::from_vec(b"work:/tmp/odd\xff\xfe".to_vec()), &back);
    assert_eq!(fs::read(&back).unwrap(), b"bytes");
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

#[test]
fn what_cannot_be_read_here_is_left_out_and_said() {
    if is_root() {
        return crate::support::skip(
            "what_cannot_be_read_here_is_left_out_and_said",
            "root reads everything",
        );
    }
    let home = Home::new();
    let here = tempfile::tempdir().unwrap();
    new(&home, &["--name", "work"]);
    let source = here.path().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("secret"), "x").unwrap();
    fs::write(source.join("zebra"), "here").unwrap();
    let allow = |name: &str, mode| {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("closed", 0);
    allow("secret", 0);
    let output = cp(&home, &source, "work:/tmp/tree");
    allow("closed", 0o755);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("closed` is left out") && said.contains("secret` is left out"), "{said}");
    assert_eq!(works(&home, &["exec", "work", "--", "ls", "/tmp/tree"]), "zebra\n");
    works(&home, &["rm", "work"]);
    home.assert_nothing_left();
}

/// What is at a path: its kind, its permissions, and its bytes or what it says.
type Seen = (&'static str, u32, Vec<u8>);

/// All that is below a folder.
fn seen(folder: &Path) -> BTreeMap<PathBuf, Seen> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    // Files that come back have the caller's mask taken off, as all that programs make.
    let mask = u32::from_str_radix(mask.trim(), 8).unwrap();
    let (mut all, mut left) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o777 & !mask;
        let what = if metadata.is_symlink() {
            ("link", 0, fs::read_link(&path).unwrap().into_os_string().into_vec())
        } else if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            ("folder", mode, Vec::new())
        } else {
            ("file", mode, fs::read(&path).unwrap())
        };
        all.insert(path.strip_prefix(folder).unwrap().to_owned(), what);
    }
    all
}

/// Trees by chance, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        // Knuth's numbers; the upper bits are the better ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }

    fn name(&mut self) -> OsString {
        let odd: [&[u8]; 8] =
            [b"\xff", b"new\nline", b"-rf", b" ", b"\xc3\x28", b"%2e%2e", b"...", b"~"];
        let mut name = match self.below(4) {
            0 => odd[self.below(odd.len())].to_vec(),
            1 => format!("plain-{}", self.below(1000)).into_bytes(),
            2 => vec![b'n'; 255],
            _ => {
                let length = 1 + self.below(40);
                self.bytes(length)
            }
        };
        name.iter_mut().filter(|byte| matches!(byte, b'/' | 0)).for_each(|byte| *byte = b'_');
        if matches!(name.as_slice(), b"." | b"..") {
            name.push(b'x');
        }
        OsString::from_vec(name)
    }

    fn mode(&mut self, usual: &[u32], of_root: &[u32]) -> fs::Permissions {
        // What only root can read, or remove again, is only root's to try.
        let modes = if is_root() { [usual, of_root].concat() } else { usual.to_vec() };
        fs::Permissions::from_mode(modes[self.below(modes.len())])
    }

    fn fill(&mut self, folder: &Path, depth: usize) {
        let least = if depth == 0 { 12 } else { 0 };
        for _ in 0..least + self.below(8) {
            let path = folder.join(self.name());
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            match self.below(6) {
                0 => {
                    let says = self.name();
                    symlink(Path::new("..").join(says), &path).unwrap();
                }
                1 if depth < 4 => {
                    fs::create_dir(&path).unwrap();
                    self.fill(&path, depth + 1);
                    let mode = self.mode(&[0o755, 0o700], &[0o555, 0o500, 0]);
                    fs::set_permissions(&path, mode).unwrap();
                }
                2 => {
                    // With a hole in it.
                    let mut file = fs::File::create(&path).unwrap();
                    file.seek(SeekFrom::Start(1 << 20)).unwrap();
                    file.write_all(b"the end").unwrap();
                }
                _ => {
                    let length = self.below(70_000);
                    fs::write(&path, self.bytes(length)).unwrap();
                    let mode = self.mode(&[0o644, 0o600, 0o755, 0o444], &[0, 0o200]);
                    fs::set_permissions(&path, mode).unwrap();
                }
            }
        }
    }
}
