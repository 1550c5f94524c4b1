//! Asks the operator's resolvers, or the host's, for names.
//!
//! Each question goes out from a port of its own with a number of its own, and only an answer to
//! just that question counts. What an answer says is believed as far as it follows from the name
//! that was asked for. The host's own table of names, `/etc/hosts`, is not asked: it is about the
//! host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);
const MOST_SERVERS: usize = 3;
const MOST_ALIASES: usize = 16;
const MOST_ADDRESSES: usize = 32;
/// What fits through every network in one piece.
const PAYLOAD: u16 = 1232;
/// Addresses are asked for again after so many seconds, however long they may be remembered.
const LONGEST_KNOWN: u32 = 30;
const HOST_FILE: &str = "/etc/resolv.conf";
/// How often the host's file is looked at for a change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is known of a name.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) outcome: Outcome,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) until: Instant,
}

/// What came of asking for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The name exists; it may have no address.
    Found,
    /// There is no such name.
    NoSuchName,
    /// Nobody could say.
    Failed,
}

/// Asks for all addresses of a name.
pub(crate) async fn resolve(servers: &[SocketAddr], name: &str) -> Resolved {
    let failed = Resolved {
        outcome: Outcome::Failed,
        addresses: Vec::new(),
        until: Instant::now() + Duration::from_secs(1),
    };
    let Ok(name) = Name::from_ascii(format!("{name}.")) else { return failed };
    let (old, new) =
        tokio::join!(ask(servers, &name, RecordType::A), ask(servers, &name, RecordType::AAAA));
    let answers: Vec<Message> = [old, new].into_iter().filter_map(Result::ok).collect();
    let said = |code| answers.iter().any(|answer| answer.metadata.response_code == code);
    let (mut addresses, mut seconds) = (Vec::new(), LONGEST_KNOWN);
    for answer in &answers {
        let (found, time_to_live) = addresses_of(answer, &name);
        addresses.extend(found);
        seconds = seconds.min(time_to_live);
    }
    addresses.truncate(MOST_ADDRESSES);
    let outcome = match () {
        // Some servers deny the name when they are asked for the kind that it has not.
        () if !addresses.is_empty() => Outcome::Found,
        () if said(ResponseCode::NXDomain) => Outcome::NoSuchName,
        () if said(ResponseCode::NoError) => Outcome::Found,
        () => return failed,
    };
    let until = Instant::now() + Duration::from_secs(u64::from(seconds.max(1)));
    Resolved { outcome, addresses, until }
}

/// Asks one question of each server in turn, until one knows.
pub(crate) async fn ask(
    servers: &[SocketAddr],
    name: &Name,
    kind: RecordType,
) -> io::Result<Message> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no resolver to ask");
    let each = PATIENCE / u32::try_from(servers.len().clamp(1, MOST_SERVERS)).unwrap_or(1);
    for server in servers.iter().take(MOST_SERVERS) {
        match timeout(each, ask_one(*server, name, kind)).await {
            Ok(Ok(answer)) => match answer.metadata.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => return Ok(answer),
                code => last = io::Error::other(format!("the resolver says {code}")),
            },
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn ask_one(server: SocketAddr, name: &Name, kind: RecordType) -> io::Result<Message> {
    let mut number = [0; 2];
    getrandom::fill(&mut number).map_err(io::Error::other)?;
    let query = question(u16::from_ne_bytes(number), name, kind);
    let bytes = query.to_vec().map_err(io::Error::other)?;
    let here: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((here, 0)).await?;
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; 4096];
    let answer = loop {
        let length = socket.recv(&mut buffer).await?;
        if let Some(answer) = read_answer(&buffer[..length], &query) {
            break answer;
        }
    };
    if !answer.metadata.truncation {
        return Ok(answer);
    }
    ask_by_stream(server, &query, &bytes).await
}

async fn ask_by_stream(server: SocketAddr, query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_u16(u16::try_from(bytes.len()).map_err(io::Error::other)?).await?;
    stream.write_all(bytes).await?;
    let mut buffer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut buffer).await?;
    read_answer(&buffer, query)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no answer to the question"))
}

fn question(number: u16, name: &Name, kind: RecordType) -> Message {
    let mut query = Message::new(number, MessageType::Query, OpCode::Query);
    query.metadata.recursion_desired = true;
    query.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    query.set_edns(edns);
    query
}

/// The answer in some bytes, if it is one to this question.
fn read_answer(bytes: &[u8], query: &Message) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    let [asked] = query.queries.as_slice() else { return None };
    let [repeated] = answer.queries.as_slice() else { return None };
    let fits = answer.metadata.id == query.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && repeated.name() == asked.name()
        && repeated.query_type() == asked.query_type()
        && repeated.query_class() == asked.query_class();
    fits.then_some(answer)
}

/// The addresses that follow from a name, by its aliases, and for how many seconds.
fn addresses_of(answer: &Message, name: &Name) -> (Vec<IpAddr>, u32) {
    let (mut current, mut seconds) = (name.clone(), LONGEST_KNOWN);
    for _ in 0..MOST_ALIASES {
        let alias = answer.answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == current => Some((record.ttl, target.0.clone())),
            _ => None,
        });
        let Some((time_to_live, target)) = alias else { break };
        seconds = seconds.min(time_to_live);
        current = target;
    }
    let mut addresses = Vec::new();
    for record in answer.answers.iter().filter(|record| record.name == current) {
        let address = match &record.data {
            RData::A(address) => IpAddr::V4(address.0),
            RData::AAAA(address) => IpAddr::V6(address.0).to_canonical(),
            _ => continue,
        };
        seconds = seconds.min(record.ttl);
        addresses.push(address);
    }
    (addresses, seconds)
}

/// Reads some bytes as the answer to whatever they repeat, for `fuzz/`.
#[cfg(feature = "fuzzing")]
pub(super) fn read_any(bytes: &[u8]) {
    let Ok(mut query) = Message::from_vec(bytes) else { return };
    query.metadata.message_type = MessageType::Query;
    if let Some(answer) = read_answer(bytes, &query)
        && let Some(name) = answer.queries.first().map(|query| query.name().clone())
    {
        addresses_of(&answer, &name);
    }
}

/// Whom the host asks, read again when its file changes.
#[derive(Debug, Default)]
pub(crate) struct HostResolvers {
    known: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    looked: Instant,
    changed: Option<SystemTime>,
    servers: Vec<SocketAddr>,
}

impl HostResolvers {
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref()
            && known.looked.elapsed() < LOOK_AGAIN
        {
            return known.servers.clone();
        }
        let changed = std::fs::metadata(HOST_FILE).and_then(|file| file.modified()).ok();
        let servers = match known.take() {
            Some(known) if known.changed == changed => known.servers,
            _ => read_servers(&std::fs::read_to_string(HOST_FILE).unwrap_or_default()),
        };
        *known = Some(Known { looked: Instant::now(), changed, servers: servers.clone() });
        servers
    }
}

fn read_servers(text: &str) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() == Some("nameserver")
            && let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok())
        {
            servers.push(SocketAddr::new(address, 53));
        }
    }
    if servers.is_empty() {
        // As every resolver of C libraries does.
        servers.push((Ipv4Addr::LOCALHOST, 53).into());
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CNAME};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    #[test]
    fn only_what_follows_from_the_name_is_believed() {
        let mut answer = Message::new(1, MessageType::Response, OpCode::Query);
        let alias = RData::CNAME(CNAME(name("b.example.")));
        answer.add_answer(Record::from_rdata(name("a.example."), 60, alias));
        let good = RData::A(A::new(1, 1, 1, 1));
        answer.add_answer(Record::from_rdata(name("b.example."), 7, good));
        let bad = RData::A(A::new(6, 6, 6, 6));
        answer.add_answer(Record::from_rdata(name("c.example."), 60, bad));
        let (addresses, seconds) = addresses_of(&answer, &name("a.example."));
        assert_eq!(addresses, ["1.1.1.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(seconds, 7);
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let query = question(7, &name("a.example."), RecordType::A);
        let mut answer = query.clone();
        answer.metadata.message_type = MessageType::Response;
        assert!(read_answer(&answer.to_vec().unwrap(), &query).is_some());
        let mut other = answer.clone();
        other.metadata.id = 8;
        assert!(read_answer(&other.to_vec().unwrap(), &query).is_none());
        let mut other = answer.clone();
        other.queries[0].set_name(name("b.example."));
        assert!(read_answer(&other.to_vec().unwrap(), &query).is_none());
        assert!(read_answer(&query.to_vec().unwrap(), &query).is_none());
    }

    #[test]
    fn the_hosts_file_is_read_as_others_read_it() {
        let text =
            "# x\nsearch a b\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver ::1\n";
        let servers = read_servers(text);
        assert_eq!(servers, ["10.0.0.2:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(read_servers(""), ["127.0.0.1:53".parse().unwrap()]);
    }
}
