//! Answers a sandbox's questions for names.
//!
//! What may not be reached does not exist, and nobody outside learns that it was asked for. What
//! may be reached is asked for outside and gets an address of [`Names`](super::names::Names):
//!
//! ```text
//! A                              the name's address inside, 5 to 30 seconds
//! AAAA, HTTPS, SVCB              nothing, when the name exists
//! PTR                            the name of such an address
//! TXT, MX, SRV, NS, CNAME, CAA   as it is outside
//! the rest                       REFUSED
//! ```

mod reply;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Instant;

use domain::{NetworkEnds, NetworkProtocol, NetworkTransport};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use super::judge::{self, Verdict};
use super::log::Attempt;
use super::names::{RESOLVER, is_of_names};
use super::resolver::{self, Outcome};
use super::sandbox::{Attachment, Sandbox};
use super::world::World;
use crate::attach::OWN;
use reply::Reply;

/// Questions of one sandbox that are answered at a time; more are dropped, and come again.
const MOST_AT_ONCE: usize = 256;
/// No question is longer.
const LARGEST_QUESTION: usize = 1232;
/// Records that are passed on from outside, and not more.
const MOST_RECORDS: usize = 64;
const PORT: u16 = 53;

/// Answers at the resolver's socket until the sandbox is detached.
pub(crate) async fn serve(
    world: Arc<World>,
    sandbox: Arc<Sandbox>,
    socket: UdpSocket,
    attachment: Attachment,
) {
    let (socket, room) = (Arc::new(socket), Arc::new(Semaphore::new(MOST_AT_ONCE)));
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        // One that is as long as the buffer may have been cut, and is too long in any case.
        let mut buffer = [0; LARGEST_QUESTION + 1];
        let Ok((length, asker)) = socket.try_recv_from(&mut buffer) else { continue };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        if length > LARGEST_QUESTION {
            continue;
        }
        let bytes = buffer[..length].to_vec();
        let (world, sandbox) = (Arc::clone(&world), Arc::clone(&sandbox));
        let socket = Arc::clone(&socket);
        attachment.spawn(async move {
            if let Some(reply) = answer(&world, &sandbox, &bytes, ends(asker)).await {
                // Whoever asked may be gone.
                let _ = socket.send_to(&reply.to_packet(), asker).await;
            }
            drop(place);
        });
    }
}

/// Answers over a connection, for answers that are too long for a packet.
pub(crate) async fn serve_stream(
    world: &World,
    sandbox: &Sandbox,
    stream: &mut TcpStream,
    ends: NetworkEnds,
) -> std::io::Result<()> {
    loop {
        let length = usize::from(stream.read_u16().await?);
        if length > LARGEST_QUESTION {
            return Ok(());
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await?;
        let Some(reply) = answer(world, sandbox, &bytes, Some(ends)).await else { return Ok(()) };
        let reply = reply.to_stream();
        stream.write_u16(u16::try_from(reply.len()).unwrap_or(0)).await?;
        stream.write_all(&reply).await?;
    }
}

/// Both ends of a question that came as a packet.
fn ends(asker: SocketAddr) -> Option<NetworkEnds> {
    let SocketAddr::V4(from) = asker else { return None };
    let to = SocketAddrV4::new(RESOLVER, PORT);
    Some(NetworkEnds { transport: NetworkTransport::Udp, from, to })
}

async fn answer(
    world: &World,
    sandbox: &Sandbox,
    bytes: &[u8],
    ends: Option<NetworkEnds>,
) -> Option<Reply> {
    let question = match read_question(bytes) {
        Ok(question) => Question { ends, ..question },
        Err(reply) => return reply.map(|reply| *reply),
    };
    let reply = Reply::to(&question.message);
    let kind = question.kind;
    Some(match kind {
        RecordType::PTR => reverse(sandbox, &question, reply),
        RecordType::A | RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => {
            by_name(world, sandbox, &question, reply).await
        }
        RecordType::TXT
        | RecordType::MX
        | RecordType::SRV
        | RecordType::NS
        | RecordType::CNAME
        | RecordType::CAA => pass_on(world, sandbox, &question, reply).await,
        _ => {
            let detail = format!("the resolver here does not answer for {kind}");
            let verdict = Verdict::refused("record type", detail);
            write(sandbox, &question, None, &verdict).await;
            reply.refused(ResponseCode::Refused, &verdict)
        }
    })
}

/// One question that makes sense.
pub(super) struct Question {
    message: Message,
    /// A name as [`judge::normal_name`] has it, or what was asked for instead.
    name: Result<String, String>,
    kind: RecordType,
    /// Both ends of what it came by, where they are known.
    ends: Option<NetworkEnds>,
}

/// The question in some bytes; otherwise what to answer, if anything.
pub(super) fn read_question(bytes: &[u8]) -> Result<Question, Option<Box<Reply>>> {
    let Ok(message) = Message::from_vec(bytes) else {
        return Err(Reply::to_nonsense(bytes).map(Box::new));
    };
    if message.metadata.message_type != MessageType::Query {
        return Err(None);
    }
    let no = |code| Err(Some(Box::new(Reply::to(&message).with(code))));
    if message.metadata.op_code != OpCode::Query {
        return no(ResponseCode::NotImp);
    }
    let [query] = message.queries.as_slice() else { return no(ResponseCode::FormErr) };
    if query.query_class() != DNSClass::IN {
        return no(ResponseCode::Refused);
    }
    if message.edns.as_ref().is_some_and(|edns| edns.version() != 0) {
        return no(ResponseCode::BADVERS);
    }
    let text: Vec<_> = query.name().iter().map(String::from_utf8_lossy).collect();
    let text = text.join(".");
    // A label with a dot in it would read as two.
    let is_plain = !query.name().iter().any(|label| label.contains(&b'.'));
    let name = judge::normal_name(&text).filter(|_| is_plain);
    let shown = || text.chars().filter(|letter| !letter.is_control()).take(253).collect();
    let (name, kind) = (name.ok_or_else(shown), query.query_type());
    Ok(Question { message, name, kind, ends: None })
}

/// The verdict on the name of a question.
fn judged(world: &World, sandbox: &Sandbox, question: &Question) -> (String, Verdict) {
    match &question.name {
        Ok(name) => {
            let policy = &sandbox.rules().rules.policy;
            (name.clone(), world.settings().name(policy, name, None))
        }
        Err(text) => (text.clone(), Verdict::refused("no name", "it is no name of a host")),
    }
}

async fn by_name(world: &World, sandbox: &Sandbox, question: &Question, reply: Reply) -> Reply {
    let (name, verdict) = judged(world, sandbox, question);
    let is_wanted = question.kind == RecordType::A;
    if is_localhost(&name) {
        return if is_wanted { reply.address(&name, Ipv4Addr::LOCALHOST, 30) } else { reply };
    }
    if name == sandbox.id.as_str() {
        // Its own name, as its host is called.
        return if is_wanted { reply.address(&name, Ipv4Addr::from(OWN), 30) } else { reply };
    }
    if !verdict.allowed {
        write(sandbox, question, None, &verdict).await;
        return reply.refused(ResponseCode::NXDomain, &verdict);
    }
    let rules = sandbox.rules();
    if judge::pair(&rules.rules.policy, &name).is_some() {
        return if is_wanted { reply.address(&name, sandbox.give(&name), 30) } else { reply };
    }
    let settings = world.settings();
    let (resolved, is_fresh) = sandbox.resolve(&settings, &world.host_resolvers, &name).await;
    let code = match resolved.outcome {
        Outcome::Found => ResponseCode::NoError,
        // The proxy may know names that nobody here does.
        _ if settings.has_proxy() => ResponseCode::NoError,
        Outcome::NoSuchName => ResponseCode::NXDomain,
        Outcome::Failed => ResponseCode::ServFail,
    };
    if code != ResponseCode::NoError {
        if is_fresh {
            let detail = Some(if code == ResponseCode::NXDomain {
                "there is no such name".to_owned()
            } else {
                "no resolver could be asked".to_owned()
            });
            write(sandbox, question, None, &Verdict { detail, ..verdict }).await;
        }
        return reply.with(code);
    }
    let checked = |address: &IpAddr| settings.check(&rules.rules.policy, *address);
    let mut verdicts = resolved.addresses.iter().map(checked);
    let refused = match verdicts.next() {
        Some(first) if !first.allowed && verdicts.all(|verdict| !verdict.allowed) => Some(first),
        _ => None,
    };
    if let Some(refused) = refused {
        write(sandbox, question, resolved.addresses.first().copied(), &refused).await;
        return reply.refused(ResponseCode::NXDomain, &refused);
    }
    if is_fresh {
        write(sandbox, question, resolved.addresses.first().copied(), &verdict).await;
    }
    if !is_wanted || resolved.addresses.is_empty() && !settings.has_proxy() {
        return reply;
    }
    let seconds = resolved.until.saturating_duration_since(Instant::now()).as_secs().clamp(5, 30);
    reply.address(&name, sandbox.give(&name), u32::try_from(seconds).unwrap_or(5))
}

/// The name of one of our own addresses.
fn reverse(sandbox: &Sandbox, question: &Question, mut reply: Reply) -> Reply {
    let asked = question.message.queries.first().map(|query| query.name().clone());
    let network = asked.as_ref().and_then(|name| name.parse_arpa_name().ok());
    let address = match network.map(|network| network.addr()) {
        Some(IpAddr::V4(address)) if is_of_names(address) => Some(address),
        _ => None,
    };
    let name = address.and_then(|address| sandbox.name_at(address));
    let name = name.and_then(|name| Name::from_ascii(format!("{name}.")).ok());
    match (asked, name) {
        (Some(asked), Some(name)) => {
            reply.add(Record::from_rdata(asked, 5, RData::PTR(PTR(name))));
            reply
        }
        _ => reply.with(ResponseCode::NXDomain),
    }
}

/// What a name that may be reached has beside addresses.
async fn pass_on(world: &World, sandbox: &Sandbox, question: &Question, mut reply: Reply) -> Reply {
    let (name, verdict) = judged(world, sandbox, question);
    write(sandbox, question, None, &verdict).await;
    if !verdict.allowed {
        return reply.refused(ResponseCode::NXDomain, &verdict);
    }
    if judge::pair(&sandbox.rules().rules.policy, &name).is_some() || is_localhost(&name) {
        return reply;
    }
    let Ok(asked) = Name::from_ascii(format!("{name}.")) else {
        return reply.with(ResponseCode::ServFail);
    };
    let servers = world.settings().resolvers(&world.host_resolvers);
    let Ok(answer) = resolver::ask(&servers, &asked, question.kind).await else {
        return reply.with(ResponseCode::ServFail);
    };
    let is_fitting =
        |record: &Record| [question.kind, RecordType::CNAME].contains(&record.record_type());
    for record in answer.answers.into_iter().filter(is_fitting).take(MOST_RECORDS) {
        reply.add(record);
    }
    reply.with(answer.metadata.response_code)
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Writes a question down before it is answered: whoever asked is known as long as it waits. Only
/// what is refused waits for that; who asks for what is allowed is known by the connection.
async fn write(sandbox: &Sandbox, question: &Question, address: Option<IpAddr>, verdict: &Verdict) {
    let mut attempt = Attempt::new(NetworkProtocol::Dns, PORT);
    attempt.name = Some(question.name.clone().unwrap_or_else(|text| text));
    attempt.address = address;
    if let Some(ends) = question.ends.filter(|_| !verdict.allowed) {
        attempt.whose = sandbox.whose.ask(ends);
        attempt.find_process().await;
    }
    sandbox.log.write(attempt, verdict);
}

/// An address as a record.
pub(super) fn address_record(name: Name, address: Ipv4Addr, seconds: u32) -> Record {
    Record::from_rdata(name, seconds, RData::A(A(address)))
}

/// Reads some bytes as a question and as an answer, for `fuzz/`.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_dns(bytes: &[u8]) {
    let reply = match read_question(bytes) {
        Ok(question) => {
            if let Ok(name) = &question.name {
                assert_eq!(judge::normal_name(name).as_ref(), Some(name));
            }
            Some(Reply::to(&question.message).address("a.example", Ipv4Addr::LOCALHOST, 5))
        }
        Err(reply) => reply.map(|reply| *reply),
    };
    if let Some(reply) = reply {
        assert!(reply.to_packet().len() <= LARGEST_QUESTION);
        reply.to_stream();
    }
    resolver::read_any(bytes);
}
