//! Following what happens, from any number on.
//!
//! Past and present are one: a follower looks for what comes after the last event that it was
//! told, and waits when there is nothing. So nothing is told twice and nothing is passed over
//! between the two, and a follower who is slow holds nobody up: the files wait for it. When they
//! do not, because so much happened that its place was removed, it is told so.

use std::collections::VecDeque;
use std::sync::Arc;

use domain::{Owner, Recorded, SandboxId};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::{FOLLOWERS, Journal, JournalError, Query};

/// How many events a follower takes at once.
const BATCH: usize = 128;

/// What a follower is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something happened.
    Event(Arc<Recorded>),
    /// Events with these numbers cannot be told any more, whosever they were.
    Missed {
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
    },
}

/// Follows what happens.
#[derive(Debug)]
pub struct Follower {
    journal: Journal,
    query: Query,
    ready: VecDeque<Arc<Recorded>>,
    newest: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Journal {
    /// Follows what happens to an owner's sandboxes, or to one sandbox, after the event with this
    /// number; from now on when unset.
    pub fn follow(
        &self,
        owner: Option<Owner>,
        sandbox: Option<SandboxId>,
        after: Option<u64>,
    ) -> Result<Follower, JournalError> {
        let permit = Arc::clone(&self.shared.followers).try_acquire_owned();
        let permit = permit.map_err(|_| JournalError::TooMany { most: FOLLOWERS })?;
        let newest = self.shared.newest().as_ref().map(watch::Sender::subscribe);
        let newest = newest.ok_or(JournalError::Closed)?;
        let after = after.unwrap_or_else(|| self.newest());
        let query = Query { owner, sandbox, after, limit: BATCH, ..Query::default() };
        let journal = self.clone();
        Ok(Follower { journal, query, ready: VecDeque::new(), newest, _permit: permit })
    }
}

impl Follower {
    /// Waits for the next thing; `None` when the daemon is about to end.
    ///
    /// Whoever stops waiting misses nothing: the next call goes on.
    pub async fn next(&mut self) -> Option<Result<Told, JournalError>> {
        loop {
            if let Some(recorded) = self.ready.pop_front() {
                return Some(Ok(Told::Event(recorded)));
            }
            // Before the search: what happens during it is seen by the next.
            let newest = *self.newest.borrow_and_update();
            if self.query.after > newest {
                // These numbers were lost when the host stopped, and are given out again.
                let told = Told::Missed { from: newest + 1, to: self.query.after };
                self.query.after = newest;
                return Some(Ok(told));
            }
            let page = match self.journal.find(self.query.clone()).await {
                Ok(page) => page,
                Err(error) => return Some(Err(error)),
            };
            if page.oldest > self.query.after + 1 {
                let told = Told::Missed { from: self.query.after + 1, to: page.oldest - 1 };
                self.query.after = page.oldest - 1;
                return Some(Ok(told));
            }
            let last = page.items.last().map(|recorded| recorded.sequence);
            self.query.after = match (page.has_more, last) {
                (true, Some(last)) => last,
                _ => page.newest.max(self.query.after),
            };
            self.ready.extend(page.items);
            if self.ready.is_empty() && !page.has_more {
                self.newest.changed().await.ok()?;
            }
        }
    }

    /// The number of the last event that was looked at; all up to it were told, if they were to be.
    pub fn position(&self) -> u64 {
        self.ready.front().map_or(self.query.after, |next| next.sequence - 1)
    }
}
