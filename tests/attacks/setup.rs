//! While a sandbox is put together.
//!
//! Nothing runs in a sandbox before it stands, so nobody inside can swap a folder for a link in
//! the middle of it, and no two sandboxes share a folder. What a stranger does have a hand in is
//! what its root left behind before a stop, which the next start mounts upon; and a folder of the
//! host's that somebody imports while another one changes it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::Arena;
use super::files::Canary;
use crate::support::{Home, needs_root};

/// Puts a link to a folder of the host's in the place of a folder of the sandbox's.
fn replace(place: &str, target: &Path) -> String {
    format!("mv {place} {place}.before && ln -s {} {place} && echo replaced", target.display())
}

#[test]
fn e14_folders_that_a_start_mounts_upon_are_links_by_then() {
    let arena = Arena::new();
    let canary = Canary::new();
    // What is mounted now cannot be moved away.
    arena.attack(
        "root",
        "
for name in ('/dev', '/proc', '/sys', '/run/soma', '/dev/shm', '/dev/pts', '/usr', '/run'):
    if not os.path.ismount(name) and name != '/run': continue
    refused(name, lambda: os.rename(name, name + '.before'))
    refused(name, lambda: os.rmdir(name))
",
    );
    let sandbox = format!("/v1/sandbox/{}", arena.attacker);
    let again = || {
        assert!(arena.daemon.ask("POST", &format!("{sandbox}/stop"), "").status < 300);
        arena.daemon.ask("POST", &format!("{sandbox}/start"), "{}")
    };
    // Whatever is not mounted upon is the sandbox's own business, and leads nowhere else.
    for place in ["/workspace", "/tmp", "/opt", "/srv", "/home"] {
        let command = replace(place, canary.path());
        let done = arena.execute(&json!({"command": command, "user": "root", "cwd": "/"}));
        assert_eq!(done["stdout"], "replaced\n", "{done}");
        let started = again();
        assert_eq!(started.status, 200, "{place}: {}", started.json());
        let command = format!("echo x > {place}/file; ls {place}/file; ls {}", canary.file());
        let done = arena.execute(&json!({"command": command, "user": "root", "cwd": "/"}));
        assert_eq!(done["stdout"], "", "{place}: {done}");
        canary.assert_untouched();
    }
    arena.close();
}

#[test]
fn e14_a_disk_was_edited_so_that_mounts_would_go_elsewhere() {
    let name = "e14_a_disk_was_edited_so_that_mounts_would_go_elsewhere";
    if needs_root(name, "disk of its own for each sandbox") {
        return;
    }
    let arena = Arena::new();
    let canary = Canary::new();
    fs::create_dir(canary.path().join("soma")).unwrap();
    let sandbox = format!("/v1/sandbox/{}", arena.attacker);
    let disk = arena.daemon.home.path().join("sandboxes").join(&arena.attacker).join("disk.ext4");
    // More than its root can do, as the test above shows: by hand.
    for place in ["dev", "proc", "sys", "run", "usr"] {
        assert!(arena.daemon.ask("POST", &format!("{sandbox}/stop"), "").status < 300);
        let edit = |then: &str| {
            let place = tempfile::tempdir().unwrap();
            let script =
                format!("mount -o loop $1 $2 && cd $2/root/upper && {then}; cd /; umount $2");
            let mut edit = sys_linux::command::command("sh");
            edit.args(["-c", &script, "sh"]).args([&disk, place.path()]);
            assert!(edit.status().unwrap().success());
        };
        let link = format!("ln -s {} {place}", canary.path().display());
        edit(&format!("{{ [ ! -e {place} ] || mv {place} {place}.before; }} && {link}"));
        let started = arena.daemon.ask("POST", &format!("{sandbox}/start"), "{}");
        assert!((400..600).contains(&started.status), "{place}: {}", started.status);
        assert!(started.message().contains(place), "{place}: {}", started.message());
        assert_ne!(arena.daemon.state(&arena.attacker), "running", "{place}");
        edit(&format!("rm {place} && {{ [ ! -e {place}.before ] || mv {place}.before {place}; }}"));
        let started = arena.daemon.ask("POST", &format!("{sandbox}/start"), "{}");
        assert_eq!(started.status, 200, "{place}: {}", started.json());
    }
    fs::remove_dir(canary.path().join("soma")).unwrap();
    canary.assert_untouched();
    arena.close();
}

#[test]
fn e14_a_folder_is_swapped_for_a_link_while_it_is_imported() {
    let (home, folder, canary) = (Home::new(), tempfile::tempdir().unwrap(), Canary::new());
    let tree = folder.path().join("tree");
    let untar = sys_linux::command::command("tar")
        .args(["-x", "-C"])
        .arg({
            fs::create_dir(&tree).unwrap();
            &tree
        })
        .arg("-f")
        .arg({
            let image = folder.path().join("image.tar");
            fs::write(&image, crate::templates::small_image()).unwrap();
            image
        })
        .status();
    assert!(untar.unwrap().success());
    // A folder and a file, beside links of the same kinds that lead to what must not be read.
    fs::create_dir(tree.join("way")).unwrap();
    fs::write(tree.join("way/file"), "inside").unwrap();
    fs::write(tree.join("plain"), "inside").unwrap();
    symlink(canary.path(), tree.join("other-way")).unwrap();
    symlink(canary.file(), tree.join("other-plain")).unwrap();
    let over = AtomicBool::new(false);
    let patience = if std::env::var_os("SOMA_LONG").is_some() { 60 } else { 3 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for name in ["way", "plain"] {
                    let (one, other) = (tree.join(name), tree.join(format!("other-{name}")));
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        let _over = Over(&over);
        let (begun, mut imported) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(patience) || imported == 0 {
            let words = ["template", "import", "--replace", "--name", "x", tree.to_str().unwrap()];
            let import = home.soma(words).output().unwrap();
            // One that met a change in the middle of a step may break off.
            if !import.status.success() {
                continue;
            }
            imported += 1;
            let read = "for f in /way/file /other-way/file /plain /other-plain; do \
                        while read -r line || [ -n \"$line\" ]; do echo \"$line\"; break; done \
                        < $f; done 2>/dev/null; true";
            let ran = home.soma(["run", "--template", "x", "--", "/bin/sh", "-c", read]).output();
            let ran = ran.unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success(), "{ran:?}");
            assert!(!said.contains("canary"), "a file of somebody else's was imported: {said}");
        }
    });
    canary.assert_untouched();
    assert!(home.soma(["template", "rm", "x"]).output().unwrap().status.success());
    home.assert_nothing_left();
}

/// Ends the swapping, also when an assertion did not hold.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
