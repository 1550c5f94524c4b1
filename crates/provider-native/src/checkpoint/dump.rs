//! The dump: a process of the engine's has CRIU write the images of a sandbox that stands still.
//!
//! It outlives the engine: a CRIU that is killed leaves processes behind that it was about to change.
//! The next engine has somebody wait for it ([`follow`]). CRIU lets the processes go while it holds
//! them, so whoever finds the folder of a dump that was interrupted finds a sandbox that may run.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, waitid,
    waitpid,
};
use sys_linux::descriptors::close_all_but;
use sys_linux::namespace::{Namespaces, Side, fork, leave, leave_mounts};
use sys_linux::process::unblock_signals;

use super::about::{About, Outside};
use super::{ASLEEP, LOG, NEW, Program, blame, images, unsettled};
use crate::cgroup::{Group, Part};
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::home::make_folder;
use crate::ids::IdRange;
use crate::launch::identity::become_dumper;

/// The largest file that was deleted and is still open, and comes along.
const LARGEST_GHOST: &str = "64M";

/// How long CRIU looks for the sandbox's processes, in seconds. Then it waits in vain for one that
/// does not stop in its hands, or has ended there.
const LONGEST_SEARCH: &str = "5";

/// What it says then.
const LOST_COUNT: &str = "Timeout reached";

/// How often it may search.
const SEARCHES: u32 = 3;

/// How long is waited for a moment in which it can, and how long processes run before the next.
const LONGEST_SETTLING: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);

/// How long it may take to end when nobody waits for it any more. Killed sooner it may leave a process
/// in the middle of what it does to it.
const LONGEST_FAREWELL: Duration = Duration::from_secs(20);

/// How long processes may take to stand.
const LONGEST_FREEZE: Duration = Duration::from_secs(5);

/// What is to be dumped.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) first: Pid,
    pub(crate) ids: IdRange,
    pub(crate) folder: &'a Path,
    pub(crate) group: &'a Group,
}

/// A dump at work.
#[derive(Debug)]
pub(crate) struct Sleeper {
    process: OwnedFd,
    said: io::PipeReader,
}

impl Sleeper {
    /// Readable when it is over.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// What became of it, once it is over.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let status = waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED);
        let mut said = String::new();
        let _ = self.said.read_to_string(&mut said);
        match status.ok().flatten().and_then(|status| status.exit_status()) {
            Some(0) => Ok(()),
            _ if said.is_empty() => Err("the dump was killed".to_owned()),
            _ => Err(said),
        }
    }

    /// Whether it died and could not say why, and what it did may not be over.
    pub(crate) fn was_killed(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.process.as_fd()), options);
        status.ok().flatten().is_some_and(|status| status.killed())
    }
}

/// Begins to dump a sandbox.
pub(crate) fn start(subject: &Subject<'_>) -> Result<Sleeper, Failure> {
    begin("start a dump", || dump(subject))
}

/// Begins to wait for a dump that an earlier engine began, or whose process died. Then the sandbox is
/// on the disk, or stands still again.
pub(crate) fn follow(subject: &Subject<'_>) -> Result<Sleeper, Failure> {
    begin("wait for a dump", || await_dump(subject))
}

/// Does something in a process of its own.
fn begin(step: &str, act: impl FnOnce() -> Result<(), Failure>) -> Result<Sleeper, Failure> {
    let (said, mut say) = io::pipe().step(step)?;
    match fork(Namespaces::NONE).step(step)? {
        Side::Child => {
            let done = close_all_but(&[say.as_raw_fd()])
                .and_then(|()| unblock_signals())
                .step(step)
                .and_then(|()| act());
            if let Err(failure) = done {
                let _ = say.write_all(failure.to_string().as_bytes());
                leave(1);
            }
            leave(0)
        }
        Side::Parent(process) => {
            drop(say);
            Ok(Sleeper { process: pidfd_open(process, PidfdFlags::empty()).step(step)?, said })
        }
    }
}

/// Waits until nobody dumps any more, and has the sandbox stand still.
fn await_dump(subject: &Subject<'_>) -> Result<(), Failure> {
    let step = "put its processes on the disk";
    if let Ok(images) = File::open(subject.folder.join(NEW)) {
        // Whoever dumps holds it to the end.
        flock(&images, FlockOperation::LockExclusive).step(step)?;
    }
    if subject.folder.join(ASLEEP).exists() {
        return Ok(());
    }
    let since = Instant::now();
    loop {
        let dumpers = dumpers(subject);
        if dumpers.is_empty() {
            break;
        }
        if since.elapsed() > LONGEST_FAREWELL {
            for dumper in dumpers {
                let _ = kill_process(dumper, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    stand_still(subject.group)?;
    Err(Failure::new(step, "it was interrupted", Kind::Broken))
}

/// CRIU and what it left: whoever has the sandbox's base id and is not in it.
fn dumpers(subject: &Subject<'_>) -> Vec<Pid> {
    let base = subject.ids.base.to_string();
    let is_dumper = |process: &Pid| {
        let file = |name| fs::read_to_string(format!("/proc/{}/{name}", process.as_raw_pid()));
        let (Ok(status), Ok(cgroups)) = (file("status"), file("cgroup")) else { return false };
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        let is_its = field("Uid:").split_whitespace().next() == Some(&base);
        is_its && !field("State:").trim().starts_with('Z') && !subject.group.is_named_in(&cgroups)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(Pid::from_raw).filter(is_dumper).collect()
}

fn dump(subject: &Subject<'_>) -> Result<(), Failure> {
    let program = Program::find()?;
    let new = subject.folder.join(NEW);
    let step = "make a folder for the images";
    make_folder(&new).step(step)?;
    let _lock = lock(&new).step(step)?;
    let outside = outside(subject.first).step("read the sandbox's mounts")?;
    let parts = [Part::Guest, Part::Reserve].map(|part| inside_ids(subject.group, part));
    surround()?;
    run(&program, subject, &new, &outside)?;

    images::fit(&new).step("fit the images")?;
    for entry in fs::read_dir(&new).step(step)? {
        let path = entry.step(step)?.path();
        std::os::unix::fs::chown(&path, Some(0), Some(0)).step(step)?;
        // Read by the sandbox's ids, which are others when it is woken; the folder above keeps all
        // others out.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).step(step)?;
    }
    fs::set_permissions(&new, Permissions::from_mode(0o755)).step(step)?;
    // What it wrote to its disk belongs to what is in its memory.
    let root = format!("/proc/{}/root", subject.first.as_raw_pid());
    File::open(root)
        .and_then(|root| Ok(rustix::fs::syncfs(&root)?))
        .step("write the sandbox's disk")?;
    let about = About::of(&new, outside, parts).step("sum up the images")?;
    about.write(&new).step("write the images")?;
    let step = "keep the images";
    fs::rename(&new, subject.folder.join(ASLEEP)).step(step)?;
    durable::settle(subject.folder).step(step)
}

/// Mounts of its own, among them the one in which CRIU remembers what the kernel can do.
fn surround() -> Result<(), Failure> {
    let step = "make a mount namespace";
    leave_mounts().step(step)?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)?;
    mount("soma", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=777").step(step)
}

/// Holds a folder of images for as long as this process lives.
fn lock(images: &Path) -> io::Result<File> {
    let folder = File::open(images)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

/// Has all processes stand still, and returns when they do.
fn stand_still(group: &Group) -> Result<(), Failure> {
    group.freeze()?;
    let since = Instant::now();
    while !group.comes_to_stand() {
        if since.elapsed() > LONGEST_FREEZE {
            let cause = "some of its processes do not stop";
            return Err(Failure::new("freeze the sandbox", cause, Kind::Broken));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn run(
    program: &Program,
    subject: &Subject<'_>,
    images: &Path,
    outside: &[Outside],
) -> Result<(), Failure> {
    let log = subject.folder.join(LOG);
    for search in 1.. {
        // What an earlier search left; the folder itself stays.
        for entry in fs::read_dir(images).step("empty the images' folder")?.flatten() {
            let _ = fs::remove_file(entry.path());
        }
        settle(subject.group)?;
        let dumped = run_once(program, subject, images, outside, &log);
        if dumped.is_ok() || search == SEARCHES || !has_lost_count(&log) {
            return dumped;
        }
        // Whatever it stumbled over is there the next time, unless it comes to its end.
        let_pass(subject.group)?;
    }
    Ok(())
}

/// Has all processes stand still where CRIU can take them: not while one is about to become another
/// program, or to end. Such a moment passes when they run for another one.
fn settle(group: &Group) -> Result<(), Failure> {
    let since = Instant::now();
    stand_still(group)?;
    while since.elapsed() < LONGEST_SETTLING && unsettled::any(group) {
        let_pass(group)?;
        stand_still(group)?;
    }
    Ok(())
}

/// Lets them run for a moment.
fn let_pass(group: &Group) -> Result<(), Failure> {
    group.thaw()?;
    std::thread::sleep(MOMENT);
    Ok(())
}

fn has_lost_count(log: &Path) -> bool {
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).contains(LOST_COUNT)
}

fn run_once(
    program: &Program,
    subject: &Subject<'_>,
    images: &Path,
    outside: &[Outside],
    path: &Path,
) -> Result<(), Failure> {
    let step = "put its processes on the disk";
    let log = File::create(path).step(step)?;
    let freezer = subject.group.freezer().unwrap_or_default();
    let mut command = program.command();
    command
        .args(["dump", "--unprivileged", "--leave-running", "--tree"])
        .arg(subject.first.as_raw_pid().to_string())
        .arg("--images-dir")
        .arg(images)
        .arg("--freeze-cgroup")
        .arg(freezer)
        .args(["--ghost-limit", LARGEST_GHOST, "--timeout", LONGEST_SEARCH])
        .args(outside.iter().map(|one| format!("--external=mnt[{}]:{}", one.path, one.name)));
    usual(&mut command, &log).step(step)?;
    let dumper = match fork(Namespaces::NONE).step(step)? {
        Side::Child => {
            let failure = match become_dumper(subject.ids) {
                Ok(()) => command.exec().to_string(),
                Err(failure) => failure.to_string(),
            };
            let _ = writeln!(&log, "Error (soma): {failure}");
            leave(70)
        }
        Side::Parent(dumper) => dumper,
    };
    let status = waitpid(Some(dumper), WaitOptions::empty()).step(step)?;
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(Failure::new(step, blame(path), Kind::Broken)),
    }
}

/// What is said to CRIU whatever it does.
pub(crate) fn usual(command: &mut Command, log: &File) -> io::Result<()> {
    command
        .args(["-v2", "--manage-cgroups=ignore", "--empty-ns", "net", "--network-lock", "skip"])
        .args(["--tcp-established", "--file-locks"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    Ok(())
}

/// The mounts of a sandbox that CRIU could not make again.
fn outside(first: Pid) -> io::Result<Vec<Outside>> {
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", first.as_raw_pid()))?;
    Ok(parse_outside(&mounts))
}

fn parse_outside(mounts: &str) -> Vec<Outside> {
    let mut all = Vec::new();
    for line in mounts.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let Some(path) = mount.split(' ').nth(4).map(ToOwned::to_owned) else { continue };
        let known = match path.as_str() {
            "/usr" => Some("usr"),
            "/dev" => Some("dev"),
            "/run/soma" => Some("soma"),
            _ => None,
        };
        let mut system = system.split(' ');
        let (kind, options) =
            (system.next().unwrap_or_default(), system.next_back().unwrap_or_default());
        if let Some(name) = known {
            all.push(Outside { name: name.to_owned(), path, controllers: None });
        } else if kind == "cgroup" || kind == "cgroup2" {
            let name = format!("cgroup{}", all.len());
            let is_first = kind == "cgroup";
            let word = |option: &&str| !["rw", "ro"].contains(option) && !option.contains('=');
            let controllers = options.split(',').filter(|_| is_first).filter(word);
            let controllers = Some(controllers.map(ToOwned::to_owned).collect());
            all.push(Outside { name, path, controllers });
        }
    }
    all
}

/// The processes of a part, as the sandbox counts them.
fn inside_ids(group: &Group, part: Part) -> Vec<i32> {
    group.processes_of(part).into_iter().filter_map(inside_id).collect()
}

/// What the sandbox calls a process; nothing for one that is not in it.
pub(crate) fn inside_id(process: Pid) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_pid())).ok()?;
    let mut ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace();
    ids.next()?;
    ids.next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_criu_cannot_make_is_found_among_the_mounts() {
        let mounts = "\
20 1 0:30 / / rw,nosuid - overlay soma rw,lowerdir=base
21 20 0:31 / /usr rw - overlay soma rw
22 20 0:32 / /dev ro - tmpfs soma rw,mode=755
23 22 0:33 / /dev/pts rw - devpts devpts rw
24 20 0:34 / /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
25 20 0:35 / /run/soma ro - overlay soma ro
26 20 0:36 / /sys/fs/cgroup ro - cgroup2 cgroup rw,nsdelegate
";
        let found = parse_outside(mounts);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["usr", "dev", "cgroup2", "soma", "cgroup4"]);
        assert_eq!(found[2].controllers.as_deref().unwrap(), ["cpu", "cpuacct"]);
        assert_eq!(found[4].controllers.as_deref().unwrap(), [""; 0]);
    }
}
