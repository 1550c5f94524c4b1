//! Where all connections of a sandbox arrive: judged, dialled, passed on.
//!
//! The address that an accepted socket has here is the one that the client meant. What a client
//! says first is looked at where names matter, without holding back what its server says.

mod inspect;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use domain::{NetworkEnds, NetworkProtocol, NetworkTransport};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::judge::Verdict;
use super::log::Attempt;
use super::names::{RESOLVER, is_of_names};
use super::refuse::{Why, refuse, reset};
use super::relay::{Counts, relay};
use super::sandbox::{Manner, Sandbox, Subject, judge_subject, manner};
use super::upstream::{DialFailure, Dialled, dial, tune};
use super::web::Web;
use super::whose::Asked;
use super::world::World;
use super::{dns, metadata, transform, web};
use crate::attach::METADATA;
use inspect::{Inspected, inspect};

/// Connections of one sandbox at a time.
const MOST_AT_ONCE: usize = 1024;
/// How long to wait when no descriptor is left.
const BREATH: Duration = Duration::from_millis(100);

/// Accepts until the sandbox is detached, or gets other sockets.
pub(crate) async fn serve(world: Arc<World>, sandbox: Arc<Sandbox>, listener: TcpListener) {
    let room = Arc::new(Semaphore::new(MOST_AT_ONCE));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let Ok(SocketAddr::V4(meant)) = stream.local_addr() else { continue };
        let SocketAddr::V4(from) = from else { continue };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            let detail = format!("{MOST_AT_ONCE} connections are open");
            let mut attempt = Attempt::new(NetworkProtocol::Tcp, meant.port());
            attempt.address = Some(IpAddr::V4(*meant.ip()));
            sandbox.log.write(attempt, &Verdict::refused("connections", detail));
            reset(&stream);
            continue;
        };
        let (world, sandbox) = (Arc::clone(&world), Arc::clone(&sandbox));
        let tasks = world.tasks.clone();
        tasks.spawn(async move {
            tune(&stream);
            connection(&world, &sandbox, stream, from, meant).await;
            drop(place);
        });
    }
}

async fn connection(
    world: &Arc<World>,
    sandbox: &Arc<Sandbox>,
    mut stream: TcpStream,
    from: SocketAddrV4,
    to: SocketAddrV4,
) {
    let (meant, port) = (*to.ip(), to.port());
    let mut attempt = Attempt::new(NetworkProtocol::Tcp, port);
    attempt.address = Some(IpAddr::V4(meant));
    if meant.octets() == METADATA && port == 80 {
        return metadata::serve(sandbox, stream).await;
    }
    let ends = NetworkEnds { transport: NetworkTransport::Tcp, from, to };
    if meant == RESOLVER && port == 53 {
        let _ = dns::serve_stream(world, sandbox, &mut stream, ends).await;
        return;
    }
    attempt.whose = sandbox.whose.ask(ends);
    let name = if is_of_names(meant) { sandbox.name_at(meant) } else { None };
    if let Some(verdict) = no_target(meant, name.is_some()) {
        return refused(sandbox, stream, Vec::new(), attempt, &verdict).await;
    }
    attempt.name.clone_from(&name);
    let subject = Subject { name, address: IpAddr::V4(meant), port };
    // Entered first and judged then: a change of the rules in between finds it entered.
    let how = manner(&sandbox.rules().rules.policy, &subject);
    let entered = sandbox.enter(subject.clone(), how);
    let rules = sandbox.rules();
    let verdict = judge_subject(&rules.rules.policy, &world.settings(), &subject);
    if !verdict.allowed {
        return refused(sandbox, stream, Vec::new(), attempt, &verdict).await;
    }
    if subject.name.is_some() {
        attempt.address = None;
    }
    let dialled = tokio::select! {
        dialled = dial(world, sandbox, &rules.rules.policy, &subject) => dialled,
        () = entered.cut.cancelled() => {
            reset(&stream);
            return;
        }
    };
    let server = match dialled {
        Ok(Dialled { stream: server, address }) => {
            attempt.address = address.or(attempt.address);
            entered.dialled(address, &world.settings());
            server
        }
        Err(DialFailure::Refused(verdict)) => {
            return refused(sandbox, stream, Vec::new(), attempt, &verdict).await;
        }
        Err(DialFailure::Failed(reason)) => {
            return failed(sandbox, stream, attempt, verdict, reason).await;
        }
    };
    let counts = Arc::new(Counts::default());
    let talk =
        Talk { world, sandbox, subject: &subject, how, counts: &counts, whose: &attempt.whose };
    let (log, is_cut) = tokio::select! {
        // What is to be cut says nothing first.
        biased;
        () = entered.cut.cancelled() => (End::default(), true),
        end = talk.run(stream, server) => (end, false),
        () = counts.idle() => (End::default(), false),
    };
    (attempt.sent, attempt.received) = counts.get();
    // Whoever reads the log when a connection is over finds it there, so this waits for nobody.
    attempt.process = attempt.whose.now();
    attempt.protocol = log.protocol.unwrap_or(attempt.protocol);
    let detail = if is_cut { Some("cut when the rules changed".to_owned()) } else { log.detail };
    match log.refused {
        Some(refused) => sandbox.log.write(attempt, &refused),
        None => sandbox.log.write(attempt, &Verdict { detail, ..verdict }),
    }
}

/// What is said between a client and its server.
struct Talk<'a> {
    world: &'a Arc<World>,
    sandbox: &'a Arc<Sandbox>,
    subject: &'a Subject,
    how: Manner,
    counts: &'a Arc<Counts>,
    whose: &'a Asked,
}

/// How it ended.
#[derive(Debug, Default)]
struct End {
    protocol: Option<NetworkProtocol>,
    detail: Option<String>,
    refused: Option<Verdict>,
}

impl Talk<'_> {
    async fn run(&self, mut client: TcpStream, mut server: TcpStream) -> End {
        if !self.how.is_inspected {
            return ended(None, relay(&client, &server, self.counts).await);
        }
        let policy = &self.sandbox.rules().rules.policy;
        let name = self.subject.name.as_deref();
        let inspected = inspect(&mut client, &mut server, policy, name, self.counts).await;
        match inspected {
            Err(error) => ended(None, Err(error)),
            Ok(Inspected::Refused { said, protocol, verdict }) => {
                let text = explanation(self.subject, &verdict);
                refuse(client, said, Why::Refused, &text).await;
                End { protocol: Some(protocol), refused: Some(verdict), detail: None }
            }
            Ok(Inspected::Tls { said, hello }) => {
                let wanted = hello.server_name.as_deref().and_then(super::judge::normal_name);
                if self.how.is_changed && name.is_some() && wanted.as_deref() == name {
                    let web = self.web(true);
                    // Few connections need so much room, and all would have it.
                    let work = Box::pin(transform::serve(web, client, said, server, &hello));
                    let result = work.await;
                    return ended(Some(NetworkProtocol::Http), result);
                }
                self.pass_on(client, said, server, Some(NetworkProtocol::Tls)).await
            }
            Ok(Inspected::Http { said }) => {
                let client = web::Client::new(client, said, Arc::clone(self.counts));
                let result = Box::pin(web::serve_plain(self.web(false), client, server)).await;
                let mut end = ended(Some(NetworkProtocol::Http), result);
                if self.how.is_changed && end.detail.is_none() {
                    end.detail = Some("in clear, so no header was injected".to_owned());
                }
                end
            }
            Ok(Inspected::Other { said }) => self.pass_on(client, said, server, None).await,
        }
    }

    fn web(&self, is_secure: bool) -> Web {
        Web {
            world: Arc::clone(self.world),
            sandbox: Arc::clone(self.sandbox),
            subject: self.subject.clone(),
            is_secure,
            counts: Arc::clone(self.counts),
            whose: self.whose.clone(),
        }
    }

    async fn pass_on(
        &self,
        client: TcpStream,
        said: Vec<u8>,
        mut server: TcpStream,
        protocol: Option<NetworkProtocol>,
    ) -> End {
        let result = async {
            server.write_all(&said).await?;
            let length = u64::try_from(said.len()).unwrap_or(0);
            self.counts.sent.fetch_add(length, std::sync::atomic::Ordering::Relaxed);
            drop(said);
            relay(&client, &server, self.counts).await
        };
        ended(protocol, result.await)
    }
}

fn ended(protocol: Option<NetworkProtocol>, result: std::io::Result<()>) -> End {
    let detail = result.err().map(|error| error.to_string());
    End { protocol, detail, refused: None }
}

/// Why an address is nobody's, if it is one of ours.
fn no_target(meant: Ipv4Addr, has_name: bool) -> Option<Verdict> {
    if is_of_names(meant) && !has_name {
        let detail = "the address stands for a name that is forgotten; resolve it again";
        return Some(Verdict::refused("no name", detail));
    }
    // The resolver, the sandbox itself and their neighbours.
    let is_ours = meant.octets()[..3] == RESOLVER.octets()[..3];
    (is_ours || meant.octets() == METADATA)
        .then(|| Verdict::refused("reserved address", "nothing answers at this port"))
}

async fn refused(
    sandbox: &Arc<Sandbox>,
    stream: TcpStream,
    said: Vec<u8>,
    mut attempt: Attempt,
    verdict: &Verdict,
) {
    attempt.find_process().await;
    let address = attempt.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let subject = Subject { name: attempt.name.clone(), address, port: attempt.port };
    sandbox.log.write(attempt, verdict);
    refuse(stream, said, Why::Refused, &explanation(&subject, verdict)).await;
}

async fn failed(
    sandbox: &Arc<Sandbox>,
    stream: TcpStream,
    mut attempt: Attempt,
    verdict: Verdict,
    reason: String,
) {
    attempt.find_process().await;
    let what = attempt.name.clone().or_else(|| attempt.address.map(|it| it.to_string()));
    let text = format!("soma: {} cannot be reached: {reason}\n", what.unwrap_or_default());
    sandbox.log.write(attempt, &Verdict { detail: Some(reason), ..verdict });
    refuse(stream, Vec::new(), Why::Failed, &text).await;
}

/// What a person is told who was refused.
pub(crate) fn explanation(subject: &Subject, verdict: &Verdict) -> String {
    let what = subject.name.clone().unwrap_or_else(|| subject.address.to_string());
    let detail = verdict.detail.as_deref().unwrap_or("the sandbox's network policy says so");
    format!(
        "soma: the connection to {what}:{} was refused\nrule: {}\n{detail}\n",
        subject.port, verdict.rule
    )
}
