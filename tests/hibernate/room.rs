//! Hosts whose disk has no room for what a sandbox holds.

use std::fs;
use std::path::PathBuf;

use crate::daemon::Daemon;
use crate::support::{Home, cannot_checkpoint};

/// What is left to the host, in mebibytes.
const RESERVE: u64 = 64;

/// A file system of its own, mounted on the host for as long as a test takes.
struct SmallHost {
    folder: tempfile::TempDir,
}

impl SmallHost {
    fn new(mebibytes: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("soma-host-").tempdir().unwrap();
        let (image, place) = (folder.path().join("image"), folder.path().join("place"));
        fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        fs::create_dir(&place).unwrap();
        run("mkfs.ext4", &["-q", "-F", "-m", "0", image.to_str().unwrap()]);
        run("mount", &["-o", "loop", image.to_str().unwrap(), place.to_str().unwrap()]);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).unwrap();
        Self { folder }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    /// Leaves so many mebibytes of it.
    fn leave(&self, mebibytes: u64) {
        let ballast = self.place().join("ballast");
        let _ = fs::remove_file(&ballast);
        run("sync", &[]);
        let found = rustix::fs::statvfs(self.place()).unwrap();
        let left = (found.f_bavail * found.f_frsize) >> 20;
        let size = format!("{}M", left.checked_sub(mebibytes).unwrap());
        run("fallocate", &["-l", &size, ballast.to_str().unwrap()]);
    }

    fn leave_all(&self) {
        let _ = fs::remove_file(self.place().join("ballast"));
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let place = self.place();
        let _ = sys_linux::command::command("umount").arg("-l").arg(place).status();
    }
}

#[track_caller]
fn run(program: &str, words: &[&str]) {
    let ended = sys_linux::command::command(program).args(words).output().unwrap();
    assert!(ended.status.success(), "{program}: {ended:?}");
}

#[test]
fn without_room_for_its_memory_it_stays_frozen_and_says_so_until_there_is() {
    if cannot_checkpoint("without_room_for_its_memory_it_stays_frozen_and_says_so_until_there_is") {
        return;
    }
    let host = SmallHost::new(1600);
    let reserve = format!("{RESERVE}m");
    let variables = [("SOMA_RESERVE_DISK", reserve.as_str())];
    let daemon = Daemon::with(Home::within(&host.place()), &variables);
    let id = daemon.create(r#"{"name": "box"}"#);
    // 150 MiB in memory, and deleted files of 60 MiB each that are open: nobody reckons with those,
    // and with the reserve there is no room for both.
    let hold = "import os, time; kept = [open('/workspace/gone%d' % n, 'wb') for n in range(3)]; \
                [(f.write(os.urandom(60 << 20)), f.flush(), os.remove(f.name)) for f in kept]; \
                b = os.urandom(150 << 20); \
                open('/workspace/ready', 'w').close(); time.sleep(9999)";
    let start = format!(
        "(n=0; while :; do n=$((n+1)); echo $n > /workspace/n; sleep 0.02; done) > /dev/null 2>&1 & \
         nohup python3 -c \"{hold}\" > /dev/null 2>&1 & \
         while [ ! -e /workspace/ready ]; do sleep 0.1; done; sync"
    );
    daemon.execute(&id, &start);
    let folder = daemon.home.path().join("sandboxes").join(&id);
    let pause = || {
        let answer = daemon.ask("POST", &format!("/v1/sandbox/{id}/pause?grace=0"), "");
        assert_eq!(answer.status, 201, "{}", answer.json());
        assert_eq!(answer.json()["state"], "paused");
        answer.json()["reason"].as_str().unwrap_or_default().to_owned()
    };
    let goes_on = || {
        let count = || daemon.execute(&id, "cat /workspace/n").trim().parse::<u64>().unwrap_or(0);
        let before = count();
        crate::support::eventually("it does not go on", || count() > before);
    };
    // Refused before anything is written.
    host.leave(RESERVE + 100);
    let reason = pause();
    assert!(reason.contains("reserve_disk"), "{reason}");
    assert!(!folder.join("asleep").exists() && !folder.join("asleep.new").exists());
    goes_on();
    // Begun, and the disk is full in the middle of it.
    host.leave(RESERVE + 175);
    let reason = pause();
    goes_on();
    assert!(reason.contains("cannot be put on the disk"), "there was room: {reason}");
    assert!(!reason.contains("reserve_disk"), "{reason}");
    assert!(!folder.join("asleep.new").exists(), "what was written is left");
    // With room it goes to the disk.
    host.leave_all();
    let reason = pause();
    assert!(folder.join("asleep").exists(), "{reason}");
    goes_on();
    assert_eq!(daemon.ask("DELETE", &format!("/v1/sandbox/{id}"), "").status, 204);
    daemon.close();
}
