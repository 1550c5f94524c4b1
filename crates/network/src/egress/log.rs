//! What one sandbox tried to reach: numbered entries, the newest in memory, more in a file.
//!
//! Both are bounded, and so is what a sandbox can add to them: refusals that are like the last
//! ones are counted and told once a second. Files are written by one task for all sandboxes
//! ([`Writer`]), so that a connection never waits for a disk.

mod file;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::{NetworkEntry, NetworkProtocol, SandboxId, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::judge::Verdict;
use super::whose::Asked;
use file::LogFile;

/// Entries that stay in memory when they are in the file too.
const RECENT: usize = 128;
/// Entries in memory when the disk does not keep up.
const MOST: usize = 1024;
/// How long refusals like one another count as one, and how long the file lags.
const WINDOW: Duration = Duration::from_secs(1);
/// Refusals that are told apart within one window.
const MOST_APART: usize = 64;

/// What is known of an attempt while it goes on.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    pub(crate) began: Instant,
    pub(crate) protocol: NetworkProtocol,
    pub(crate) name: Option<String>,
    pub(crate) address: Option<std::net::IpAddr>,
    pub(crate) port: u16,
    /// The question which process makes it.
    pub(crate) whose: Asked,
    pub(crate) process: Option<String>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Attempt {
    pub(crate) fn new(protocol: NetworkProtocol, port: u16) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            at: Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            began: Instant::now(),
            protocol,
            name: None,
            address: None,
            port,
            whose: Asked::default(),
            process: None,
            sent: 0,
            received: 0,
        }
    }

    /// Waits a moment for who makes it.
    pub(crate) async fn find_process(&mut self) {
        self.process = self.whose.soon().await;
    }
}

/// One sandbox's log.
#[derive(Debug)]
pub(crate) struct Log {
    kept: Mutex<Kept>,
    latest: watch::Sender<u64>,
    file: Mutex<LogFile>,
    is_waiting: AtomicBool,
    gone: CancellationToken,
    writer: Writer,
}

#[derive(Debug)]
struct Kept {
    next: u64,
    /// Up to which number the file has them.
    written: u64,
    entries: VecDeque<Arc<NetworkEntry>>,
    window: Instant,
    repeats: HashMap<u64, Repeat>,
    is_gone: bool,
}

#[derive(Debug)]
struct Repeat {
    example: NetworkEntry,
    more: u64,
}

impl Log {
    /// The log of a sandbox in a folder, going on where an earlier program left it.
    pub(crate) fn open(folder: &Path, sandbox: &SandboxId, writer: Writer) -> Arc<Self> {
        let file = LogFile::new(folder, sandbox);
        let entries: VecDeque<_> = file.last(RECENT).into_iter().map(Arc::new).collect();
        let last = entries.back().map_or(0, |entry| entry.sequence);
        Arc::new(Self {
            kept: Mutex::new(Kept {
                next: last + 1,
                written: last,
                entries,
                window: Instant::now(),
                repeats: HashMap::new(),
                is_gone: false,
            }),
            latest: watch::Sender::new(last),
            file: Mutex::new(file),
            is_waiting: AtomicBool::new(false),
            gone: CancellationToken::new(),
            writer,
        })
    }

    /// Writes down what came of an attempt.
    pub(crate) fn write(self: &Arc<Self>, attempt: Attempt, verdict: &Verdict) {
        let took = attempt.began.elapsed().as_millis();
        let entry = NetworkEntry {
            sequence: 0,
            at: attempt.at,
            protocol: attempt.protocol,
            name: attempt.name,
            address: attempt.address,
            port: attempt.port,
            process: attempt.process,
            sent: attempt.sent,
            received: attempt.received,
            milliseconds: u64::try_from(took).unwrap_or(u64::MAX),
            allowed: verdict.allowed,
            rule: verdict.rule.clone(),
            detail: verdict.detail.clone(),
        };
        let latest = {
            let mut kept = lock(&self.kept);
            if kept.is_gone || !kept.is_new(&entry) { None } else { Some(kept.append(entry)) }
        };
        if let Some(latest) = latest {
            self.latest.send_replace(latest);
        }
        self.wake_writer();
    }

    /// What has a higher number, oldest first and no more than so many. It may read a file.
    pub(crate) fn read(&self, after: u64, most: usize) -> Vec<NetworkEntry> {
        let in_memory: Vec<Arc<NetworkEntry>> = {
            let kept = lock(&self.kept);
            kept.entries.iter().filter(|entry| entry.sequence > after).cloned().collect()
        };
        let first = in_memory.first().map_or(u64::MAX, |entry| entry.sequence);
        let mut entries = Vec::new();
        if first > after.saturating_add(1) {
            entries = lock(&self.file).read(after, most);
            entries.retain(|entry| entry.sequence < first);
        }
        entries.extend(in_memory.iter().map(|entry| NetworkEntry::clone(entry)));
        entries.truncate(most);
        entries
    }

    /// Tells the newest number as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Puts into the file what is not there. It waits for the disk.
    pub(crate) fn flush(self: &Arc<Self>) -> io::Result<()> {
        self.is_waiting.store(false, Ordering::SeqCst);
        let (entries, latest, is_open) = {
            let mut kept = lock(&self.kept);
            let latest = kept.close_window();
            let written = kept.written;
            let new = kept.entries.iter().filter(|entry| entry.sequence > written);
            (new.cloned().collect::<Vec<_>>(), latest, !kept.repeats.is_empty())
        };
        if let Some(latest) = latest {
            self.latest.send_replace(latest);
        }
        if is_open {
            self.wake_writer();
        }
        let Some(last) = entries.last().map(|entry| entry.sequence) else { return Ok(()) };
        let file = lock(&self.file);
        if lock(&self.kept).is_gone {
            return Ok(());
        }
        file.append(&entries)?;
        let mut kept = lock(&self.kept);
        kept.written = last;
        kept.bound();
        Ok(())
    }

    /// The sandbox is gone, and its log with it.
    pub(crate) fn remove(&self) {
        let file = lock(&self.file);
        lock(&self.kept).is_gone = true;
        self.gone.cancel();
        file.remove();
    }

    /// Comes back when it is.
    pub(crate) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    fn wake_writer(self: &Arc<Self>) {
        if !self.is_waiting.swap(true, Ordering::SeqCst) {
            // There is no writer when the program ends.
            let _ = self.writer.0.send(Arc::clone(self));
        }
    }
}

impl Kept {
    /// Whether an entry is more than one more like the last ones.
    fn is_new(&mut self, entry: &NetworkEntry) -> bool {
        if entry.allowed {
            return true;
        }
        let mut kind = kind(entry);
        if !self.repeats.contains_key(&kind) && self.repeats.len() >= MOST_APART {
            // So many at once are told as one kind.
            kind = 0;
        }
        if let Some(repeat) = self.repeats.get_mut(&kind) {
            repeat.more += 1;
            return false;
        }
        if self.repeats.is_empty() {
            self.window = Instant::now();
        }
        self.repeats.insert(kind, Repeat { example: entry.clone(), more: 0 });
        true
    }

    /// Ends the window, if it is over: what was counted is told.
    fn close_window(&mut self) -> Option<u64> {
        if self.window.elapsed() < WINDOW {
            return None;
        }
        self.window = Instant::now();
        let mut latest = None;
        for (_, repeat) in std::mem::take(&mut self.repeats) {
            // A resolver asks for both kinds of addresses, and again with others of its names.
            let few = if repeat.example.protocol == NetworkProtocol::Dns { 3 } else { 0 };
            if repeat.more > few {
                let more = format!("… and {} more like it", repeat.more);
                latest = Some(self.append(NetworkEntry { detail: Some(more), ..repeat.example }));
            }
        }
        latest
    }

    fn append(&mut self, mut entry: NetworkEntry) -> u64 {
        let number = self.next;
        entry.sequence = number;
        self.next += 1;
        self.entries.push_back(Arc::new(entry));
        self.bound();
        number
    }

    fn bound(&mut self) {
        while self.entries.len() > RECENT
            && (self.entries.len() > MOST
                || self.entries.front().is_some_and(|entry| entry.sequence <= self.written))
        {
            self.entries.pop_front();
        }
    }
}

/// What makes two refusals alike: everything but when they were.
fn kind(entry: &NetworkEntry) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (entry.protocol as u8, &entry.name, entry.address, entry.port, &entry.rule).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Where logs say that they have something to write.
#[derive(Debug, Clone)]
pub(crate) struct Writer(mpsc::UnboundedSender<Arc<Log>>);

impl Writer {
    /// A writer and its task, which ends when no log is left.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut logs) = mpsc::unbounded_channel::<Arc<Log>>();
        let task = async move {
            while let Some(first) = logs.recv().await {
                let mut waiting = vec![first];
                while let Ok(next) = logs.try_recv() {
                    waiting.push(next);
                }
                flush_all(waiting).await;
                // What comes alone is written at once, what comes in numbers once a second.
                tokio::time::sleep(WINDOW).await;
            }
        };
        (Self(sender), task)
    }
}

/// Puts into their files what some logs have.
pub(crate) async fn flush_all(logs: Vec<Arc<Log>>) {
    let work = move || {
        for log in logs {
            if let Err(error) = log.flush() {
                tracing::warn!(%error, "a sandbox's network log cannot be written");
            }
        }
    };
    let _ = tokio::task::spawn_blocking(work).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
