//! Dials for a sandbox: directly, through the operator's proxy, or by the engine into another
//! sandbox.
//!
//! Addresses of a name are checked each time that it is dialled, and only those that were are
//! dialled. A proxy is given the name, because it may be the only one to know it; where a resolver
//! knows the name too, its addresses are checked before.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use domain::NetworkPolicy;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::judge::{self, Verdict};
use super::proxy::Target;
use super::resolver::Outcome;
use super::sandbox::{Sandbox, Subject};
use super::settings::Settings;
use super::world::World;

/// The next address is tried when the last one is still silent.
const NEXT_AFTER: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);
const MOST_TRIED: usize = 8;

/// A connection to the outside.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    /// Whom it is to, where we dialled it ourselves.
    pub(crate) address: Option<IpAddr>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum DialFailure {
    /// The rules say so.
    Refused(Verdict),
    /// Allowed, and it did not come about.
    Failed(String),
}

/// Dials what a sandbox's connection is to, which the rules allowed.
pub(crate) async fn dial(
    world: &World,
    sandbox: &Sandbox,
    policy: &NetworkPolicy,
    subject: &Subject,
) -> Result<Dialled, DialFailure> {
    let attempt = async {
        match &subject.name {
            Some(name) => dial_name(world, sandbox, policy, name, subject.port).await,
            None => dial_address(world, subject).await,
        }
    };
    let late = || DialFailure::Failed("nobody answered in time".to_owned());
    let dialled = timeout(PATIENCE, attempt).await.map_err(|_| late())??;
    tune(&dialled.stream);
    Ok(dialled)
}

/// Peers that are gone are found out, and small messages are not held back.
pub(crate) fn tune(stream: &TcpStream) {
    let socket = stream.as_fd();
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_mins(2));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepcnt(socket, 4);
}

async fn dial_name(
    world: &World,
    sandbox: &Sandbox,
    policy: &NetworkPolicy,
    name: &str,
    port: u16,
) -> Result<Dialled, DialFailure> {
    if let Some((_, other)) = judge::pair(policy, name) {
        let descriptor = world.engine.dial(other, port).await.map_err(DialFailure::Failed)?;
        return Ok(Dialled { stream: adopt(descriptor).map_err(failed)?, address: None });
    }
    let settings = world.settings();
    let (resolved, _) = sandbox.resolve(&settings, &world.host_resolvers, name).await;
    let addresses = checked(&settings, policy, &resolved.addresses)?;
    if settings.has_proxy() {
        return by_proxy(world, &settings, Target::Name(name), port).await;
    }
    match resolved.outcome {
        Outcome::NoSuchName => Err(DialFailure::Failed(format!("there is no name `{name}`"))),
        Outcome::Failed => Err(DialFailure::Failed(format!("nobody could resolve `{name}`"))),
        Outcome::Found if addresses.is_empty() => {
            Err(DialFailure::Failed(format!("`{name}` has no address")))
        }
        Outcome::Found => first_of(&addresses, port).await.map_err(failed),
    }
}

async fn dial_address(world: &World, subject: &Subject) -> Result<Dialled, DialFailure> {
    let settings = world.settings();
    if settings.has_proxy() {
        let target = Target::Address(subject.address);
        return by_proxy(world, &settings, target, subject.port).await;
    }
    first_of(&[subject.address], subject.port).await.map_err(failed)
}

/// Those of a name's addresses that may be dialled, of both versions in turn. When it has some and
/// none may be, that is a refusal.
fn checked(
    settings: &Settings,
    policy: &NetworkPolicy,
    addresses: &[IpAddr],
) -> Result<Vec<IpAddr>, DialFailure> {
    let (mut good, mut refused) = ((Vec::new(), Vec::new()), None);
    for address in addresses {
        let verdict = settings.check(policy, *address);
        match address {
            _ if !verdict.allowed => refused = refused.or(Some(verdict)),
            IpAddr::V6(_) => good.0.push(*address),
            IpAddr::V4(_) => good.1.push(*address),
        }
    }
    if good.0.is_empty()
        && good.1.is_empty()
        && let Some(refused) = refused
    {
        return Err(DialFailure::Refused(refused));
    }
    let mut mixed = Vec::new();
    for place in 0..good.0.len().max(good.1.len()) {
        mixed.extend(good.0.get(place));
        mixed.extend(good.1.get(place));
    }
    mixed.truncate(MOST_TRIED);
    Ok(mixed)
}

/// The first of some addresses that answers, each given a little time before the next.
async fn first_of(addresses: &[IpAddr], port: u16) -> io::Result<Dialled> {
    let mut waiting = addresses.iter();
    let mut tried = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no address");
    loop {
        if let Some(address) = waiting.next() {
            let to = SocketAddr::new(*address, port);
            tried.push(async move { (to.ip(), TcpStream::connect(to).await) });
        } else if tried.is_empty() {
            return Err(last);
        }
        let next = async {
            if waiting.len() == 0 {
                std::future::pending::<()>().await;
            }
            sleep(NEXT_AFTER).await;
        };
        tokio::select! {
            Some((address, result)) = tried.next() => match result {
                Ok(stream) => return Ok(Dialled { stream, address: Some(address) }),
                Err(error) => last = error,
            },
            () = next => {}
        }
    }
}

async fn by_proxy(
    world: &World,
    settings: &Settings,
    target: Target<'_>,
    port: u16,
) -> Result<Dialled, DialFailure> {
    let Some(proxy) = &settings.proxy else {
        return Err(DialFailure::Failed("there is no proxy".to_owned()));
    };
    let resolvers = settings.resolvers(&world.host_resolvers);
    let addresses = proxy.addresses(&resolvers).await.map_err(failed)?;
    let proxied = first_of(&addresses, proxy.port).await;
    let mut stream = proxied.map_err(|error| failed(named("the proxy", &error)))?.stream;
    let through = proxy.connect(&mut stream, target, port).await;
    through.map_err(|error| failed(named("the proxy", &error)))?;
    Ok(Dialled { stream, address: None })
}

fn adopt(descriptor: OwnedFd) -> io::Result<TcpStream> {
    let stream = std::net::TcpStream::from(descriptor);
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

fn named(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn failed(error: io::Error) -> DialFailure {
    DialFailure::Failed(error.to_string())
}
