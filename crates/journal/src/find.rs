//! Looking for events.
//!
//! A search reads one segment after another, beginning at the end that it was asked for, until it
//! has enough. Of a segment that was read once it is known which sandboxes are in it, so a search
//! for one of them reads few segments.

use std::ops::ControlFlow;
use std::sync::Arc;

use domain::{Owner, Recorded, SandboxId, Timestamp};
use memchr::memmem::Finder;

use crate::segment::{self, Segment};
use crate::{Journal, JournalError, Shared};

/// So many bytes of lines are found at the most, however many events are asked for.
const MOST_BYTES: usize = 1 << 20;

/// How often a search begins anew whose segments were removed meanwhile.
const ATTEMPTS: usize = 5;

/// Which events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Those of this owner's sandboxes; of all when unset.
    pub owner: Option<Owner>,
    /// Those of this sandbox; of all when unset.
    pub sandbox: Option<SandboxId>,
    /// Those with greater numbers than this.
    pub after: u64,
    /// Those with smaller numbers than this; all when unset.
    pub before: Option<u64>,
    /// Those of this moment or later.
    pub from: Option<Timestamp>,
    /// Whether the newest come first, or the oldest.
    pub newest_first: bool,
    /// How many at the most.
    pub limit: usize,
}

/// Some of what matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order that was asked for.
    pub items: Vec<Arc<Recorded>>,
    /// Whether there may be more beyond the last of them.
    pub has_more: bool,
    /// The number of the oldest event that is kept, of all.
    pub oldest: u64,
    /// The number of the newest event when this was looked for, of all; zero when there is none.
    pub newest: u64,
}

impl Journal {
    /// What happened.
    pub async fn find(&self, query: Query) -> Result<Page, JournalError> {
        if let Some(page) = self.shared.recent(&query) {
            return Ok(page);
        }
        let shared = Arc::clone(&self.shared);
        let permit = Arc::clone(&shared.searches).acquire_owned().await;
        let permit = permit.map_err(|_| JournalError::Closed)?;
        let searching = tokio::task::spawn_blocking(move || {
            // A search goes on when whoever asked has gone away, and counts until its end.
            let _permit = permit;
            shared.search(&query)
        });
        searching.await.map_err(|_| JournalError::Closed)?
    }
}

impl Shared {
    /// The answer from memory, where that has all of it: for those who follow, the usual case.
    fn recent(&self, query: &Query) -> Option<Page> {
        let inner = self.lock();
        let first = inner.recent.front().map_or(inner.next, |recorded| recorded.sequence);
        let wanted = query.after.saturating_add(1);
        if query.newest_first || wanted < first {
            return None;
        }
        let skip = usize::try_from(wanted - first).unwrap_or(usize::MAX);
        let mut matching = inner.recent.iter().skip(skip).filter(|recorded| query.has(recorded));
        let items: Vec<_> = matching.by_ref().take(query.limit).cloned().collect();
        let has_more = matching.next().is_some();
        let (oldest, newest) = (inner.oldest(), inner.next - 1);
        Some(Page { items, has_more, oldest, newest })
    }

    fn search(&self, query: &Query) -> Result<Page, JournalError> {
        let mut text = Vec::new();
        for _ in 0..ATTEMPTS {
            if let Some(page) = self.attempt(query, &mut text)? {
                return Ok(page);
            }
        }
        let source = std::io::Error::other("they are removed faster than they can be read");
        Err(JournalError::Folder { path: self.folder.clone(), source })
    }

    /// One search; `None` when a segment is gone that was to be read.
    fn attempt(&self, query: &Query, text: &mut Vec<u8>) -> Result<Option<Page>, JournalError> {
        let (segments, oldest, newest, length) = {
            let inner = self.lock();
            let segments: Vec<_> = inner.segments.iter().cloned().collect();
            (segments, inner.oldest(), inner.next - 1, inner.writing.length)
        };
        let mut search = Search::new(query);
        let count = segments.len();
        let order =
            (0..count).map(|index| if query.newest_first { count - 1 - index } else { index });
        for index in order {
            let segment = &segments[index];
            let is_newest = index + 1 == count;
            let end = segments.get(index + 1).map_or(u64::MAX, |next| next.first);
            if !search.may_find_in(segment, end) {
                continue;
            }
            if !segment.read(self.bounds, text)? {
                return Ok(None);
            }
            if is_newest {
                // What was appended meanwhile belongs to the next search.
                text.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            } else {
                segment.learn(text);
            }
            if search.take(text).is_break() {
                break;
            }
        }
        let Search { items, has_more, .. } = search;
        Ok(Some(Page { items, has_more, oldest, newest }))
    }
}

impl crate::Inner {
    /// The number of the oldest event that is kept.
    fn oldest(&self) -> u64 {
        self.segments.front().map_or(1, |segment| segment.first)
    }
}

impl Query {
    fn has(&self, recorded: &Recorded) -> bool {
        let event = &recorded.event;
        recorded.sequence > self.after
            && self.before.is_none_or(|before| recorded.sequence < before)
            && self.sandbox.as_ref().is_none_or(|sandbox| event.sandbox == *sandbox)
            && self.owner.as_ref().is_none_or(|owner| event.owner == *owner)
            && self.from.is_none_or(|from| event.at >= from)
    }
}

/// A search that is under way.
struct Search<'a> {
    query: &'a Query,
    /// Words that every line has that matches: cheaper to look for than to read the line.
    words: Vec<Finder<'static>>,
    items: Vec<Arc<Recorded>>,
    bytes: usize,
    has_more: bool,
}

impl<'a> Search<'a> {
    fn new(query: &'a Query) -> Self {
        let word = |name: &str, value: &str| {
            let value = serde_json::to_string(value).ok()?;
            Some(Finder::new(format!("\"{name}\":{value}").as_bytes()).into_owned())
        };
        let sandbox = query.sandbox.as_ref().and_then(|id| word("sandbox", id.as_str()));
        let owner = query.owner.as_ref().and_then(|owner| word("owner", &owner.0));
        let words = sandbox.into_iter().chain(owner).collect();
        Self { query, words, items: Vec::new(), bytes: 0, has_more: false }
    }

    /// Whether a segment, whose events have numbers below `end`, may have what is looked for.
    fn may_find_in(&self, segment: &Segment, end: u64) -> bool {
        let is_before = self.query.before.is_none_or(|before| segment.first < before);
        let is_after = end > self.query.after.saturating_add(1);
        let may_have = match (&self.query.sandbox, segment.filter.get()) {
            (Some(sandbox), Some(filter)) => filter.may_have(sandbox.as_str().as_bytes()),
            _ => true,
        };
        is_before && is_after && may_have
    }

    fn take(&mut self, text: &[u8]) -> ControlFlow<()> {
        let mut lines = segment::lines(text);
        while let Some(line) =
            if self.query.newest_first { lines.next_back() } else { lines.next() }
        {
            self.look_at(line)?;
        }
        ControlFlow::Continue(())
    }

    fn look_at(&mut self, line: &[u8]) -> ControlFlow<()> {
        let Some(sequence) = segment::sequence(line) else { return ControlFlow::Continue(()) };
        let query = self.query;
        if sequence <= query.after || query.before.is_some_and(|before| sequence >= before) {
            return ControlFlow::Continue(());
        }
        if !self.words.iter().all(|word| word.find(line).is_some()) {
            return ControlFlow::Continue(());
        }
        let Ok(recorded) = serde_json::from_slice::<Recorded>(line) else {
            return ControlFlow::Continue(());
        };
        if !query.has(&recorded) {
            return ControlFlow::Continue(());
        }
        if self.items.len() >= query.limit || self.bytes >= MOST_BYTES {
            self.has_more = true;
            return ControlFlow::Break(());
        }
        self.bytes += line.len();
        self.items.push(Arc::new(recorded));
        ControlFlow::Continue(())
    }
}
