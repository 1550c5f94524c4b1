//! The launcher: what happens outside while a sandbox comes to be.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::time::Instant;

use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid,
};
use sys_linux::descriptors::{close_all_but, keep_only};
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::process::unblock_signals;

use super::cgroups::Shown;
use super::inside::{self, Word};
use super::layers::{Layers, Parts, open_layer};
use super::{Order, Report, SUPERVISOR, identity, wake};
use crate::cgroup::Part;
use crate::disk::{self, Storage};
use crate::failure::{Failure, Kind, Step};
use crate::missing;
use crate::seccomp::Filters;
use crate::snapshot::Sealed;
use crate::template::Folders;

/// The launcher's whole life. Comes back only when it failed, which it has reported.
pub(super) fn run(order: &Order, filters: &Filters, engine: &OwnedFd) {
    // The engine's clients and other sandboxes are none of this process's business.
    let closed = close_all_but(&[engine.as_raw_fd()]).step("close the engine's descriptors");
    let made = closed
        .and_then(|()| unblock_signals().step("listen to signals again"))
        .and_then(|()| identity::set_usual_limits(order.open_files))
        .and_then(|()| if order.wake { wake::make(order, engine) } else { make(order, filters) });
    match made {
        Ok(made) => {
            let (first, failure) = (made.first_descriptor.try_clone(), supervise(made, engine));
            if let (Ok(first), Err(failure)) = (first, failure) {
                abandon(&first, engine, failure);
            }
        }
        Err(failure) => report(engine, &Report::Failed(failure), &[]),
    }
}

/// A sandbox that stands, and what its supervisor needs.
pub(super) struct Made {
    pub(super) first: Pid,
    pub(super) first_descriptor: OwnedFd,
    pub(super) control: OwnedFd,
    pub(super) record: File,
    pub(super) program: File,
    pub(super) steps: Vec<(String, u64)>,
    /// Whether the engine knows of it already.
    pub(super) told: bool,
}

/// What is there before a sandbox is.
pub(super) struct Prepared {
    /// The files of the template.
    pub(super) folders: Folders,
    /// The mount of what the sandbox writes.
    pub(super) storage: OwnedFd,
    /// The mounts of the sealed disks below that, the lowest first.
    pub(super) sealed: Vec<OwnedFd>,
    pub(super) control: OwnedFd,
    pub(super) record: File,
    pub(super) program: File,
}

/// Goes into the sandbox's cgroup, mounts its disk, and opens what its supervisor needs.
pub(super) fn prepare(order: &Order, watch: &mut Watch) -> Result<Prepared, Failure> {
    let mover = enter_cgroup(order)?;
    let folders = order.ground.folders(&order.home, order.own_ids())?;
    watch.lap("find the template");
    let storage = make_storage(order, watch)?;
    let mut sealed = Vec::new();
    for layer in &order.layers {
        if !layer.seen {
            Sealed::check(&layer.folder)?;
        }
        sealed.push(disk::mount_sealed(&layer.folder.join(disk::NAME))?);
    }
    if !sealed.is_empty() {
        watch.lap("mount the sealed disks");
    }
    await_mover(mover)?;
    watch.lap("enter the cgroup");

    // By which an engine that is started later finds the supervisor.
    let _ = fs::remove_file(order.folder.join(SUPERVISOR));
    let control =
        link::listen_at(&order.folder, SUPERVISOR).step("make the supervisor's socket")?;
    let record = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(order.folder.join(&order.ended))
        .step("make the sandbox's record")?;
    let program = File::open(order.guest.join("guest")).step("open the guest's program")?;
    Ok(Prepared { folders, storage, sealed, control, record, program })
}

fn make(order: &Order, filters: &Filters) -> Result<Made, Failure> {
    let mut watch = Watch::start();
    let Prepared { folders, storage, sealed, control, record, program } =
        prepare(order, &mut watch)?;
    identity::become_base(order.ids)?;
    identity::limit_sandbox(order)?;

    let (ours, theirs) = link::pair().step("talk to the first process")?;
    let (ready, guests_ready) = std::io::pipe().step("talk to the guest")?;
    let shown = Shown::of(&order.group);
    let first = match fork(Namespaces::ALL).map_err(missing::namespaces)? {
        Side::Child => {
            drop(ours);
            inside::run(order, filters, &shown, &theirs, guests_ready.into());
            leave(70)
        }
        Side::Parent(pid) => pid,
    };
    drop((theirs, guests_ready));
    let first_descriptor = pidfd_open(first, PidfdFlags::empty()).step("hold the first process")?;
    watch.lap("make the namespaces");

    let parts = Parts { folders: &folders, storage: &storage, sealed: &sealed };
    let finished = finish(order, &parts, first, &ours, &mut watch)
        .and_then(|()| await_guest(ready, &ours, &mut watch));
    if let Err(failure) = finished {
        end(&first_descriptor);
        return Err(failure);
    }
    let steps = watch.laps;
    Ok(Made { first, first_descriptor, control, record, program, steps, told: false })
}

/// Has another process move this one into the sandbox's cgroup. The kernel takes its time for
/// the first move of a burst (a grace period of up to 15 ms), which the disk needs as well.
fn enter_cgroup(order: &Order) -> Result<Option<Pid>, Failure> {
    if !order.group.is_there() {
        return Ok(None);
    }
    let launcher = getpid();
    let part = if order.wake { Part::Waking } else { Part::Whole };
    if order.wake {
        order.group.make_waking()?;
    }
    match fork(Namespaces::NONE).step("enter the cgroup")? {
        Side::Child => leave(i32::from(order.group.place(part, launcher).is_err())),
        Side::Parent(mover) => Ok(Some(mover)),
    }
}

fn await_mover(mover: Option<Pid>) -> Result<(), Failure> {
    let step = "enter the cgroup";
    let Some(mover) = mover else { return Ok(()) };
    let status = waitpid(Some(mover), WaitOptions::empty()).step(step)?;
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        _ => Err(Failure::new(step, "the kernel refused it", Kind::Broken)),
    }
}

/// Makes the place for what the sandbox writes, as a mount that is attached nowhere.
fn make_storage(order: &Order, watch: &mut Watch) -> Result<OwnedFd, Failure> {
    let path = order.folder.join(&order.disk);
    match order.storage {
        // Over sealed disks it begins with an empty one.
        Storage::Disk(_) if order.again && order.layers.is_empty() && !path.exists() => {
            Err(Failure::new("open the sandbox's disk", "it is gone", Kind::Broken))
        }
        Storage::Disk(_) if order.again && path.exists() => {
            let disk = disk::open(&path)?;
            let disk = disk::mount(&disk)?;
            watch.lap("mount the disk");
            Ok(disk)
        }
        Storage::Disk(size) => {
            let disk = disk::make(&order.home, size, &path)?;
            watch.lap("copy the disk");
            let disk = disk::mount(&disk)?;
            watch.lap("mount the disk");
            Ok(disk)
        }
        Storage::Folder => {
            if !order.again {
                disk::make_layers(&order.folder, order.ids).step("make the sandbox's folders")?;
            }
            open_layer(&order.folder)
        }
    }
}

/// All that the first process needs from outside.
fn finish(
    order: &Order,
    parts: &Parts<'_>,
    first: Pid,
    inside: &OwnedFd,
    watch: &mut Watch,
) -> Result<(), Failure> {
    let process = format!("/proc/{}", first.as_raw_pid());
    for file in ["uid_map", "gid_map"] {
        fs::write(format!("{process}/{file}"), order.ids.map()).step("map the sandbox's ids")?;
    }
    let user = File::open(format!("{process}/ns/user")).step("open the user namespace")?;
    watch.lap("map the ids");
    let layers = Layers::make(order, parts, user.as_fd())?;
    watch.lap("make the file systems");
    tell(inside, &Word::Attach, &layers.descriptors())?;
    drop(layers);
    hear(inside)?;
    watch.lap("attach them and pivot");

    let spawner = child_of(first)?;
    order.group.place(Part::Workload, spawner)?;
    if order.has_reserve() {
        order.group.place(Part::Reserve, child_of(spawner)?)?;
    }
    order.group.place(Part::Guest, first)?;
    order.group.place(Part::Guest, getpid())?;
    order.group.settle()?;
    order.group.limit_beside()?;
    watch.lap("place the processes");
    tell(inside, &Word::Go, &[])
}

/// The first child of a process.
fn child_of(parent: Pid) -> Result<Pid, Failure> {
    let step = "find the spawners";
    let parent = parent.as_raw_pid();
    let children =
        fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).step(step)?;
    let first = children.split_whitespace().next().and_then(|text| text.parse().ok());
    let missing = || Failure::new(step, "one is not there", Kind::Broken);
    first.and_then(Pid::from_raw).ok_or_else(missing)
}

/// Waits for the guest's byte; when none comes, the reason may be on the other line.
fn await_guest(
    mut ready: std::io::PipeReader,
    inside: &OwnedFd,
    watch: &mut Watch,
) -> Result<(), Failure> {
    let mut byte = [0];
    if ready.read(&mut byte).step("wait for the guest")? == 1 {
        watch.lap("start the guest");
        return Ok(());
    }
    hear(inside)?;
    Err(Failure::new("start the guest", "it left without a word", Kind::Broken))
}

/// Tells the engine, gives up everything and becomes the supervisor's program.
fn supervise(made: Made, engine: &OwnedFd) -> Result<(), Failure> {
    let step = "become the supervisor";
    identity::give_up_everything()?;
    let link = engine.try_clone().step(step)?;
    let pid = made.first.as_raw_pid();
    if !made.told {
        report(engine, &Report::Ready { pid, steps: made.steps }, &[made.first_descriptor.as_fd()]);
    }
    let program = OwnedFd::from(made.program);
    keep_only(vec![made.control, made.record.into(), link, program]).step(step)?;
    // The program is at 6 now, open for this one use: `supervise` closes it first.
    let error = sys_linux::command::command("/proc/self/fd/6")
        .arg0("soma-supervisor")
        .args(["supervise", &pid.to_string()])
        .exec();
    Err(error).step(step)
}

fn abandon(first: &OwnedFd, engine: &OwnedFd, failure: Failure) {
    end(first);
    report(engine, &Report::Failed(failure), &[]);
}

/// Kills the first process, and with it all that are in the sandbox.
pub(super) fn end(first: &OwnedFd) {
    let _ = pidfd_send_signal(first, Signal::KILL);
    let _ = rustix::process::waitid(
        rustix::process::WaitId::PidFd(first.as_fd()),
        rustix::process::WaitIdOptions::EXITED,
    );
}

pub(super) fn tell(
    inside: &OwnedFd,
    word: &Word,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Failure> {
    link::send(inside, word, descriptors, SendFlags::empty()).step("talk to the first process")
}

/// The first process's answer: that a stage is done, or why it is not.
pub(super) fn hear(inside: &OwnedFd) -> Result<(), Failure> {
    let step = "listen to the first process";
    match link::receive::<Result<(), Failure>>(inside, RecvFlags::empty()).step(step)? {
        Some((answer, _)) => answer,
        None => Err(Failure::new(step, "it ended without a word", Kind::Broken)),
    }
}

pub(super) fn report(engine: &OwnedFd, report: &Report, descriptors: &[BorrowedFd<'_>]) {
    // An engine that is gone needs no report.
    let _ = link::send(engine, report, descriptors, SendFlags::empty());
}

/// Where the time goes.
pub(super) struct Watch {
    last: Instant,
    pub(super) laps: Vec<(String, u64)>,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { last: Instant::now(), laps: Vec::new() }
    }

    pub(super) fn lap(&mut self, step: &str) {
        let now = Instant::now();
        let micros = u64::try_from((now - self.last).as_micros()).unwrap_or(u64::MAX);
        self.laps.push((step.to_owned(), micros));
        self.last = now;
    }
}
