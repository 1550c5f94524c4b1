//! How a sandbox is woken that was put on the disk.
//!
//! ```text
//! launcher                         CRIU, in the user namespace that the launcher made
//!   mount the disk, become the base id
//!   clone into user, mount, name and cgroup namespaces --> waits
//!   write its id maps, make the file systems ------------> attach them, execute CRIU
//!   lay the wires <--------------------------------------- the network namespace is there
//!   place all in cgroups, forbid namespaces <------------- all processes are there, held
//!   freeze them, tell the engine, wait for its word
//!   the images are used up --------------------------------> let them go, leave
//!   let them run, give up everything, become the supervisor
//! ```
//!
//! They are frozen while CRIU lets go of them, so that none runs while it holds another: one that is
//! killed in its hands has it give up all of them. And should CRIU or the launcher die, none has run.
//!
//! CRIU has no power outside the sandbox's own namespaces, and sees its images and the sandbox.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat};
use rustix::mount::{
    MountAttrFlags, MountPropagationFlags, MoveMountFlags, mount_change, move_mount,
};
use rustix::net::SendFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys_linux::mount::{Attributes, restrict};
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::network::bring_loopback_up;

use super::inside::{FORBIDDEN_NAMESPACES, Word, await_word};
use super::launcher::{Made, Prepared, Watch, end, hear, prepare, report, tell};
use super::layers::{Layers, Parts, new_file_system, open_layer};
use super::{Order, Report, cgroups, identity};
use crate::cgroup::Part;
use crate::checkpoint::{ASLEEP, AWOKEN, About, LOG, Program, blame, inside_id, usual};
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::missing;

/// Where CRIU finds everything: a folder that every system has, covered in its own namespace.
const ROOM: &str = "/mnt";

/// Asks the launcher at the two moments at which it has something to do, and waits for its word.
const HOOK: &str = "#!/bin/sh
case \"$CRTOOLS_SCRIPT_ACTION\" in setup-namespaces | pre-resume) ;; *) exit 0 ;; esac
echo \"$CRTOOLS_SCRIPT_ACTION $CRTOOLS_INIT_PID\" > /mnt/said
read answer < /mnt/go && [ \"$answer\" = go ]
";

/// Restores the sandbox, and returns when it runs.
pub(super) fn make(order: &Order, engine: &OwnedFd) -> Result<Made, Failure> {
    let mut watch = Watch::start();
    let program = Program::find()?;
    let images = order.folder.join(ASLEEP);
    let about = About::read(&images).step("read its images")?;
    watch.lap("check the images");
    let _ = fs::remove_dir_all(order.folder.join(AWOKEN));
    let log_path = order.folder.join(LOG);
    let log = File::create(&log_path).step("make a log")?;
    let Prepared { folders, storage, sealed, control, record, program: supervisor } =
        prepare(order, &mut watch)?;
    let image_mount = open_layer(&images)?;
    restrict(&image_mount, Attributes::SAFE_READ_ONLY).step("protect the images")?;
    identity::become_base(order.ids)?;
    identity::limit_sandbox(order)?;

    let (ours, theirs) = link::pair().step("talk to CRIU")?;
    let restorer = match fork(Namespaces::WAKING).map_err(missing::namespaces)? {
        Side::Child => {
            drop(ours);
            if let Err(failure) = restore(&about, &program, &log, &theirs) {
                let answer: Result<(), Failure> = Err(failure);
                let _ = link::send(&theirs, &answer, &[], SendFlags::empty());
            }
            leave(70)
        }
        Side::Parent(pid) => pid,
    };
    drop(theirs);
    let held = pidfd_open(restorer, PidfdFlags::empty()).step("hold CRIU")?;
    let parts = Parts { folders: &folders, storage: &storage, sealed: &sealed };
    let mut guide = Guide { order, about: &about, log: &log_path, restorer, held, first: None };
    let woken = guide
        .set_out(&parts, &image_mount, &ours, &mut watch)
        .and_then(|()| guide.see_through(engine, &mut watch));
    match woken {
        Ok(first_descriptor) => {
            let first = guide.first.map_or(restorer, |(first, _)| first);
            let steps = watch.laps;
            Ok(Made {
                first,
                first_descriptor,
                control,
                record,
                program: supervisor,
                steps,
                told: true,
            })
        }
        Err(failure) => {
            end(&guide.held);
            guide.end_all();
            Err(failure)
        }
    }
}

/// The launcher's side of a restore.
struct Guide<'a> {
    order: &'a Order,
    about: &'a About,
    log: &'a Path,
    restorer: Pid,
    held: OwnedFd,
    first: Option<(Pid, OwnedFd)>,
}

impl Guide<'_> {
    /// Gives CRIU ids and file systems, puts it where the sandbox's processes belong, lets it go.
    fn set_out(
        &self,
        parts: &Parts<'_>,
        images: &OwnedFd,
        inside: &OwnedFd,
        watch: &mut Watch,
    ) -> Result<(), Failure> {
        let process = format!("/proc/{}", self.restorer.as_raw_pid());
        for file in ["uid_map", "gid_map"] {
            let map = self.order.ids.map();
            fs::write(format!("{process}/{file}"), map).step("map the sandbox's ids")?;
        }
        let user = File::open(format!("{process}/ns/user")).step("open the user namespace")?;
        let layers = Layers::make(self.order, parts, user.as_fd())?;
        let mut mounts = vec![images.as_fd()];
        mounts.extend(layers.descriptors());
        tell(inside, &Word::Attach, &mounts)?;
        drop(mounts);
        hear(inside)?;
        watch.lap("make the file systems");
        tell(inside, &Word::Go, &[])
    }

    /// Does what is to be done while it restores, until the sandbox runs.
    fn see_through(&mut self, engine: &OwnedFd, watch: &mut Watch) -> Result<OwnedFd, Failure> {
        let said = self.open("said")?;
        let mut go = self.open("go")?;
        let step = "answer CRIU";
        let first = self.await_moment(&said, "setup-namespaces")?;
        self.hold(first)?;
        // Before it has children: what is restored is counted where it is born.
        self.order.group.place(Part::Workload, first)?;
        self.wire(first)?;
        go.write_all(b"go\n").step(step)?;
        watch.lap("make the namespaces");
        self.await_moment(&said, "pre-resume")?;
        watch.lap("restore the processes");
        self.place()?;
        forbid_namespaces(first)?;
        self.order.group.freeze_parts()?;
        watch.lap("place the processes");

        self.await_engine(engine, first, watch)?;
        let step = "use the images up";
        let folder = &self.order.folder;
        fs::rename(folder.join(ASLEEP), folder.join(AWOKEN)).step(step)?;
        durable::settle(folder).step(step)?;
        go.write_all(b"go\n").step(step)?;
        let status = waitpid(Some(self.restorer), WaitOptions::empty()).step(step)?;
        match status.and_then(|(_, status)| status.exit_status()) {
            Some(0) => {
                self.order.group.thaw_parts()?;
                self.order.group.place(Part::Guest, getpid())?;
                self.order.group.remove_waking()?;
                let (_, descriptor) = self.first.as_ref().ok_or_else(|| self.broken())?;
                descriptor.try_clone().step(step)
            }
            _ => Err(self.broken()),
        }
    }

    fn open(&self, name: &str) -> Result<File, Failure> {
        let path = format!("/proc/{}/root{ROOM}/{name}", self.restorer.as_raw_pid());
        // For both directions, so that neither side waits for the other to open it.
        OpenOptions::new().read(true).write(true).open(path).step("listen to CRIU")
    }

    /// The id of the first process, when CRIU has come to this moment.
    fn await_moment(&self, said: &File, moment: &str) -> Result<Pid, Failure> {
        let step = "listen to CRIU";
        loop {
            let mut sources =
                [PollFd::new(said, PollFlags::IN), PollFd::new(&self.held, PollFlags::IN)];
            match poll(&mut sources, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.step(step)?,
            };
            if !sources[0].revents().contains(PollFlags::IN) {
                return Err(self.broken());
            }
            let mut bytes = [0; 128];
            let mut source = said;
            let length = source.read(&mut bytes).step(step)?;
            let text = String::from_utf8_lossy(&bytes[..length]);
            let mut words = text.split_whitespace();
            let pid = |word: Option<&str>| Pid::from_raw(word?.parse().ok()?);
            return match (words.next(), pid(words.next())) {
                (Some(word), Some(first)) if word == moment => Ok(first),
                _ => Err(Failure::new(step, "it said something odd", Kind::Broken)),
            };
        }
    }

    fn hold(&mut self, first: Pid) -> Result<(), Failure> {
        let descriptor = pidfd_open(first, PidfdFlags::empty()).step("hold the first process")?;
        self.first = Some((first, descriptor));
        Ok(())
    }

    /// Sockets can come back only where their addresses are.
    fn wire(&self, first: Pid) -> Result<(), Failure> {
        let step = "lay the network's wires";
        let network = File::open(format!("/proc/{}/ns/net", first.as_raw_pid())).step(step)?;
        aside(step, || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            bring_loopback_up()?;
            if self.order.wires { wiring::wire() } else { Ok(()) }
        })
    }

    /// Puts those into other cgroups that were in others.
    fn place(&self) -> Result<(), Failure> {
        let group = &self.order.group;
        for process in group.processes_of(Part::Workload) {
            let Some(id) = inside_id(process) else { continue };
            if self.about.guests.contains(&id) {
                group.place(Part::Guest, process)?;
            } else if self.about.reserves.contains(&id) {
                group.place(Part::Reserve, process)?;
            }
        }
        group.settle()?;
        group.limit_beside()
    }

    /// Tells the engine that all of it is there, and waits until that is written down.
    fn await_engine(&self, engine: &OwnedFd, first: Pid, watch: &mut Watch) -> Result<(), Failure> {
        let step = "wait for the engine";
        let (mut word, hold) = io::pipe().step(step)?;
        let (_, descriptor) = self.first.as_ref().ok_or_else(|| self.broken())?;
        let steps = std::mem::take(&mut watch.laps);
        let ready = Report::Ready { pid: first.as_raw_pid(), steps };
        report(engine, &ready, &[descriptor.as_fd(), hold.as_fd()]);
        drop(hold);
        let mut byte = [0];
        match word.read(&mut byte).step(step)? {
            1 => Ok(()),
            _ => Err(Failure::new(step, "it is gone", Kind::Broken)),
        }
    }

    /// Ends what was restored, of which nothing has run: killed first, and let go on then.
    fn end_all(&self) {
        let group = &self.order.group;
        for part in [Part::Guest, Part::Workload, Part::Reserve] {
            for process in group.processes_of(part) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        let _ = group.thaw_parts();
        if let Some((_, first)) = &self.first {
            end(first);
        }
    }

    fn broken(&self) -> Failure {
        let cause =
            format!("{}; `soma stop` gives its processes up and keeps its files", blame(self.log));
        Failure::new("restore its processes", cause, Kind::Broken)
    }
}

/// CRIU needed some; the sandbox has none.
fn forbid_namespaces(first: Pid) -> Result<(), Failure> {
    let step = "forbid namespaces within";
    let users = File::open(format!("/proc/{}/ns/user", first.as_raw_pid())).step(step)?;
    aside(step, || {
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
        for kind in FORBIDDEN_NAMESPACES {
            match fs::write(format!("/proc/sys/user/max_{kind}_namespaces"), "0") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    })
}

/// Does something in a process of its own, which comes back from nowhere.
fn aside(step: &str, act: impl FnOnce() -> io::Result<()>) -> Result<(), Failure> {
    let (mut said, mut say) = io::pipe().step(step)?;
    let Side::Parent(child) = fork(Namespaces::NONE).step(step)? else {
        if let Err(error) = act() {
            let _ = say.write_all(error.to_string().as_bytes());
        }
        leave(0)
    };
    drop(say);
    let mut cause = String::new();
    said.read_to_string(&mut cause).step(step)?;
    let _ = waitpid(Some(child), WaitOptions::empty());
    if cause.is_empty() { Ok(()) } else { Err(Failure::new(step, cause, Kind::Broken)) }
}

/// What becomes CRIU. Comes back only when it failed.
fn restore(about: &About, program: &Program, log: &File, outside: &OwnedFd) -> Result<(), Failure> {
    let step = "prepare the restore";
    set_parent_process_death_signal(Some(Signal::KILL)).step(step)?;
    let mounts = await_word(outside)?;
    let [images, root, devices, guest, usr @ ..] = mounts.as_slice() else {
        return Err(Failure::new(step, "a mount is missing", Kind::Broken));
    };
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).step(step)?;
    for place in ["/tmp", "/run", ROOM] {
        let empty = new_file_system("tmpfs", &[("mode", "755")], MountAttrFlags::empty())?;
        attach(&empty, place).step(step)?;
    }
    make_and_attach(images, "images").step(step)?;
    make_and_attach(root, "root").step(step)?;
    let mut external = Vec::new();
    for one in &about.outside {
        let path = match (&one.controllers, one.name.as_str()) {
            (Some(controllers), name) => {
                let mount = cgroups::mount(controllers, cgroups::FLAGS).step("show the cgroups")?;
                make_and_attach(&mount, name)
            }
            (None, "usr") => make_and_attach(usr.first().unwrap_or(root), "usr"),
            (None, "dev") => make_and_attach(devices, "dev"),
            (None, _) => make_and_attach(guest, "soma"),
        };
        external.push(format!("--external=mnt[{}]:{}", one.name, path.step(step)?.display()));
    }
    let here = Path::new(ROOM);
    for name in ["said", "go"] {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, here.join(name), FileType::Fifo, mode, 0).step(step)?;
    }
    let hook = here.join("hook");
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o755).open(&hook).step(step)?;
    file.write_all(HOOK.as_bytes()).step(step)?;
    file.set_permissions(fs::Permissions::from_mode(0o755)).step(step)?;
    drop(file);
    drop(mounts);

    let done: Result<(), Failure> = Ok(());
    link::send(outside, &done, &[], SendFlags::empty()).step(step)?;
    await_word(outside)?;
    let mut command = program.command();
    command
        .args(["restore", "--unprivileged", "--restore-detached", "--restore-sibling"])
        .arg("--images-dir")
        .arg(here.join("images"))
        .arg("--work-dir")
        .arg(here)
        .arg("--root")
        .arg(here.join("root"))
        .arg("--action-script")
        .arg(&hook)
        .args(external);
    usual(&mut command, log).step(step)?;
    Err(command.exec()).step("start CRIU")
}

fn make_and_attach(mount: &OwnedFd, name: &str) -> io::Result<PathBuf> {
    let path = Path::new(ROOM).join(name);
    mkdirat(CWD, &path, Mode::from_raw_mode(0o755))?;
    attach(mount, &path)?;
    Ok(path)
}

fn attach(mount: &OwnedFd, path: impl AsRef<Path>) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(mount, "", CWD, path.as_ref(), flags)?)
}
