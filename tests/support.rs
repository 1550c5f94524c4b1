//! A Soma of its own for each test, and proof that nothing is left of it.
//!
//! A [`Home`] is a `SOMA_HOME` in a temporary folder. Its daemon and its engine start with the
//! first `soma run` in it and are ended with the home, also when the test fails. The tests run as root, and
//! `make test` runs them a second time as an ordinary user.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use domain::{Ending, Lease, Limits, Origin, Rest, SandboxId, SandboxSpec, SnapshotId, Timestamp};
use guest_proto::GuestClient;
use policy::{Action, Caller, Permitted, Rules};
use provider::{ByteStream, Observed, Provider, ProviderError, Snapshot, SnapshotKind};
use provider_native::{NativeProvider, random_id};
use rustix::process::Signal;
use tempfile::TempDir;

/// The program under test. A copy of it where whoever runs the tests cannot reach the original.
pub(crate) static SOMA: LazyLock<String> = LazyLock::new(|| {
    std::env::var("SOMA_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_soma").to_owned())
});

/// How long something that goes away by itself is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// A place for sandboxes that no other test has.
pub(crate) struct Home {
    folder: TempDir,
    /// Whether an engine was killed, which then could not tidy up.
    killed: AtomicBool,
}

/// A sandbox of a home's, and the way into it.
pub(crate) struct Kept {
    pub(crate) provider: Operated,
    pub(crate) id: SandboxId,
    pub(crate) guest: GuestClient,
}

/// A provider as whoever runs the machine uses it: what they ask for is decided by the usual rules
/// and then done.
#[derive(Clone)]
pub(crate) struct Operated {
    provider: Arc<dyn Provider>,
}

impl Operated {
    pub(crate) fn new(provider: impl Provider + 'static) -> Self {
        Self { provider: Arc::new(provider) }
    }

    /// Makes a sandbox with nothing written down.
    pub(crate) async fn create(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        self.create_with(id, spec, "").await
    }

    pub(crate) async fn create_with(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        record: &str,
    ) -> Result<Observed, ProviderError> {
        let action = Action::Create { spec, existing: 0 };
        let permitted = Rules::default().decide(&Caller::local(), action, spec.clone()).unwrap();
        self.provider.create(id, &permitted, record).await
    }

    pub(crate) async fn connect(
        &self,
        id: &SandboxId,
    ) -> Result<Box<dyn ByteStream>, ProviderError> {
        self.provider.connect(&permitted(id)).await
    }

    pub(crate) async fn inspect(&self, id: &SandboxId) -> Result<Observed, ProviderError> {
        self.provider.inspect(id).await
    }

    pub(crate) async fn list(&self) -> Result<Vec<Observed>, ProviderError> {
        self.provider.list().await
    }

    pub(crate) async fn ended(&self, id: &SandboxId) -> Result<Ending, ProviderError> {
        self.provider.ended(id).await
    }

    pub(crate) async fn read_record(&self, id: &SandboxId) -> Result<String, ProviderError> {
        self.provider.read_record(id).await
    }

    pub(crate) async fn write_record(
        &self,
        id: &SandboxId,
        record: &str,
    ) -> Result<(), ProviderError> {
        self.provider.write_record(&permitted(id), record).await
    }

    /// Takes a snapshot with nothing written down.
    pub(crate) async fn capture(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        memory: bool,
    ) -> Result<(), ProviderError> {
        let kind = SnapshotKind { memory, passing: false };
        self.provider.capture(&permitted(id), snapshot, kind, "").await
    }

    pub(crate) async fn snapshots(&self) -> Result<Vec<Snapshot>, ProviderError> {
        self.provider.snapshots().await
    }

    pub(crate) async fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), ProviderError> {
        let permitted = Rules::default().decide(&Caller::local(), Action::Oversee, id.clone());
        self.provider.remove_snapshot(&permitted.unwrap()).await
    }

    pub(crate) async fn roll_back(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Observed, ProviderError> {
        let origin = Origin { snapshot: snapshot.clone(), token: None };
        self.provider.roll_back(&permitted(id), &SandboxSpec::default(), &origin).await
    }

    pub(crate) async fn renew(
        &self,
        id: &SandboxId,
        timeout: Option<Duration>,
    ) -> Result<(), ProviderError> {
        self.provider.renew(&permitted(id), timeout).await
    }

    pub(crate) async fn limit(&self, id: &SandboxId, limits: &Limits) -> Result<(), ProviderError> {
        self.provider.limit(&permitted(id), limits).await
    }

    pub(crate) async fn destroy(&self, id: &SandboxId) -> Result<(), ProviderError> {
        self.provider.destroy(&permitted(id)).await
    }

    pub(crate) async fn stop(&self, id: &SandboxId) -> Result<(), ProviderError> {
        self.provider.stop(&permitted(id)).await
    }

    pub(crate) async fn start(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        self.provider.start(&permitted(id), spec).await
    }

    pub(crate) async fn pause(&self, id: &SandboxId) -> Result<(), ProviderError> {
        self.provider.pause(&permitted(id)).await
    }

    pub(crate) async fn hibernate(&self, id: &SandboxId) -> Result<Rest, ProviderError> {
        self.provider.hibernate(&permitted(id)).await
    }

    pub(crate) async fn resume(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Observed, ProviderError> {
        self.provider.resume(&permitted(id), spec).await
    }

    /// A client of a sandbox's guest.
    pub(crate) fn guest(&self, id: &SandboxId) -> GuestClient {
        provider::guest(Arc::clone(&self.provider), permitted(id))
    }
}

/// A sandbox that whoever runs the machine may do anything with, as with all of them.
fn permitted(id: &SandboxId) -> Permitted<SandboxId> {
    let lease = Lease::new(id.clone(), SandboxSpec::default(), Timestamp(0));
    Rules::default().decide(&Caller::local(), Action::Manage(&lease), id.clone()).unwrap()
}

/// What a home's engine has on the host.
#[derive(Debug, Default)]
struct Traces {
    /// Processes, as folders of `/proc` with what makes them these and no later ones.
    processes: BTreeSet<(PathBuf, String)>,
    cgroups: BTreeSet<PathBuf>,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("soma-test-").tempdir().unwrap();
        Self { folder, killed: AtomicBool::new(false) }
    }

    /// One in this folder of the host's, which the test owns.
    pub(crate) fn within(place: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("soma-test-").tempdir_in(place).unwrap();
        Self { folder, killed: AtomicBool::new(false) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Any program in this home, as `soma` itself is run.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = sys_linux::command::command(program);
        command.env("SOMA_HOME", self.path());
        if let Some(criu) = std::env::var_os("SOMA_CRIU") {
            command.env("SOMA_CRIU", criu);
        }
        if !is_root() {
            // What a user's sandboxes cannot be held to is told apart in `user`.
            command.env("SOMA_ALLOW_UNENFORCED", "true");
        }
        command
    }

    /// `soma` with these words, in this home, with empty input and both outputs caught.
    pub(crate) fn soma<I: AsRef<std::ffi::OsStr>>(
        &self,
        words: impl IntoIterator<Item = I>,
    ) -> Command {
        self.program(&*SOMA, words)
    }

    /// The same with another program.
    pub(crate) fn program<I: AsRef<std::ffi::OsStr>>(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        words: impl IntoIterator<Item = I>,
    ) -> Command {
        let mut soma = self.command(program);
        soma.args(words);
        soma.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        soma
    }

    /// Runs `soma run` with these words to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.soma(["run"].iter().chain(words)).output().unwrap()
    }

    /// Starts `soma run` with these words.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.soma(["run"].iter().chain(words)).spawn().unwrap()
    }

    /// One more client of this home's engine, which is started if there is none.
    pub(crate) fn provider(&self) -> Operated {
        let home = provider_native::Home::at(self.path());
        Operated::new(NativeProvider::open(&home, Path::new(&*SOMA)).unwrap())
    }

    /// A sandbox that is kept, whatever this host can hold it to, and the way into it.
    pub(crate) async fn sandbox(&self) -> Kept {
        let (provider, id) = (self.provider(), random_id().unwrap());
        let spec = SandboxSpec { allow_unenforced: true, ..SandboxSpec::default() };
        provider.create(&id, &spec).await.unwrap();
        Kept { guest: provider.guest(&id), provider, id }
    }

    /// The process 1 of a kept sandbox as the host counts, from its manifest.
    pub(crate) fn first_process(&self, id: &SandboxId) -> u32 {
        u32::try_from(self.manifest(id)["first"]["pid"].as_u64().unwrap()).unwrap()
    }

    /// What the engine wrote down about a kept sandbox.
    pub(crate) fn manifest(&self, id: &SandboxId) -> serde_json::Value {
        let manifest = self.path().join("sandboxes").join(id.as_str()).join("manifest.json");
        let text = fs::read_to_string(manifest).unwrap();
        // Its last line seals it.
        let sealed = text.rsplit_once("\n#sealed ").map_or(text.as_str(), |(sealed, _)| sealed);
        serde_json::from_str(sealed).unwrap()
    }

    /// Checks that every sandbox is gone; those that wait for an owner may be there.
    pub(crate) fn assert_no_sandbox(&self) {
        let folder = self.path().join("sandboxes");
        eventually("a sandbox's folder is left", || entries(&folder).is_empty());
    }

    /// Ends the daemon and the engine and checks that nothing of them is left on the host.
    pub(crate) fn assert_nothing_left(self) {
        self.assert_no_sandbox();
        let traces = self.traces();
        self.end_daemon();
        self.end_engine();
        if self.killed.load(Ordering::Relaxed) {
            // What a killed engine's launchers left behind is the next one's to remove.
            drop(self.provider());
            self.end_engine();
        }
        eventually("processes are left", || {
            traces
                .processes
                .iter()
                .all(|(process, begun)| begun_at(process).as_ref() != Some(begun))
        });
        eventually("cgroups are left", || traces.cgroups.iter().all(|cgroup| !cgroup.exists()));
        eventually("loop devices are left", || self.loop_devices().is_empty());
        for folder in ["sandboxes", "prepared"] {
            assert_eq!(entries(&self.path().join(folder)), [] as [PathBuf; 0], "in {folder}");
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let home = self.path().to_str().unwrap();
        assert!(!mounts.contains(home), "a mount of {home} is left");
    }

    fn traces(&self) -> Traces {
        let mut traces = Traces::default();
        let processes = processes();
        let mut family: BTreeSet<u32> = processes
            .iter()
            .filter(|p| self.is_engine(**p) || self.is_daemon(**p))
            .copied()
            .collect();
        // Children have higher numbers than their parents but for wrap-around: repeat till all
        // are found.
        loop {
            let found = family.len();
            for process in &processes {
                if parent_of(*process).is_some_and(|parent| family.contains(&parent)) {
                    family.insert(*process);
                }
            }
            if family.len() == found {
                break;
            }
        }
        for process in family {
            let folder = PathBuf::from(format!("/proc/{process}"));
            if let Some(begun) = begun_at(&folder) {
                traces.processes.insert((folder, begun));
            }
            for cgroup in cgroups_of(process) {
                let ours = cgroup.ancestors().take_while(|folder| !folder.ends_with("soma"));
                traces.cgroups.extend(ours.map(Path::to_owned));
            }
        }
        traces
    }

    /// The processes that are this home's engine: one, but for moments.
    ///
    /// What it forks has its words until it executes another program, and is none of them: who
    /// kills that may kill a sandbox.
    pub(crate) fn engines(&self) -> Vec<u32> {
        let all: Vec<u32> =
            processes().into_iter().filter(|process| self.is_engine(*process)).collect();
        let is_first = |engine: &u32| {
            let above = std::iter::successors(parent_of(*engine), |process| parent_of(*process));
            !above.into_iter().any(|process| all.contains(&process))
        };
        all.iter().copied().filter(is_first).collect()
    }

    fn is_engine(&self, process: u32) -> bool {
        // What it starts programs by is a copy of it that has another name.
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        self.is_called(process, b"engine") && name.trim_end() != "soma-nursery"
    }

    /// The processes that are this home's daemon, or about to become it.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        processes().into_iter().filter(|process| self.is_daemon(*process)).collect()
    }

    fn is_daemon(&self, process: u32) -> bool {
        self.is_called(process, b"serve")
    }

    /// Whether a process is `soma` with this word, for this home.
    fn is_called(&self, process: u32, word: &[u8]) -> bool {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let home = self.path().as_os_str().as_encoded_bytes();
        words.contains(&word) && words.iter().any(|word| word.ends_with(home))
    }

    /// Ends the daemon, by asking it or by force. One that is just being started is met as well.
    pub(crate) fn end_daemon(&self) {
        let begun = Instant::now();
        loop {
            let daemons = self.daemons();
            if daemons.is_empty() {
                return;
            }
            let signal = if begun.elapsed() < PATIENCE { Signal::TERM } else { Signal::KILL };
            for process in daemons {
                send(process, signal);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn loop_devices(&self) -> Vec<PathBuf> {
        let behind = |device: &PathBuf| {
            let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            file.starts_with(self.path().to_str().unwrap())
        };
        entries(Path::new("/sys/block")).into_iter().filter(behind).collect()
    }

    /// Kills the engine, as a crash would.
    pub(crate) fn kill_engine(&self) {
        self.killed.store(true, Ordering::Relaxed);
        let folder = |process: &u32| PathBuf::from(format!("/proc/{process}"));
        let engines: Vec<PathBuf> = self.engines().iter().map(folder).collect();
        let begun: Vec<Option<String>> = engines.iter().map(|engine| begun_at(engine)).collect();
        self.kill_engines();
        // Its words are gone before its sockets are: only its end says that nobody can connect.
        eventually("the engine lives", || {
            let mut both = engines.iter().zip(&begun);
            both.all(|(engine, begun)| begun.is_none() || begun_at(engine) != *begun)
        });
    }

    fn kill_engines(&self) {
        for process in self.engines() {
            send(process, Signal::KILL);
        }
    }

    /// Ends the engine, by asking it or by force.
    fn end_engine(&self) {
        // A test may be on a runtime already, and one cannot wait on another.
        let home = provider_native::Home::at(self.path());
        let asked = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                if let Ok(Some(provider)) = NativeProvider::find(&home) {
                    let leaving = leave(&provider);
                    // One that is killed leaves something behind.
                    let _ = tokio::time::timeout(PATIENCE * 4, leaving).await;
                }
            });
            std::io::Result::Ok(())
        });
        let _ = asked.join();
        self.kill_engines();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Before the engine, which it would start again.
        self.end_daemon();
        self.end_engine();
        if !is_root() {
            // Some of its files have subordinate ids of the user's, over which only a namespace
            // of the user's has power.
            let _ = sys_linux::command::command("unshare")
                .args(["--map-root-user", "--map-auto", "rm", "-rf"])
                .arg(self.path())
                .status();
        }
    }
}

/// Sends a signal to a process that may be gone.
fn send(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Says that a test could not run, and why, where `make test` counts it.
pub(crate) fn skip(name: &str, reason: &str) {
    use std::io::Write;
    let line = format!("SKIPPED {name}: {reason}\n");
    if let Some(path) = std::env::var_os("SOMA_SKIPPED") {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a test of something that only root has must be left out, which it says.
pub(crate) fn needs_root(name: &str, what: &str) -> bool {
    if !is_root() {
        skip(name, &format!("an ordinary user has no {what}"));
    }
    !is_root()
}

/// Kept sandboxes outlive their engine, and would outlive a test that failed.
async fn leave(provider: &NativeProvider) {
    for seen in provider.list().await.unwrap_or_default() {
        let _ = provider.destroy(&permitted(&seen.id)).await;
    }
    let _ = provider.end_engine().await;
}

/// Waits for something that comes by itself.
pub(crate) fn eventually(otherwise: &str, come: impl Fn() -> bool) {
    let begun = Instant::now();
    while !come() {
        assert!(begun.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn processes() -> Vec<u32> {
    let names = entries(Path::new("/proc"));
    names.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

/// The fields of a process after its name, which may hold anything.
fn fields(folder: &Path) -> Option<Vec<String>> {
    let line = fs::read_to_string(folder.join("stat")).ok()?;
    let rest = line.rsplit_once(')')?.1;
    let fields: Vec<String> = rest.split_whitespace().map(ToOwned::to_owned).collect();
    // One that has ended and waits to be looked at is gone for our purpose.
    (fields.first()? != "Z").then_some(fields)
}

fn parent_of(process: u32) -> Option<u32> {
    fields(Path::new(&format!("/proc/{process}")))?.get(1)?.parse().ok()
}

fn begun_at(folder: &Path) -> Option<String> {
    fields(folder)?.get(19).cloned()
}

/// The cgroup folders of a process that are Soma's.
fn cgroups_of(process: u32) -> Vec<PathBuf> {
    let lines = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let folder = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let mount = if controllers.is_empty() { "" } else { controllers };
        path.contains("/soma/").then(|| Path::new("/sys/fs/cgroup").join(mount).join(&path[1..]))
    };
    lines.lines().filter_map(folder).filter(|folder| folder.exists()).collect()
}

/// Whether nothing can be put on the disk here, which a test that needs it says.
pub(crate) fn cannot_checkpoint(test: &str) -> bool {
    if needs_root(test, "way to put a sandbox on the disk") {
        return true;
    }
    if std::env::var_os("SOMA_CRIU").is_none() {
        let reason = std::env::var("SOMA_CRIU_MISSING")
            .unwrap_or_else(|_| "SOMA_CRIU does not say where CRIU 4.2 is".to_owned());
        skip(test, &reason);
        return true;
    }
    false
}
