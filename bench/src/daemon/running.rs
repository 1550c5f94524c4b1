//! A daemon of the benchmark's own, with a home of its own; both are gone when it is dropped.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use provider_native::NativeProvider;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sys_linux::command::command;

use super::connection::Connection;
use crate::contest::Settings;
use crate::engine::PREPARED;
use crate::home::BenchHome;
use crate::output;
use crate::processes::send_daemon;

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a sandbox lives that nobody deletes, because the benchmark was killed.
pub(super) const LONGEST_LIFE: Duration = Duration::from_mins(15);

/// How many are made or deleted at one time.
const AT_ONE_TIME: usize = 4;

/// Starts a daemon that says where it listens.
fn serve(settings: &Settings, home: &Path, log: &File) -> anyhow::Result<Child> {
    // `setpriv` ends the daemon also when this program is killed.
    command("setpriv")
        .args(["--pdeathsig", "TERM"])
        .arg(&settings.soma)
        .arg(format!("--home={}", home.display()))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .spawn()
        .context("could not start the daemon")
}

/// A daemon that runs.
pub(crate) struct Daemon {
    address: String,
    key: String,
    starter: Child,
    /// Held, because a daemon whose reader went away could not say anything more.
    said: BufReader<ChildStdout>,
    // Before the home: the connection goes before the engine does.
    provider: NativeProvider,
    home: BenchHome,
}

impl Daemon {
    /// Starts one on a free port, with the defaults.
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let mut home = BenchHome::new()?;
        let log = tempfile::tempfile()?;
        let mut starter = serve(settings, home.path(), &log)?;
        let ready = listening(&mut starter, log).and_then(|(address, said)| {
            let key = std::fs::read_to_string(home.path().join("daemon/api-key"));
            let key = key.context("the key cannot be read")?.trim().to_owned();
            Ok((address, said, key, home.provider()?))
        });
        match ready {
            Ok((address, said, key, provider)) => {
                Ok(Self { address, key, starter, said, provider, home })
            }
            Err(error) => {
                end(&mut starter);
                Err(error)
            }
        }
    }

    /// Kills it as a crash would, starts the next one, and says how long that took until it lists
    /// what runs.
    pub(super) fn restart(&mut self, settings: &Settings) -> anyhow::Result<Duration> {
        let wanted = self.running()?;
        let pid = Pid::from_child(&self.starter);
        let _ = kill_process(pid, Signal::KILL);
        let _ = self.starter.wait();
        send_daemon(self.home.path(), Signal::KILL);
        let begin = Instant::now();
        let log = tempfile::tempfile()?;
        self.starter = serve(settings, self.home.path(), &log)?;
        (self.address, self.said) = listening(&mut self.starter, log)?;
        while self.running()? < wanted {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "some of them are not found again");
        }
        Ok(begin.elapsed())
    }

    fn running(&self) -> anyhow::Result<u64> {
        let path = "/v1/sandboxes?state=running&page-size=1";
        let listed = self.connect()?.ask("GET", path, None)?;
        listed["total_items"].as_u64().context("the answer has no number")
    }

    /// Runs `true` in each of them; in how many it ran.
    pub(super) fn run_true_in_all(&self) -> anyhow::Result<usize> {
        let mut connection = self.connect()?;
        let mut ids = Vec::new();
        for page in 1.. {
            let path = format!("/v1/sandboxes?page-size=100&page={page}");
            let listed = connection.ask("GET", &path, None)?;
            let items = listed["items"].as_array().context("the answer has no items")?;
            if items.is_empty() {
                break;
            }
            ids.extend(items.iter().filter_map(|item| item["id"].as_str()).map(str::to_owned));
        }
        self.for_each(&ids, |connection, id| super::run_true(connection, id))?;
        Ok(ids.len())
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    /// A connection of its own.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(&self.address, &self.key)
    }

    /// Waits until its engine has prepared what it prepares.
    pub(super) fn wait_for_prepared(&self) -> anyhow::Result<()> {
        self.home.wait_for_prepared(&self.provider, PREPARED)
    }

    /// Makes so many sandboxes that want little, a few at a time.
    pub(super) fn create_small(&self, number: usize) -> anyhow::Result<()> {
        let wish = json!({"memory": 64, "disk": 64, "pids": 32, "vcpu": 0.1});
        let wishes = vec![wish; number];
        self.for_each(&wishes, |connection, wish| super::create(connection, wish).map(|_| ()))
    }

    fn delete_all(&self) -> anyhow::Result<()> {
        let mut connection = self.connect()?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let listed = connection.ask("GET", "/v1/sandboxes?page-size=100", None)?;
            let items = listed["items"].as_array().context("the answer has no items")?;
            let ids: Vec<_> = items.iter().filter_map(|item| item["id"].as_str()).collect();
            if ids.is_empty() {
                return Ok(());
            }
            self.for_each(&ids, |connection, id| super::delete(connection, id))?;
        }
        bail!("there are always more")
    }

    /// Does something with each of them, a few at one time; the first failure is told.
    fn for_each<T: Sync>(
        &self,
        all: &[T],
        act: impl Fn(&mut Connection, &T) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let work = |part: &[T]| {
            let mut connection = self.connect()?;
            part.iter().try_for_each(|each| act(&mut connection, each))
        };
        thread::scope(|scope| {
            let parts = all.chunks(all.len().div_ceil(AT_ONE_TIME).max(1));
            let workers: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            // All are waited for before the first failure is told.
            let ended: Vec<_> = ended.collect();
            ended.into_iter().try_for_each(|ended| match ended {
                Ok(done) => done,
                Err(_) => bail!("a thread of the benchmark panicked"),
            })
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.delete_all() {
            let home = self.path().display();
            output::complain(&format!("could not delete the sandboxes of {home}: {error:#}"));
        }
        end(&mut self.starter);
    }
}

/// Where it listens, from its first line; or its last words.
fn listening(
    starter: &mut Child,
    mut log: File,
) -> anyhow::Result<(String, BufReader<ChildStdout>)> {
    let mut said = BufReader::new(starter.stdout.take().context("the daemon has no output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    if let Some(address) = line.trim_end().strip_prefix("Soma listens at http://") {
        return Ok((address.to_owned(), said));
    }
    let mut words = String::new();
    log.rewind()?;
    log.take(64 << 10).read_to_string(&mut words)?;
    bail!("the daemon did not start: {}", words.trim().lines().last().unwrap_or("without a word"))
}

/// Ends the daemon as a person would, and waits for it.
fn end(starter: &mut Child) {
    if let Some(id) = i32::try_from(starter.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, Signal::TERM);
    }
    let begin = Instant::now();
    while matches!(starter.try_wait(), Ok(None)) {
        if begin.elapsed() > PATIENCE {
            let _ = starter.kill();
        }
        sleep(Duration::from_millis(10));
    }
}
