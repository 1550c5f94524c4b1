//! What happened in a watched folder and was not told yet.
//!
//! A queue has bounds, because nobody may ever ask: what does not fit is counted, and the count
//! stands in the queue at the place of what is missing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use guest_proto::filesystem::EventType;

/// The most changes of one watcher that wait to be told.
const MOST_CHANGES: usize = 1 << 16;

/// The most bytes that all watchers together keep waiting.
const MOST_BYTES: usize = 32 << 20;

/// What a change takes besides its name.
const CHANGE_BYTES: usize = 48;

/// The bytes that wait in all queues.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// This happened to the entry of this name, relative to the watched folder.
    Happened { name: Box<str>, kind: EventType },
    /// Something is missing here, and how much of it where that is known.
    Lost { count: Option<u64> },
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Happened { name, .. } => name.len() + CHANGE_BYTES,
            Self::Lost { .. } => 0,
        }
    }
}

/// The changes of one watcher, in their order.
#[derive(Debug)]
pub(super) struct Queue {
    changes: VecDeque<Change>,
    most: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { changes: VecDeque::new(), most: MOST_CHANGES }
    }
}

impl Queue {
    /// Adds a change, or counts it as lost when there is no room.
    pub(super) fn push(&mut self, name: &str, kind: EventType) {
        let change = Change::Happened { name: name.into(), kind };
        let bytes = change.bytes();
        if self.changes.len() >= self.most {
            return self.lose(Some(1));
        }
        if WAITING.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST_BYTES {
            WAITING.fetch_sub(bytes, Ordering::Relaxed);
            return self.lose(Some(1));
        }
        self.changes.push_back(change);
    }

    /// Notes that so many changes are missing.
    pub(super) fn lose(&mut self, more: Option<u64>) {
        if let Some(Change::Lost { count }) = self.changes.back_mut() {
            *count = count.zip(more).map(|(count, more)| count.saturating_add(more));
        } else {
            self.changes.push_back(Change::Lost { count: more });
        }
    }

    /// Takes out the first ones.
    pub(super) fn take(&mut self, most: usize) -> Vec<Change> {
        let taken: Vec<_> = self.changes.drain(..most.min(self.changes.len())).collect();
        release(&taken);
        taken
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        release(&self.changes);
    }
}

fn release<'a>(changes: impl IntoIterator<Item = &'a Change>) {
    WAITING.fetch_sub(changes.into_iter().map(Change::bytes).sum(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_in_its_place() {
        let mut queue = Queue { changes: VecDeque::new(), most: 2 };
        for name in ["a", "b", "c", "d"] {
            queue.push(name, EventType::EVENT_TYPE_CREATE);
        }
        assert_eq!(queue.take(1).len(), 1);
        let name = "b".into();
        let kind = EventType::EVENT_TYPE_CREATE;
        assert_eq!(
            queue.take(9),
            [Change::Happened { name, kind }, Change::Lost { count: Some(2) }]
        );
        queue.push("e", EventType::EVENT_TYPE_WRITE);
        assert_eq!(queue.take(9).len(), 1);
    }

    #[test]
    fn an_unknown_loss_makes_the_sum_unknown() {
        let mut queue = Queue::default();
        queue.lose(Some(3));
        queue.lose(Some(4));
        queue.lose(None);
        assert_eq!(queue.take(9), [Change::Lost { count: None }]);
    }
}
