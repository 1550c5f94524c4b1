//! The egress program: who comes to its socket, and when it ends.

mod door;
mod engine;
mod reader;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::unix::AsyncFd;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::log::{self, Writer};
use super::packets::{self, Packets};
use super::world::World;
use crate::attach::{self, Hello};
pub(crate) use door::EngineDoor;

/// How long the program stays when nobody needs it.
const STAY: Duration = Duration::from_millis(500);
/// How long somebody may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads: what passes is moved by the kernel, and more do not move it faster.
const MOST_THREADS: usize = 4;

/// Why the egress program ended.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// It could not begin.
    #[error("the egress program cannot {step}")]
    Start {
        /// Completes the sentence.
        step: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Nobody can come to it any more.
    #[error("the egress program's socket is broken")]
    Socket(#[source] io::Error),
}

/// Runs the egress program in a runtime of its own until nobody needs it. See [`run`].
pub fn start(listener: OwnedFd, state: PathBuf) -> Result<(), EgressError> {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(most.min(MOST_THREADS))
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .map_err(|source| EgressError::Start { step: "make its threads", source })?;
    let result = runtime.block_on(run(listener, state));
    // A log that is being written is not waited for longer than this.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Runs the egress program: serves engines and readers of logs that come to a listening socket of
/// packets, and every sandbox that an engine attaches. Logs are kept in the folder `state`.
///
/// It ends when there has been neither an engine nor a sandbox for a moment, or when an engine
/// of another version comes. When it is dropped,
/// everything that it passes on ends.
pub async fn run(listener: OwnedFd, state: PathBuf) -> Result<(), EgressError> {
    let failed = |step| move |source| EgressError::Start { step, source };
    raise_descriptors();
    let logs = state.join("network-log");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&logs)
        .map_err(failed("make its folder"))?;
    rustix::io::ioctl_fionbio(&listener, true)
        .map_err(|error| failed("use its socket")(error.into()))?;
    let listener = packets::watch(listener).map_err(failed("use its socket"))?;
    let (writer, writing) = Writer::new();
    let world = Arc::new(World::new(logs, writer));
    world.tasks.spawn(writing);
    let result = accept_all(&world, &listener).await;
    let all: Vec<_> = world.sandboxes().drain().map(|(_, sandbox)| sandbox).collect();
    futures::future::join_all(all.iter().map(|sandbox| sandbox.detach())).await;
    log::flush_all(all.iter().map(|sandbox| Arc::clone(&sandbox.log)).collect()).await;
    result
}

async fn accept_all(world: &Arc<World>, listener: &AsyncFd<OwnedFd>) -> Result<(), EgressError> {
    let engines = Arc::new(AtomicUsize::new(0));
    let mut looks = interval(STAY / 10);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lonely = 0;
    loop {
        let socket = tokio::select! {
            () = world.ending.cancelled() => return Ok(()),
            accepted = accept(listener) => accepted.map_err(EgressError::Socket)?,
            _ = looks.tick() => {
                let is_needed =
                    engines.load(Ordering::SeqCst) > 0 || !world.sandboxes().is_empty();
                lonely = if is_needed { 0 } else { lonely + 1 };
                if lonely > 10 {
                    return Ok(());
                }
                continue;
            }
        };
        lonely = 0;
        let (world, engines) = (Arc::clone(world), Arc::clone(&engines));
        let tasks = world.tasks.clone();
        tasks.spawn(async move {
            if let Err(error) = serve(&world, socket, &engines).await {
                tracing::debug!(%error, "a connection to the egress program ended");
            }
        });
    }
}

async fn serve(world: &Arc<World>, socket: OwnedFd, engines: &AtomicUsize) -> io::Result<()> {
    let packets = Packets::new(socket)?;
    let hello = timeout(PATIENCE, packets.receive::<Hello>()).await;
    match hello.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        None => Ok(()),
        Some((Hello::Engine { version }, _)) if version != attach::version() => {
            tracing::info!("an engine of another version came: it starts its own program");
            world.ending.cancel();
            Ok(())
        }
        Some((Hello::Engine { .. }, _)) => {
            engines.fetch_add(1, Ordering::SeqCst);
            let result = engine::serve(world, Arc::new(packets)).await;
            engines.fetch_sub(1, Ordering::SeqCst);
            result
        }
        Some((Hello::Log { sandbox, after, follow }, _)) => {
            reader::serve(world, &packets, &sandbox, after, follow).await
        }
    }
}

async fn accept(listener: &AsyncFd<OwnedFd>) -> io::Result<OwnedFd> {
    loop {
        let mut ready = listener.readable().await?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match ready.try_io(|socket| Ok(accept_with(socket.as_fd(), flags)?)) {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) if is_passing(&error) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {}
        }
    }
}

/// Whether the next one may well be accepted.
fn is_passing(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(Errno::CONNABORTED | Errno::INTR | Errno::MFILE | Errno::NFILE | Errno::NOMEM)
    )
}

/// Every connection has two descriptors, and there may be many.
fn raise_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    if setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).is_err() {
        tracing::warn!("the limit of open files could not be raised");
    }
}
