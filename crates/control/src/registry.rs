//! Which sandboxes there are, and by what they are found.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Lease, Owner, SandboxId, SandboxName};

use crate::sandbox::Handle;
use crate::{ControlError, Reference};

/// The shortest beginning of an id that is looked for: fewer characters are a slip of the finger.
const SHORTEST: usize = 3;

/// How many of those that could be meant are told.
const TOLD: usize = 5;

/// Every sandbox that this daemon knows.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    closed: bool,
    handles: BTreeMap<SandboxId, Handle>,
    names: BTreeMap<(Owner, SandboxName), SandboxId>,
}

impl Registry {
    /// Takes a sandbox in, whose name becomes its own.
    pub(crate) fn add(&self, lease: &Arc<Lease>, handle: Handle) -> Result<(), ControlError> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(ControlError::Closing);
        }
        if inner.handles.contains_key(&lease.id) {
            return Err(ControlError::Exists { id: lease.id.to_string() });
        }
        if let Some(name) = &lease.name {
            let key = (lease.owner.clone(), name.clone());
            if inner.names.contains_key(&key) {
                return Err(ControlError::NameTaken { name: name.to_string() });
            }
            inner.names.insert(key, lease.id.clone());
        }
        inner.handles.insert(lease.id.clone(), handle);
        Ok(())
    }

    /// Forgets a sandbox and frees its name.
    pub(crate) fn remove(&self, lease: &Lease) {
        let mut inner = self.lock();
        inner.handles.remove(&lease.id);
        inner.names.retain(|_, id| *id != lease.id);
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Handle> {
        self.lock().handles.get(id).cloned()
    }

    /// The sandbox that this owner asked for with this key.
    pub(crate) fn asked_for(&self, owner: &Owner, key: &str) -> Option<Handle> {
        let is_it = |handle: &&Handle| {
            let lease = handle.lease();
            lease.owner == *owner && lease.asked.as_ref().is_some_and(|asked| asked.key == key)
        };
        self.lock().handles.values().find(is_it).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().handles.len()
    }

    pub(crate) fn all(&self) -> Vec<Handle> {
        self.lock().handles.values().cloned().collect()
    }

    /// Takes nobody in any more and lets go of those that are there.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.handles.clear();
        inner.names.clear();
    }

    /// Finds a sandbox by its id, its name, or a beginning of its id or name that no other of the
    /// owner's has.
    pub(crate) fn find(
        &self,
        owner: &Owner,
        which: &Reference,
        everybodys: bool,
    ) -> Result<Handle, ControlError> {
        let inner = self.lock();
        if let Some(handle) = which.id().and_then(|id| inner.handles.get(&id)) {
            return Ok(handle.clone());
        }
        let by_name = which.name().and_then(|name| {
            let own = inner.names.get(&(owner.clone(), name.clone()));
            let id = own.or_else(|| {
                let mut of_others =
                    inner.names.iter().filter(|((_, known), _)| everybodys && *known == name);
                of_others.next().map(|(_, id)| id)
            })?;
            inner.handles.get(id)
        });
        if let Some(handle) = by_name {
            return Ok(handle.clone());
        }
        let text = which.as_str();
        let begins = |handle: &&Handle| {
            let lease = handle.lease();
            let named = lease.name.as_ref().is_some_and(|name| name.as_str().starts_with(text));
            (everybodys || lease.owner == *owner) && (lease.id.as_str().starts_with(text) || named)
        };
        let long_enough = text.len() >= SHORTEST;
        let found: Vec<&Handle> =
            inner.handles.values().filter(|_| long_enough).filter(begins).collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(ControlError::NotFound { which: which.to_string() }),
            several => Err(ControlError::Ambiguous {
                which: which.to_string(),
                candidates: several
                    .iter()
                    .take(TOLD)
                    .map(|handle| {
                        let lease = handle.lease();
                        lease.name.as_ref().map_or(lease.id.to_string(), ToString::to_string)
                    })
                    .collect(),
            }),
        }
    }

    /// What it guards is whole between any two statements, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
