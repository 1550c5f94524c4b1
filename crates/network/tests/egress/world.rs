//! One sandbox's network without a sandbox: its namespace, the program that serves it, and what an
//! engine would tell that.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use domain::{NetworkEnds, NetworkEntry, SandboxId};
use futures::StreamExt as _;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use network::attach::{self, FromEgress, Hello, ToEgress};
use network::egress::EgressError;
use network::{Authority, Configuration, Rules};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sys_linux::namespace::{Namespaces, separate};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Everything here answers sooner, or is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

/// A sandbox's network.
pub(crate) struct World {
    pub(crate) id: SandboxId,
    pub(crate) authority: Authority,
    folder: TempDir,
    inside: Sender<Work>,
    program: Mutex<Option<Program>>,
}

struct Program {
    engine: OwnedFd,
    number: u64,
    runtime: Option<Runtime>,
    running: Option<JoinHandle<Result<(), EgressError>>>,
}

impl World {
    /// A world with a policy, whose operator grants loopback; none, with the reason said, where no
    /// namespace can be made.
    pub(crate) fn new(policy: &str, configuration: Configuration) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: an ordinary user's test cannot make a namespace in a thread");
            return None;
        }
        let mut bits = [0; 15];
        getrandom::fill(&mut bits).unwrap();
        let id = SandboxId::from_random(bits);
        let authority = Authority::generate(&id).unwrap();
        let (inside, wishes) = channel::<Work>();
        thread::spawn(move || wishes.into_iter().for_each(|wish| wish()));
        let folder = tempfile::tempdir().unwrap();
        let world = Self { id, authority, folder, inside, program: Mutex::new(None) };
        world.within(|| {
            separate(Namespaces::NETWORK).unwrap();
            sys_linux::network::bring_loopback_up().unwrap();
            wiring::wire().unwrap();
        });
        world.start(policy, configuration);
        Some(world)
    }

    /// Starts the program, and tells it what an engine would.
    pub(crate) fn start(&self, policy: &str, mut configuration: Configuration) {
        let socket = self.folder.path().join("egress.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = link::listen_at(self.folder.path(), "egress.sock").unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let running = runtime.spawn(network::egress::run(listener, self.folder.path().to_owned()));
        let engine = self.connect();
        let hello = Hello::Engine { version: attach::version() };
        link::send(&engine, &hello, &[], SendFlags::empty()).unwrap();
        let program = Program { engine, number: 0, runtime: Some(runtime), running: Some(running) };
        *self.program.lock().unwrap() = Some(program);
        if configuration.grants.is_empty() {
            configuration.grants = vec!["127.0.0.0/8".parse().unwrap()];
        }
        let configuration = serde_json::to_string(&configuration).unwrap();
        self.tell(|number| ToEgress::Configure { number, configuration }, &[]).unwrap();
        self.attach(policy).unwrap();
    }

    pub(crate) fn detach(&self) {
        let sandbox = self.id.clone();
        self.tell(|number| ToEgress::Detach { number, sandbox, forget: false }, &[]).unwrap();
    }

    pub(crate) fn attach(&self, policy: &str) -> Result<(), String> {
        let (gate, resolver) = self.within(|| wiring::listen().unwrap());
        let process = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let (sandbox, rules) = (self.id.clone(), self.rules(policy));
        let descriptors = [gate.as_fd(), resolver.as_fd(), process.as_fd()];
        self.tell(|number| ToEgress::Attach { number, sandbox, rules }, &descriptors)
    }

    /// Ends the program, as if it were killed.
    pub(crate) fn stop(&self) {
        drop(self.program.lock().unwrap().take());
    }

    pub(crate) fn change(&self, policy: &str) -> Result<(), String> {
        let (sandbox, rules) = (self.id.clone(), self.rules(policy));
        self.tell(|number| ToEgress::Change { number, sandbox, rules }, &[])
    }

    /// Says something as the engine.
    pub(crate) fn tell(
        &self,
        message: impl FnOnce(u64) -> ToEgress,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let mut program = self.program.lock().unwrap();
        let program = program.as_mut().unwrap();
        program.number += 1;
        let message = message(program.number);
        link::send(&program.engine, &message, descriptors, SendFlags::empty()).unwrap();
        loop {
            let (answer, _) = link::receive(&program.engine, RecvFlags::empty()).unwrap().unwrap();
            return match answer {
                FromEgress::Done { .. } => Ok(()),
                FromEgress::Failed { reason, .. } => Err(reason),
                other @ FromEgress::Dial { .. } => panic!("{other:?}"),
                // No guest is here who could say whose a connection is.
                FromEgress::Whose { .. } => continue,
            };
        }
    }

    /// Answers the next wish for a connection into another sandbox.
    pub(crate) fn answer_dial(&self, socket: &TcpStream) -> (SandboxId, u16) {
        let engine = self.engine();
        loop {
            let (asked, _) = link::receive(&engine, RecvFlags::empty()).unwrap().unwrap();
            let FromEgress::Dial { number, sandbox, port } = asked else { continue };
            let answer = ToEgress::Dialled { number, failure: None };
            link::send(&engine, &answer, &[socket.as_fd()], SendFlags::empty()).unwrap();
            return (sandbox, port);
        }
    }

    /// From now on a guest says whose connections are. What comes out is each time it was reached
    /// and let go again.
    pub(crate) fn with_guest(&self, holder: fn(NetworkEnds) -> Vec<u8>) -> Receiver<SandboxId> {
        let (engine, (left, times)) = (self.engine(), channel());
        thread::spawn(move || {
            while let Ok(Some((asked, _))) = link::receive(&engine, RecvFlags::empty()) {
                let FromEgress::Whose { number, sandbox } = asked else { panic!("{asked:?}") };
                let (mut guest, there) = UnixStream::pair().unwrap();
                let answer = ToEgress::Dialled { number, failure: None };
                link::send(&engine, &answer, &[there.as_fd()], SendFlags::empty()).unwrap();
                drop(there);
                let mut question = [0; NetworkEnds::LENGTH];
                while guest.read_exact(&mut question).is_ok() {
                    let words = holder(NetworkEnds::from_bytes(question).unwrap());
                    let length = u8::try_from(words.len()).unwrap();
                    guest.write_all(&[&[length], words.as_slice()].concat()).unwrap();
                }
                let _ = left.send(sandbox);
            }
        });
        times
    }

    fn engine(&self) -> OwnedFd {
        let program = self.program.lock().unwrap();
        program.as_ref().unwrap().engine.try_clone().unwrap()
    }

    /// A connection to the program.
    pub(crate) fn connect(&self) -> OwnedFd {
        link::dial(self.folder.path(), "egress.sock").unwrap()
    }

    /// Where the sandbox's log is kept.
    pub(crate) fn log_file(&self) -> std::path::PathBuf {
        self.folder.path().join("network-log").join(format!("{}.jsonl", self.id.as_str()))
    }

    /// Waits until the program has ended by itself.
    pub(crate) fn wait_until_ended(&self) {
        let mut program = self.program.lock().unwrap();
        let program = program.as_mut().unwrap();
        let running = program.running.take().unwrap();
        let runtime = program.runtime.as_ref().unwrap();
        let ended = async { tokio::time::timeout(PATIENCE, running).await };
        runtime.block_on(ended).expect("it runs on").unwrap().unwrap();
    }

    /// The rules with a policy; something else as it is.
    pub(crate) fn rules(&self, policy: &str) -> String {
        let Ok(policy) = serde_json::from_str(policy) else { return policy.to_owned() };
        let mut rules = Rules::nothing(self.id.clone());
        rules.policy = policy;
        rules.authority = Some(self.authority.clone());
        serde_json::to_string(&rules).unwrap()
    }

    /// Does something in the namespace, and waits for that.
    pub(crate) fn within<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answers) = channel();
        self.inside.send(Box::new(move || drop(answer.send(act())))).unwrap();
        answers.recv().unwrap()
    }

    /// Connects from inside to an address.
    pub(crate) fn dial(&self, address: impl Into<IpAddr>, port: u16) -> io::Result<TcpStream> {
        let to = SocketAddr::new(address.into(), port);
        let stream = self.within(move || TcpStream::connect_timeout(&to, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Resolves a name inside and connects to it.
    pub(crate) fn dial_name(&self, name: &str, port: u16) -> TcpStream {
        let address = self.address(name);
        self.dial(address, port).unwrap()
    }

    /// The address that a name has inside.
    pub(crate) fn address(&self, name: &str) -> Ipv4Addr {
        let answer = self.ask(name, RecordType::A);
        let found = answer.answers.iter().find_map(|record| match &record.data {
            RData::A(address) => Some(address.0),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{name} has no address: {answer}"))
    }

    /// Asks the resolver from inside.
    pub(crate) fn ask(&self, name: &str, kind: RecordType) -> Message {
        let mut query = Message::new(77, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = true;
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(1232);
        query.set_edns(edns);
        let answer = self.ask_bytes(&query.to_vec().unwrap()).expect("no answer");
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.id, 77);
        answer
    }

    pub(crate) fn ask_bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let socket = self.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect("198.18.0.1:53").unwrap();
            socket
        });
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(bytes).unwrap();
        let mut buffer = vec![0; 4096];
        let length = socket.recv(&mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    }

    /// Asserts that a name does not exist inside.
    pub(crate) fn refused_name(&self, name: &str) {
        let begun = Instant::now();
        let answer = self.ask(name, RecordType::A);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
        assert!(answer.answers.is_empty());
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    /// What was written down, once there is an entry that fits.
    pub(crate) fn logged(&self, fits: impl Fn(&NetworkEntry) -> bool) -> NetworkEntry {
        let connection = self.connect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(async {
            let entries = network::follow_log(connection, self.id.clone(), 0, true);
            let mut entries = entries.await.unwrap();
            let find = async {
                while let Some(entry) = entries.next().await {
                    let entry = entry.unwrap();
                    if fits(&entry) {
                        return Some(entry);
                    }
                }
                None
            };
            tokio::time::timeout(PATIENCE, find).await
        });
        found.expect("no such entry in time").expect("the log ended")
    }

    /// Everything that is written down now.
    pub(crate) fn log(&self) -> Vec<NetworkEntry> {
        let connection = self.connect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let entries = network::follow_log(connection, self.id.clone(), 0, false);
            let entries: Vec<_> = entries.await.unwrap().collect().await;
            entries.into_iter().map(Result::unwrap).collect()
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

/// What a server says until it ends the connection, in text.
pub(crate) fn rest(mut stream: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        read?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
