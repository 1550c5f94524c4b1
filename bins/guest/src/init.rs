//! Process 1 of a sandbox.
//!
//! It serves requests, reaps whoever loses its parent, and goes down with the spawner: without
//! it no command can be started, and the supervisor outside is told by the exit code.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use guest_proto::version;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, wait};
use sys_linux::fdpass;
use sys_linux::namespace::{Namespaces, Side, fork, leave};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::code;
use crate::ports::whose;
use crate::process::Spawner;
use crate::server::{self, Peers};
use crate::spawner::{self, Readiness};
use crate::state::State;
use crate::sudo::{self, Door};

/// The abstract name of the guest's socket, in the sandbox's network namespace.
const SOCKET_NAME: &[u8] = b"soma-guest";

/// The exit code that says: the spawner died.
const SPAWNER_DIED: u8 = 70;

/// The program `soma-guest init`.
///
/// Descriptor 3 is a pipe that gets one byte once connections are taken. Descriptor 4 is the socket
/// to the spawner, and 5 that to the spawner of the reserve, where there is one.
pub(crate) fn run() -> io::Result<ExitCode> {
    crate::shut_off()?;
    let ready = fdpass::inherited(3)?;
    let spawners = Spawners { workload: fdpass::inherited(4)?, reserve: fdpass::inherited(5).ok() };
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(SOCKET_NAME)?)?;
    // Before anybody else in the sandbox could have taken the name.
    let whose = UnixListener::bind_addr(&SocketAddr::from_abstract_name(domain::WHOSE)?)?;
    let door = Door::open(None)?;
    rustix::io::write(&ready, &[1])?;
    drop(ready);
    let place = code::PLACE.into();
    let listeners = Listeners { requests: listener, whose: Some(whose), peers: Peers::Outside };
    serve(listeners, door, spawners, (version::PROTOCOL, place))
}

/// The program `soma-guest outside PATH`, for tests: the guest without a sandbox, with a spawner
/// of its own, on a socket in the file system that anybody may connect to. With `--protocol N`
/// after it, a guest that acts as that earlier one.
pub(crate) fn run_outside(arguments: &[OsString]) -> io::Result<ExitCode> {
    let (path, protocol) = match arguments {
        [path] => (path, Some(version::PROTOCOL)),
        [path, flag, number] if flag == "--protocol" => {
            (path, number.to_str().and_then(|number| number.parse().ok()))
        }
        _ => return Err(io::Error::other("expected the socket's path")),
    };
    let protocol = protocol.ok_or_else(|| io::Error::other("expected the protocol's number"))?;
    let (guest, spawner) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    match fork(Namespaces::NONE)? {
        Side::Child => {
            drop(guest);
            leave(i32::from(spawner::serve(spawner, Readiness::Ahead).is_err()))
        }
        Side::Parent(_) => drop(spawner),
    }
    let door = Door::open(Some(path))?;
    let spawners = Spawners { workload: guest, reserve: None };
    // Beside its socket, so that tests leave nothing behind.
    let place = Path::new(path).with_file_name("code");
    let requests = UnixListener::bind(path)?;
    let listeners = Listeners { requests, whose: None, peers: Peers::Anybody };
    serve(listeners, door, spawners, (protocol, place))
}

/// The guest's ends of the sockets to its spawners.
struct Spawners {
    workload: OwnedFd,
    reserve: Option<OwnedFd>,
}

/// Where the guest is spoken to, and by whom.
struct Listeners {
    requests: UnixListener,
    /// Only for questions whose a connection is; none where there is no network to ask about.
    whose: Option<UnixListener>,
    peers: Peers,
}

fn serve(
    Listeners { requests, whose, peers }: Listeners,
    door: Door,
    spawners: Spawners,
    (protocol, place): (u32, PathBuf),
) -> io::Result<ExitCode> {
    raise_open_files()?;
    requests.set_nonblocking(true)?;
    // One thread is plenty for moving bytes, and the smallest.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let requests = tokio::net::UnixListener::from_std(requests)?;
        let spawner = Spawner::new(spawners.workload, spawners.reserve)?;
        let state = Arc::new(State::new(spawner).acting_as(protocol).spooling_to(place));
        let children = signal(SignalKind::child())?;
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            error = server::serve(requests, peers, Arc::clone(&state)) => Err(error),
            error = tell_whose(whose, peers) => Err(error),
            error = sudo::serve(door, Arc::clone(&state)) => Err(error),
            () = reap(children) => Ok(ExitCode::FAILURE),
            () = state.spawner.gone() => Ok(ExitCode::from(SPAWNER_DIED)),
            _ = terminated.recv() => {
                state.processes.kill_all();
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

async fn tell_whose(listener: Option<UnixListener>, peers: Peers) -> io::Error {
    let Some(listener) = listener else { return std::future::pending().await };
    let listener =
        listener.set_nonblocking(true).and_then(|()| tokio::net::UnixListener::from_std(listener));
    match listener {
        Ok(listener) => whose::serve(listener, peers).await,
        Err(error) => error,
    }
}

/// Reaps every child that ended. Commands are not among them: their keepers reap those.
async fn reap(mut children: Signal) {
    // A child may have ended before the first signal could be heard.
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if children.recv().await.is_none() {
            return;
        }
    }
}

/// Each command takes four descriptors, so the usual soft limit of 1024 is soon reached. The
/// commands themselves get the limit of the spawner, which is left as it is.
fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
