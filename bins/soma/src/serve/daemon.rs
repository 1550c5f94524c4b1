//! The daemon itself, without privileges.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Control;
use gateway::{Addresses, Gateway, Listener};
use journal::{Bounds, Journal};
use provider::ProviderError;
use provider_native::Home;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use telemetry::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::memory::Memory;
use super::{ServeArguments, engines, key, private, welcome};
use crate::config::{Listen, Settings};
use crate::failure::{Failure, SOMA_FAILED};

/// How long a daemon that nobody typed stays without sandboxes and requests.
const IDLE: Duration = Duration::from_mins(10);

/// How long sandboxes have that are to stop or to go with the daemon.
const LAST_WISHES: Duration = Duration::from_secs(3);

/// How long what is being made or removed may take then.
const LAST_WORK: Duration = Duration::from_secs(2);

pub(super) fn run(
    home: &Path,
    arguments: &ServeArguments,
    starter: Option<RawFd>,
) -> Result<u8, Failure> {
    let own = |error: &(dyn std::error::Error + 'static)| Failure::own(error);
    if starter.is_some() {
        // An ordinary user's daemon starts engines itself, and those need the system's programs
        // that hand out subordinate ids: such a daemon has no more rights than its user anyway.
        rustix::thread::set_no_new_privs(true).map_err(|error| own(&io::Error::from(error)))?;
        // Without whoever starts engines it could not go on, and would keep the next daemon out.
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| own(&io::Error::from(error)))?;
    }
    let settings = Settings::read(home, &arguments.settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| own(&error))?;
    let served = runtime.block_on(serve(home, &settings, starter, arguments.alone));
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve(
    home: &Path,
    settings: &Settings,
    starter: Option<RawFd>,
    alone: bool,
) -> Result<(), Failure> {
    // What is wrong with it is said now, and not when the first sandbox wants to reach something.
    let configuration = settings.network()?;
    let provider = engines::provider(home, starter)?.leaving(settings.reserves());
    let folder = Home::at(home).daemon();
    let _lock = take(&folder)?;
    let telemetry = telemetry::start(&telemetry::Options {
        level: settings.log_level.value.clone(),
        format: settings.log_format.value.parse().unwrap_or_default(),
        otlp_endpoint: settings.otlp_endpoint.value.0.clone(),
    })
    .map_err(|error| Failure::own(&error))?;
    let memory = Memory::open(&folder, &settings.database.value).await?;
    let store = memory.store();
    let (key, key_file) =
        key::prepare(&folder, store.as_ref()).await.map_err(|error| Failure::own(&error))?;
    let options = control::Options {
        rules: settings.rules(),
        retention: settings.retention.value.0,
        grace: settings.pause_grace.value.0,
        network: settings.network_default.value.0,
        packages: settings.code_packages.value.0.clone(),
        secret: private::secret(&folder).map_err(|error| Failure::own(&error))?,
    };
    match provider.configure_network(&configuration).await {
        // What is not written down would not hold, and something wider might.
        Err(error @ ProviderError::Invalid { .. }) => return Err(error.into()),
        Err(error) => warn!(%error, "sandboxes do not reach the network for now"),
        Ok(()) => {}
    }
    let journal = journal(&folder)?;
    let opened = Control::open(Arc::new(provider), Arc::clone(&store), journal.clone(), options);
    let (control, found) = opened.await.map_err(|error| Failure::own(&error))?;
    if found.running + found.paused + found.ended > 0 {
        let (running, paused, ended) = (found.running, found.paused, found.ended);
        info!(running, paused, ended, "sandboxes were found again");
    }
    let addresses = Addresses {
        domain: settings.domain.value.clone(),
        hosts: settings.hosts.value.0.clone(),
        origins: settings.origins.value.0.clone(),
    };
    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
    let gateway = Gateway::new(control.clone(), Arc::clone(&store), metrics, addresses);
    let listeners = listeners(&folder, settings).await?;
    let address = listeners.iter().find_map(Listener::address);
    // Before anybody is told that it is ready, and may tell it to end.
    let ends = Ends::listen().map_err(|error| Failure::own(&error))?;
    let serving = gateway.serve(listeners);
    if let Some(address) = address {
        let is_root = starter.is_some();
        welcome::print(&welcome::Daemon {
            address,
            key: &key,
            key_file: &key_file,
            home,
            is_root,
        })?;
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tokio::select! {
        () = ends.wait() => {}
        () = idleness(&gateway, &control), if alone => info!("nothing is left to do"),
    }
    info!("the daemon ends; sandboxes go on");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    // Whoever follows would be waited for.
    journal.end_following();
    serving.end().await;
    // What is not done by then is done by the next daemon, which finds it begun.
    if tokio::time::timeout(LAST_WISHES, control.exit()).await.is_err() {
        warn!("not every sandbox did what it was made to do at the end of the daemon");
    }
    if tokio::time::timeout(LAST_WORK, control.close()).await.is_err() {
        warn!("some of what was being done is left to the next daemon");
    }
    journal.close();
    memory.close().await;
    let _ = std::fs::remove_file(folder.join("soma.sock"));
    telemetry.shutdown();
    Ok(())
}

/// How long a daemon that was killed may take to be gone.
const DYING: Duration = Duration::from_millis(500);

/// Opens what is written down about sandboxes, and says what is wrong with it.
fn journal(folder: &Path) -> Result<Journal, Failure> {
    let opened = Journal::open(&folder.join("events"), Bounds::default());
    let (journal, met) = opened.map_err(|error| Failure::own(&error))?;
    if met != journal::Opened::default() {
        warn!(
            cut = met.cut,
            damaged = met.damaged,
            "the last events are not whole: bytes were cut off, or lines are passed over"
        );
    }
    Ok(journal)
}

/// Takes the daemon's folder for this process alone.
fn take(folder: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| {
        Failure::new(SOMA_FAILED, format!("`{}` cannot be used: {error}", folder.display()))
    };
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(failed)?;
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join("lock"))
        .map_err(failed)?;
    let begun = Instant::now();
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            // One that was killed still has it, until all of it is gone.
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < DYING => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let message = "a daemon of this home runs already";
                return Err(Failure::new(SOMA_FAILED, message)
                    .hint("use that one, end it, or choose another home with --home"));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

async fn listeners(folder: &Path, settings: &Settings) -> Result<Vec<Listener>, Failure> {
    let mut listeners = Vec::new();
    if let Listen::At(address) = settings.listen.value {
        let listener = Listener::at_address(address).await;
        listeners.push(listener.map_err(|error| Failure::new(SOMA_FAILED, error.to_string()))?);
    }
    // Root may do everything here anyway, and started the daemon if its user is another.
    let users = vec![rustix::process::geteuid().as_raw(), 0];
    let socket = Listener::at_path(&folder.join("soma.sock"), users);
    listeners.push(socket.map_err(|error| Failure::own(&error))?);
    Ok(listeners)
}

/// Waits until there was nothing to do for a while.
async fn idleness(gateway: &Gateway, control: &Control) {
    loop {
        tokio::time::sleep(IDLE / 20).await;
        if control.census().is_empty() && gateway.idle() >= IDLE {
            return;
        }
    }
}

/// The signals that end the daemon.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Ends {
    /// From now on they wait to be heard, and end nothing by themselves.
    fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
