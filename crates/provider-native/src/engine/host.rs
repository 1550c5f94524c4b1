//! What the engine has of its host for as long as it runs.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use domain::{Layer, Limit, Limits};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use sys_linux::descriptors::close_all_but;
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use sys_linux::network::bring_loopback_up;
use sys_linux::process::{reset_signals, termination_descriptor};

use super::Options;
use super::adopt::folders_in;
use super::nursery::Nursery;
use crate::cgroup::Hierarchies;
use crate::disk::{Size, Storage};
use crate::failure::{Failure, Step};
use crate::fingerprint::fingerprint;
use crate::home::{Home, make_folder, open_own};
use crate::ids::Ranges;
use crate::landlock;
use crate::manifest::Manifest;
use crate::rights::Rights;
use crate::seccomp::Filters;

pub(super) struct Host {
    pub(super) options: Options,
    pub(super) rights: Rights,
    pub(super) listener: OwnedFd,
    pub(super) hierarchies: Hierarchies,
    pub(super) filters: Filters,
    pub(super) ranges: Ranges,
    /// The folder of this version's guest.
    pub(super) guest: PathBuf,
    /// Readable when somebody asked the engine to end.
    pub(super) termination: OwnedFd,
    /// The engine's own namespaces, to come back to.
    pub(super) network: File,
    pub(super) names: File,
    has_landlock: bool,
    /// Why sandboxes have no network but their own, if they have none.
    pub(super) missing_wires: Option<String>,
    /// How many launchers work at one time.
    pub(super) launchers: usize,
    pub(super) nursery: Nursery,
    _lock: File,
}

impl Host {
    /// Takes the home; `None` when another engine has it.
    pub(super) fn open(mut options: Options) -> Result<Option<Self>, Failure> {
        forget_who_started_us().step("forget who started the engine")?;
        if options.detach {
            // Away from the terminal of whoever started us, and from its signals.
            rustix::process::setsid().step("leave the terminal")?;
        }
        // Before anything else: what it starts is to be on the host, and not where we go.
        let nursery = Nursery::open().step("prepare to start programs")?;
        options.home.make()?;
        let home = &options.home;
        let lock = open_own(&home.lock()).step("take the home")?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other.step("take the home")?,
        }
        let rights = Rights::obtain(home)?;
        let find = |label: u64| Hierarchies::find(rights, &format!("{label:016x}"));
        let label = home.label_now(|label| is_ours(home, &find(label))).step("take the home")?;
        let mut hierarchies = find(label);
        let filters = Filters::compile()?;
        let guest = install(&home.guests(), options.guest)?;
        let open = |name: &str| File::open(format!("/proc/self/ns/{name}")).step("open namespaces");
        let (network, names) = (open("net")?, open("uts")?);
        let launchers = std::thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let termination = termination_descriptor().step("listen for signals")?;
        // Last, what others can see. Once it listens, it serves.
        hierarchies.make_homes(rights)?;
        let listener = listen(home).inspect_err(|_| {
            let _ = hierarchies.remove_homes();
        })?;
        if options.detach {
            log_to(&home.log()).step("open the log")?;
        }
        let ranges = match rights {
            Rights::Root => Ranges::of_this_host(label),
            Rights::User { ids } => Ranges::of_a_user(ids),
        };
        Ok(Some(Self {
            options,
            rights,
            listener,
            hierarchies,
            filters,
            ranges,
            guest,
            termination,
            network,
            names,
            has_landlock: landlock::is_available(),
            missing_wires: try_wires().err().map(|error| error.to_string()),
            launchers,
            nursery,
            _lock: lock,
        }))
    }

    /// The limits that nothing on this host can hold a sandbox to. That on processes is always
    /// held: where no cgroup counts them, the kernel does for the sandbox's id.
    pub(super) fn unenforced(&self) -> Vec<Limit> {
        let missing = self.hierarchies.missing().iter().copied();
        let mut unenforced: Vec<Limit> = missing.filter(|limit| *limit != Limit::Pids).collect();
        if !self.rights.is_root() {
            unenforced.push(Limit::Disk);
        }
        unenforced
    }

    /// The layers of isolation that sandboxes on this host go without.
    pub(super) fn missing_layers(&self) -> Vec<Layer> {
        let layers = [
            (Layer::Landlock, !self.has_landlock),
            (Layer::OwnIds, self.ranges.are_single()),
            (Layer::OwnDisk, !self.rights.is_root()),
        ];
        layers.into_iter().filter(|(_, missing)| *missing).map(|(layer, _)| layer).collect()
    }

    /// Whether processes are counted by id, for want of a cgroup that does.
    pub(super) fn counts_processes_by_id(&self) -> bool {
        self.hierarchies.missing().contains(&Limit::Pids)
    }

    /// Where a sandbox with these limits keeps what it writes.
    pub(super) fn storage(&self, limits: &Limits) -> Storage {
        if self.rights.is_root() { Storage::Disk(Size::of(limits)) } else { Storage::Folder }
    }

    /// Leaves nothing behind that only a running engine needs.
    pub(super) fn close(&self) {
        let _ = fs::remove_file(self.options.home.socket());
        // Sandboxes that are kept still have theirs.
        let _ = self.hierarchies.remove_homes();
    }
}

/// Whether sandboxes of this home have these cgroups.
fn is_ours(home: &Home, hierarchies: &Hierarchies) -> bool {
    let names = hierarchies.names();
    let manifests = folders_in(&home.sandboxes()).unwrap_or_default();
    !names.is_empty()
        && manifests
            .iter()
            .filter_map(|folder| Manifest::read(folder).ok())
            .any(|manifest| names.contains(&manifest.slot))
}

/// What a process inherits is the first caller's, and would be every later sandbox's too.
fn forget_who_started_us() -> io::Result<()> {
    // They may wait for the end of a pipe that we inherited.
    close_all_but(&[])?;
    reset_signals()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // A user may not take back what a user gave away.
    let _ = rustix::process::setpriority_process(None, 0);
    for resource in [
        Resource::As,
        Resource::Cpu,
        Resource::Data,
        Resource::Fsize,
        Resource::Memlock,
        Resource::Nproc,
        Resource::Sigpending,
        // Every sandbox costs the engine a handful. Launchers put the usual limit back.
        Resource::Nofile,
    ] {
        raise(resource);
    }
    Ok(())
}

/// As far as the kernel lets us: without the capability, up to the hard limit.
fn raise(resource: Resource) {
    let limit = getrlimit(resource);
    let unlimited = Rlimit { current: None, maximum: None };
    // Descriptors cannot be without a limit.
    if resource == Resource::Nofile || setrlimit(resource, unlimited).is_err() {
        let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Puts the guest's program into a folder of its version, where it stays as long as any sandbox
/// runs it: a program that is replaced under a sleeping sandbox could not be woken.
fn install(guests: &Path, program: &[u8]) -> Result<PathBuf, Failure> {
    let step = "install the guest's program";
    let hash = fingerprint(program.iter().copied());
    let folder = guests.join(format!("{}-{hash:016x}", env!("CARGO_PKG_VERSION")));
    if fs::metadata(folder.join("guest")).is_ok_and(|file| file.len() == program.len() as u64) {
        return Ok(folder);
    }
    let new = guests.join("new");
    let _ = fs::remove_dir_all(&new);
    make_folder(&new).step(step)?;
    fs::write(new.join("guest"), program).step(step)?;
    // Read and executed by the sandbox's ids, which are nobody here.
    for path in [new.join("guest"), new.clone()] {
        fs::set_permissions(path, Permissions::from_mode(0o555)).step(step)?;
    }
    File::open(new.join("guest")).and_then(|file| file.sync_all()).step(step)?;
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&new, &folder).step(step)?;
    Ok(folder)
}

/// Lays the wires of a network in a namespace of its own, which is gone afterwards.
fn try_wires() -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    let Side::Parent(child) = fork(Namespaces::NETWORK)? else {
        let laid = bring_loopback_up().and_then(|()| wiring::wire());
        if let Err(error) = laid {
            let _ = writer.write_all(error.to_string().as_bytes());
        }
        leave(0);
    };
    drop(writer);
    let said = io::read_to_string(reader)?;
    let _ = waitpid(Some(child), WaitOptions::empty());
    if said.is_empty() { Ok(()) } else { Err(io::Error::other(said)) }
}

fn listen(home: &Home) -> Result<OwnedFd, Failure> {
    let step = "listen for clients";
    match fs::remove_file(home.socket()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).step(step),
        _ => {}
    }
    link::listen_at(home.path(), Home::SOCKET).step(step)
}

/// Sends what the engine says from now on to its log, which begins anew.
fn log_to(path: &Path) -> io::Result<()> {
    let log = open_own(path)?;
    log.set_len(0)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}
