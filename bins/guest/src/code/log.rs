//! The events of one execution, kept for those who read them now or later.
//!
//! Output is kept up to a bound, and so are values and errors; what is too much goes, the oldest
//! first. A reader that follows is waited for before something goes that it has not read: so one
//! that keeps up gets all of a gigabyte, and the cell blocks in its write meanwhile. A reader that
//! takes nothing for a while is waited for no more: it is told how much it missed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest_proto::code::{Event, EventKind};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::text;
use crate::process::Budget;

/// The values of bundles are passed on as they came.
pub(super) type Value = Box<RawValue>;

/// As much output as is kept, and as is kept when memory is short.
const MOST_OUTPUT: usize = 1 << 20;
const LEAST_OUTPUT: usize = 64 << 10;

/// As much of values and errors as is kept, the last one aside.
const MOST_VALUES: usize = 16 << 20;

/// What an event takes beside its text.
const OVERHEAD: usize = 200;

/// As many events of no weight as are kept: notes, questions, clearings.
const MOST_SMALL: usize = 1000;

/// As many as read one execution at a time.
const MOST_READERS: usize = 8;

/// How long a reader that takes nothing is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The events of one execution.
#[derive(Debug)]
pub(super) struct Log {
    inner: Mutex<Inner>,
    /// Something happened.
    news: Notify,
    /// A reader has read, or left.
    room: Notify,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Inner {
    events: BTreeMap<u64, Arc<Event<Value>>>,
    next: u64,
    /// Numbers of what is kept, by what it is.
    outputs: Kept,
    values: Kept,
    small: VecDeque<u64>,
    readers: Vec<Place>,
    next_reader: u64,
    over: bool,
}

#[derive(Debug, Default)]
struct Kept {
    numbers: VecDeque<(u64, usize)>,
    weight: usize,
}

/// Where a reader is.
#[derive(Debug)]
struct Place {
    reader: u64,
    next: u64,
    waited_for: bool,
}

/// What a reader gets.
#[derive(Debug, Clone)]
pub(super) enum Read {
    /// The next event.
    Event(Arc<Event<Value>>),
    /// As many events are missing, the last of them with this number.
    Missed { count: u64, last: u64 },
}

impl Log {
    /// A log without events.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { inner: Mutex::default(), news: Notify::new(), room: Notify::new(), budget }
    }

    /// Adds an event, once those who follow have read what has to go for it.
    pub(super) async fn publish(&self, kind: EventKind<Value>) {
        // Where the last of those who are waited for is, and since when. That others read, or
        // come and go, moves nothing.
        let mut last: Option<(u64, Instant)> = None;
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if self.make_room(weight(&kind), is_output(&kind)) {
                break;
            }
            let now = Instant::now();
            let Some(place) = self.last_place() else { continue };
            let since = match last {
                Some((before, since)) if before == place => since,
                _ => now,
            };
            last = Some((place, since));
            if timeout_at(since + PATIENCE, room).await.is_err() {
                self.give_up_waiting();
            }
        }
        self.push(kind);
    }

    /// Adds an event at once.
    pub(super) fn push(&self, kind: EventKind<Value>) {
        let weight = weight(&kind);
        let mut inner = self.lock();
        if inner.over {
            return;
        }
        let n = inner.next;
        inner.next += 1;
        inner.over = matches!(kind, EventKind::End { .. });
        if weight > 0 {
            self.budget.take(weight);
            let kept = if is_output(&kind) { &mut inner.outputs } else { &mut inner.values };
            kept.numbers.push_back((n, weight));
            kept.weight += weight;
        } else if !is_first_or_last(&kind) {
            inner.small.push_back(n);
            if inner.small.len() > MOST_SMALL
                && let Some(oldest) = inner.small.pop_front()
            {
                inner.events.remove(&oldest);
            }
        }
        inner.events.insert(n, Arc::new(Event { n, time: text::now(), kind }));
        drop(inner);
        self.news.notify_waiters();
    }

    /// As many events as there were.
    pub(super) fn count(&self) -> u64 {
        self.lock().next
    }

    /// Whether the last event was added.
    pub(super) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Drops output and values that are kept.
    pub(super) fn forget(&self) {
        let mut inner = self.lock();
        inner.forget(&self.budget);
    }

    /// Begins to read, from an event on. Whoever follows from now on is waited for.
    pub(super) fn read(self: &Arc<Self>, from: u64) -> Reader {
        let mut inner = self.lock();
        let reader = inner.next_reader;
        inner.next_reader += 1;
        inner.readers.push(Place { reader, next: from, waited_for: true });
        Reader { log: Arc::clone(self), number: reader, next: from }
    }

    /// Whether as many read as may at one time: each holds what it has not sent yet.
    pub(super) fn is_crowded(&self) -> bool {
        self.lock().readers.len() >= MOST_READERS
    }

    /// Lets the oldest go until there is room; false where somebody still has to read it.
    fn make_room(&self, weight: usize, output: bool) -> bool {
        if weight == 0 {
            return true;
        }
        let mut inner = self.lock();
        let most = match (output, self.budget.is_over()) {
            (true, false) => MOST_OUTPUT,
            (true, true) => LEAST_OUTPUT,
            (false, false) => MOST_VALUES,
            (false, true) => 0,
        };
        let needed = inner.readers.iter().filter(|place| place.waited_for);
        let needed = needed.map(|place| place.next).min().unwrap_or(u64::MAX);
        let Inner { outputs, values, events, .. } = &mut *inner;
        let kept = if output { outputs } else { values };
        while kept.weight + weight > most {
            let Some((n, gone)) = kept.numbers.front().copied() else { break };
            if n >= needed {
                return false;
            }
            kept.numbers.pop_front();
            kept.weight -= gone;
            self.budget.give_back(gone);
            events.remove(&n);
        }
        true
    }

    /// Where the last of those is who are waited for.
    fn last_place(&self) -> Option<u64> {
        let inner = self.lock();
        inner.readers.iter().filter(|place| place.waited_for).map(|place| place.next).min()
    }

    fn give_up_waiting(&self) {
        let oldest = self.last_place();
        let mut inner = self.lock();
        for place in &mut inner.readers {
            // Those further on were only waiting too.
            place.waited_for &= Some(place.next) != oldest;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Inner {
    fn forget(&mut self, budget: &Budget) {
        for kept in [&mut self.outputs, &mut self.values] {
            budget.give_back(kept.weight);
            kept.weight = 0;
            for (n, _) in kept.numbers.drain(..) {
                self.events.remove(&n);
            }
        }
    }
}

/// Somebody who reads a log.
#[derive(Debug)]
pub(super) struct Reader {
    log: Arc<Log>,
    number: u64,
    next: u64,
}

impl Reader {
    /// The next event, as soon as there is one; none after the last.
    pub(super) async fn next(&mut self) -> Option<Read> {
        let log = Arc::clone(&self.log);
        loop {
            let news = log.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.try_next() {
                Some(read) => return Some(read),
                None if self.is_done() => return None,
                None => news.await,
            }
        }
    }

    /// The next event, if it is there.
    pub(super) fn try_next(&mut self) -> Option<Read> {
        let mut inner = self.log.lock();
        let (n, event) = inner.events.range(self.next..).next()?;
        let (n, event) = (*n, Arc::clone(event));
        let read = if n > self.next {
            let read = Read::Missed { count: n - self.next, last: n - 1 };
            self.next = n;
            read
        } else {
            self.next = n + 1;
            Read::Event(event)
        };
        let (reader, next) = (self.number, self.next);
        if let Some(place) = inner.readers.iter_mut().find(|place| place.reader == reader) {
            place.next = next;
        }
        drop(inner);
        self.log.room.notify_waiters();
        Some(read)
    }

    /// The number of the next event.
    pub(super) fn place(&self) -> u64 {
        self.next
    }

    /// Whether all was read that there will ever be.
    fn is_done(&self) -> bool {
        let inner = self.log.lock();
        inner.over && self.next >= inner.next
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let reader = self.number;
        self.log.lock().readers.retain(|place| place.reader != reader);
        self.log.room.notify_waiters();
    }
}

fn is_output(kind: &EventKind<Value>) -> bool {
    matches!(kind, EventKind::Stdout { .. } | EventKind::Stderr { .. })
}

fn is_first_or_last(kind: &EventKind<Value>) -> bool {
    use EventKind::{Accepted, End, Restarted, Started};
    matches!(kind, Accepted { .. } | End { .. } | Restarted { .. } | Started { .. })
}

/// What keeping an event takes; nothing for what is small.
pub(super) fn weight(kind: &EventKind<Value>) -> usize {
    let bundle = |bundle: &BTreeMap<String, Value>, metadata: &Option<Value>| {
        let forms: usize = bundle.iter().map(|(mime, form)| mime.len() + form.get().len()).sum();
        forms + metadata.as_ref().map_or(0, |text| text.get().len())
    };
    match kind {
        EventKind::Stdout { text } | EventKind::Stderr { text } => OVERHEAD + text.len(),
        EventKind::Result { bundle: forms, metadata, .. }
        | EventKind::Display { bundle: forms, metadata, .. } => OVERHEAD + bundle(forms, metadata),
        EventKind::Error(failure) => {
            OVERHEAD + failure.name.len() + failure.value.len() + failure.traceback.len()
        }
        _ => 0,
    }
}

/// The most that a value takes in a line: what is not ASCII is escaped. Nothing for what is no
/// value.
pub(super) fn encoded(kind: &EventKind<Value>) -> usize {
    let escaped =
        |text: &str| text.len() + 2 * text.bytes().filter(|byte| !byte.is_ascii()).count();
    match kind {
        EventKind::Result { bundle, metadata, .. }
        | EventKind::Display { bundle, metadata, .. } => {
            bundle.values().chain(metadata).map(|form| escaped(form.get())).sum()
        }
        EventKind::Error(failure) => escaped(&failure.value) + escaped(&failure.traceback),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
