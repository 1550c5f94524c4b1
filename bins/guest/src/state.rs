//! What the guest knows besides its processes: what the engine told it about this sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{self, Code};
use crate::http::Token;
use crate::process::{Spawner, Table};

/// Everything that requests share. There is one of it.
#[derive(Debug)]
pub(crate) struct State {
    defaults: Mutex<Defaults>,
    access: Mutex<Access>,
    /// The processes that were started.
    pub(crate) processes: Table,
    /// The way to start more.
    pub(crate) spawner: Spawner,
    /// The interpreters that keep their state.
    pub(crate) code: Code,
    /// The protocol that this guest acts as: its own, or an earlier one in tests of those who
    /// drive guests.
    pub(crate) protocol: u32,
}

impl State {
    /// The state of a guest that was told nothing yet.
    pub(crate) fn new(spawner: Spawner) -> Self {
        Self {
            defaults: Mutex::default(),
            access: Mutex::default(),
            processes: Table::default(),
            spawner,
            code: Code::new(code::PLACE.into()),
            protocol: guest_proto::version::PROTOCOL,
        }
    }

    /// The same, acting as a guest of this protocol.
    pub(crate) fn acting_as(self, protocol: u32) -> Self {
        Self { protocol, ..self }
    }

    /// The same, with another folder for output that is over its limit.
    pub(crate) fn spooling_to(self, place: PathBuf) -> Self {
        Self { code: Code::new(place), ..self }
    }

    /// What applies where a request says nothing. Never hold it across an `await`.
    pub(crate) fn defaults(&self) -> MutexGuard<'_, Defaults> {
        // A thread that panicked ended the whole guest, so nobody ever sees a poisoned lock.
        self.defaults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What callers have to show and when that was said. Never hold it across an `await`.
    pub(crate) fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What callers have to show, if anything.
    pub(crate) fn token(&self) -> Option<Token> {
        self.access().token.clone()
    }
}

/// What callers have to show, and when the engine spoke last.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// What callers have to show, once it was told.
    pub(crate) token: Option<Token>,
    /// The engine's own time of what it told last, in seconds and nanoseconds.
    pub(crate) told_at: Option<(i64, i32)>,
}

/// What applies where a request says nothing.
#[derive(Debug, Clone)]
pub(crate) struct Defaults {
    /// Variables that every process gets.
    pub(crate) environment: BTreeMap<String, String>,
    /// Who acts when a request names nobody.
    pub(crate) user: String,
    /// Where processes start; none means the user's home.
    pub(crate) workdir: Option<PathBuf>,
    /// What the engine allows this sandbox, for metrics: the guest sees the host's figures.
    pub(crate) limits: Option<LimitsTold>,
    /// Whether processes of the sandbox may become its root with `sudo`.
    pub(crate) sudo: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            environment: BTreeMap::new(),
            user: "user".to_owned(),
            workdir: None,
            limits: None,
            sudo: true,
        }
    }
}

/// The limits of the sandbox, as the engine told them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitsTold {
    /// Bytes of memory.
    pub(crate) memory_bytes: Option<u64>,
    /// Thousandths of a CPU.
    pub(crate) cpu_millis: Option<u64>,
    /// Processes and threads.
    pub(crate) pids: Option<u64>,
    /// Bytes of disk.
    pub(crate) disk_bytes: Option<u64>,
}
