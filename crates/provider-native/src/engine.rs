//! The engine: the only privileged program of Soma.
//!
//! One thread, one loop: it waits for a verb from a client, a report from a launcher or the
//! end of a supervisor, and acts on it. It parses its own typed verbs and its launchers'
//! reports, never a byte from inside a sandbox or from a user.
//!
//! ```text
//!            launch                  bind                     supervisor ends
//! (nothing) --------> launching --> prepared --> a sandbox's --------------> ended
//!                         |             |             |                        |
//!                         +-------------+---- destroy +--> swept away <--------+
//! ```
//!
//! A *body* is what a launcher makes: namespaces, disk, cgroups and a guest that answers. It
//! becomes somebody's sandbox by being *bound*: limits, name, time and manifest. Bodies are
//! prepared ahead, so that a create is a bind; where none is ready it launches one first.
//!
//! Start at [`run`], then [`Engine::turn`]. `clients` holds the verbs and `upkeep` those that change
//! no arrow, `imports` and `templates` what sandboxes can be made from, `limit` changes what one
//! may use, `room` sees to the host's disk, `bodies` what a body is, `lifecycle`, `restart`, `pause`, `hibernate` and `endings` the
//! arrows above, `snapshots` what is captured, `adopt` what is
//! found at the start, `egress` what sandboxes reach the network through.

mod adopt;
mod bodies;
mod client;
mod clients;
mod egress;
mod endings;
mod errand;
mod hibernate;
mod host;
mod imports;
mod lifecycle;
mod limit;
mod nursery;
mod pause;
mod reach;
mod restart;
mod room;
mod snapshots;
mod templates;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use domain::{SandboxId, SnapshotId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::Failure;
use crate::home::Home;
use bodies::Body;
use client::Client;
use egress::Egress;
use endings::Sweeper;
use host::Host;
use imports::Import;
use lifecycle::Sandbox;

/// How an engine is to work.
#[derive(Debug)]
pub struct Options {
    /// Where everything lies.
    pub home: Home,
    /// The guest's program, which is put into the home.
    pub guest: &'static [u8],
    /// How many bodies wait for an owner.
    pub prepared: usize,
    /// Leave the terminal, and log to the home once it is served.
    pub detach: bool,
    /// Leave after so long with nothing to do; `None` is never.
    pub idle: Option<Duration>,
}

/// Why an engine ended.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(#[from] Failure);

/// Runs the engine of a home until it is told to leave or has nothing to do.
///
/// Returns at once when the home has an engine already.
pub fn run(options: Options) -> Result<(), EngineError> {
    let Some(host) = Host::open(options)? else { return Ok(()) };
    let mut engine = Engine {
        host,
        clients: BTreeMap::new(),
        bodies: BTreeMap::new(),
        sandboxes: BTreeMap::new(),
        queue: VecDeque::new(),
        imports: BTreeMap::new(),
        egress: Egress::default(),
        sweepers: Vec::new(),
        remains: Vec::new(),
        remove_remains_after: Instant::now(),
        welcome_after: Instant::now(),
        next_key: 0,
        last_steps: Vec::new(),
        busy_until: Instant::now(),
        prepare_after: Instant::now(),
        room: room::Watch::new(),
        sound: BTreeSet::new(),
        leaving: false,
    };
    engine.adopt();
    while engine.turn()? {}
    engine.host.close();
    Ok(())
}

/// Tells clients and bodies apart for as long as the engine lives.
type Key = u64;

struct Engine {
    host: Host,
    clients: BTreeMap<Key, Client>,
    bodies: BTreeMap<Key, Body>,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    /// Sandboxes that wait for a launcher: more of them at once than processors only slows all.
    queue: VecDeque<SandboxId>,
    /// Images that are being unpacked, or wait to be kept.
    imports: BTreeMap<Key, Import>,
    /// The program that sandboxes reach the network through.
    egress: Egress,
    /// Processes that remove folders.
    sweepers: Vec<Sweeper>,
    /// Folders that could not be removed, and when to try again.
    remains: Vec<PathBuf>,
    remove_remains_after: Instant,
    /// No client is taken in before then: there was no descriptor for one.
    welcome_after: Instant,
    next_key: Key,
    last_steps: Vec<(String, u64)>,
    /// Until then something happened lately.
    busy_until: Instant,
    /// Nothing is prepared before then: somebody's command has just been started.
    prepare_after: Instant,
    /// What is left of the host's disk.
    room: room::Watch,
    /// Snapshots whose disks were seen to be what they were.
    sound: BTreeSet<SnapshotId>,
    leaving: bool,
}

/// Something that the loop waits for.
#[derive(Debug, Clone)]
enum Source {
    Termination,
    Listener,
    Client(Key),
    Launcher(Key),
    Supervisor(Key),
    Sleeper(Key),
    Sweeper(usize),
    Importer(Key),
    Capturer(SandboxId),
    Egress,
}

impl Engine {
    /// Waits for something to happen and acts on it; `false` when it is time to leave.
    fn turn(&mut self) -> Result<bool, EngineError> {
        self.keep_house();
        let idle = self.bodies.is_empty() && self.sweepers.is_empty() && self.imports.is_empty();
        let idle = idle && self.sandboxes.values().all(|sandbox| sandbox.capturing.is_none());
        if self.leaving && idle {
            self.remove_remains_at_last();
            return Ok(false);
        }
        for source in self.wait()? {
            match source {
                Source::Termination => self.begin_to_leave(),
                Source::Listener => self.welcome(),
                Source::Client(key) => self.serve(key),
                Source::Launcher(key) => self.hear_launcher(key),
                Source::Supervisor(key) => self.bury(key),
                Source::Sleeper(key) => self.finish_dump(key),
                Source::Sweeper(index) => self.finish_sweeping(index),
                Source::Importer(key) => self.reap_importer(key),
                Source::Capturer(id) => self.finish_capture(&id),
                Source::Egress => self.hear_egress(),
            }
        }
        Ok(true)
    }

    fn wait(&self) -> Result<Vec<Source>, EngineError> {
        let mut sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> = Vec::new();
        if !self.leaving {
            sources.push((Source::Termination, self.host.termination.as_fd(), PollFlags::IN));
            if Instant::now() >= self.welcome_after {
                sources.push((Source::Listener, self.host.listener.as_fd(), PollFlags::IN));
            }
        }
        for (key, client) in &self.clients {
            // One that leaves reads no more requests.
            if !self.leaving || client.is_behind() {
                sources.push((Source::Client(*key), client.socket(), client.interest()));
            }
        }
        for (key, body) in &self.bodies {
            if let Some(link) = &body.link {
                sources.push((Source::Launcher(*key), link.as_fd(), PollFlags::IN));
            }
            if let Some(sleeping) = &body.sleeping {
                sources.push((Source::Sleeper(*key), sleeping.process(), PollFlags::IN));
            }
            if let Some(supervisor) = &body.supervisor_descriptor {
                sources.push((Source::Supervisor(*key), supervisor.as_fd(), PollFlags::IN));
            }
        }
        for (key, import) in &self.imports {
            if let Some(process) = import.process() {
                sources.push((Source::Importer(*key), process, PollFlags::IN));
            }
        }
        for (id, sandbox) in &self.sandboxes {
            if let Some(capturing) = &sandbox.capturing {
                let process = capturing.process();
                sources.push((Source::Capturer(id.clone()), process, PollFlags::IN));
            }
        }
        if let Some((socket, interest)) = self.egress.interest() {
            sources.push((Source::Egress, socket, interest));
        }
        // From the back, so that removing one does not move those still to be served.
        for (index, sweeper) in self.sweepers.iter().enumerate().rev() {
            sources.push((Source::Sweeper(index), sweeper.process.as_fd(), PollFlags::IN));
        }
        let mut descriptors: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, descriptor, interest)| PollFd::from_borrowed_fd(*descriptor, *interest))
            .collect();
        let patience = self.patience();
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                use crate::failure::Step;
                Err(error).step("wait for something to happen")?;
            }
        }
        let ready = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty());
        let ready: Vec<bool> = ready.collect();
        let sources = sources.into_iter().zip(ready).filter(|(_, ready)| *ready);
        Ok(sources.map(|((source, ..), _)| source).collect())
    }

    /// How long the loop may sleep.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let mut until = (now + Duration::from_secs(30)).min(self.room.look_after());
        let import_ends = self.imports.values().any(Import::wants_attention);
        if import_ends || self.bodies.values().any(Body::wants_attention) {
            until = until.min(now + Duration::from_millis(5));
        }
        if self.bodies.values().any(Body::is_freezing) {
            until = until.min(now + Duration::from_millis(1));
        }
        if self.bodies.values().any(Body::is_waited_for) {
            until = until.min(now + Duration::from_secs(1));
        }
        if self.welcome_after > now {
            until = until.min(self.welcome_after);
        }
        if !self.remains.is_empty() {
            until = until.min(self.remove_remains_after);
        }
        if self.wants_preparation() {
            until = until.min(self.prepare_after);
        }
        if let Some(moment) = self.egress.wants_attention() {
            until = until.min(moment);
        }
        if let Some(idle) = self.host.options.idle {
            until = until.min(self.busy_until + idle);
        }
        until.saturating_duration_since(now).max(Duration::from_millis(1))
    }

    fn new_key(&mut self) -> Key {
        self.next_key += 1;
        self.next_key
    }
}

/// Says something that only whoever runs the engine can act on.
fn log(text: &str) {
    let _ = writeln!(io::stderr(), "soma engine: {text}");
}
