//! The keepers that live, by process id.
//!
//! A keeper is known from before its command can do anything until nothing is left below it. That
//! is longer than the command itself lasts: a daemon that it left behind can still ask for
//! something, and what it gets is kept by the same keeper.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::launch::Control;

/// The keepers that live.
#[derive(Debug, Default)]
pub(crate) struct Keepers {
    by_pid: Mutex<HashMap<i32, Arc<Control>>>,
}

impl Keepers {
    /// Notes a keeper.
    pub(crate) fn add(&self, pid: i32, control: &Arc<Control>) {
        self.lock().insert(pid, Arc::clone(control));
    }

    /// The way to a keeper, if this process is one.
    pub(crate) fn find(&self, pid: i32) -> Option<Arc<Control>> {
        self.lock().get(&pid).cloned()
    }

    /// Waits until a keeper is gone, and forgets it.
    pub(crate) async fn see_off(&self, pid: i32, control: Arc<Control>) {
        while let Ok(Some(_)) = control.report().await {}
        let mut keepers = self.lock();
        // Its number may be another keeper's by now.
        if keepers.get(&pid).is_some_and(|known| Arc::ptr_eq(known, &control)) {
            keepers.remove(&pid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Arc<Control>>> {
        self.by_pid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
