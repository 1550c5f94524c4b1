//! What the egress program knows: its settings, the sandboxes attached, the engine that may dial.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use domain::SandboxId;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log::{Log, Writer};
use super::resolver::HostResolvers;
use super::sandbox::Sandbox;
use super::server::EngineDoor;
use super::settings::Settings;

/// One per program.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) tasks: TaskTracker,
    pub(crate) host_resolvers: HostResolvers,
    pub(crate) engine: EngineDoor,
    /// Says that the program is to end.
    pub(crate) ending: CancellationToken,
    /// Where sandboxes' logs are.
    folder: PathBuf,
    writer: Writer,
    /// Those that somebody writes or reads.
    logs: Mutex<HashMap<SandboxId, Weak<Log>>>,
    settings: RwLock<Arc<Settings>>,
    sandboxes: Mutex<HashMap<SandboxId, Arc<Sandbox>>>,
}

impl World {
    pub(crate) fn new(folder: PathBuf, writer: Writer) -> Self {
        Self {
            tasks: TaskTracker::new(),
            host_resolvers: HostResolvers::default(),
            engine: EngineDoor::default(),
            ending: CancellationToken::new(),
            folder,
            writer,
            logs: Mutex::default(),
            settings: RwLock::new(Arc::new(Settings::usual())),
            sandboxes: Mutex::new(HashMap::new()),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this holds. What is connected and no longer allowed by it is cut.
    pub(crate) fn configure(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        let all: Vec<_> = self.sandboxes().values().cloned().collect();
        for sandbox in all {
            sandbox.forget_answers();
            sandbox.cut_refused(&self.settings());
        }
    }

    /// A sandbox's log, which outlives its attachments.
    pub(crate) fn log(&self, id: &SandboxId) -> Arc<Log> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get(id).and_then(Weak::upgrade) {
            return log;
        }
        logs.retain(|_, log| log.strong_count() > 0);
        let log = Log::open(&self.folder, id, self.writer.clone());
        logs.insert(id.clone(), Arc::downgrade(&log));
        log
    }

    /// Forgets what a sandbox tried to reach.
    pub(crate) fn forget(&self, id: &SandboxId) {
        let log = self.log(id);
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        log.remove();
    }

    /// The sandboxes of which something is written down.
    pub(crate) fn logged(&self) -> Vec<SandboxId> {
        let names = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.split('.').next()?.parse().ok()).collect()
    }

    /// The sandboxes attached. Not to be held while anything waits.
    pub(crate) fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Sandbox>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
