//! Doors for `fuzz/`: the parts of the guest that read what strangers send, one function each.
//!
//! None of them may panic, hang or grow, whatever the bytes are.
//!
//! [`connection`] serves requests in earnest, removing files included: `scripts/fuzz` runs it
//! where there is nothing to lose, and it refuses to run elsewhere.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use connectrpc::ConnectRpcService;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;

use crate::keeper::{Order, Report};
use crate::process::Spawner;
use crate::spawner::Request;
use crate::state::State;
use crate::{ports, server, users};

pub use crate::http::parsers as http_parsers;

/// The file that says: nothing here is worth anything.
const CONFINED: &str = "/fuzz/confined";

/// How long a connection may take after its input is over: some streams have no end.
const LONGEST: Duration = Duration::from_millis(100);

struct Server {
    runtime: Runtime,
    services: ConnectRpcService,
    state: Arc<State>,
}

impl Server {
    fn start() -> Self {
        assert!(Path::new(CONFINED).exists(), "this removes files: run it by `scripts/fuzz`");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (socket, gone) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        // Nobody starts processes here: the answer to those who ask is an error.
        drop(gone);
        let entered = runtime.enter();
        let state = Arc::new(State::new(Spawner::new(socket, None).expect("the spawner's socket")));
        drop(entered);
        Self { services: server::services(&state), runtime, state }
    }
}

thread_local! {
    static SERVER: OnceCell<Server> = const { OnceCell::new() };
}

/// What somebody who is connected sends: any number of requests, or anything else.
pub fn connection(bytes: &[u8]) {
    SERVER.with(|server| {
        let server = server.get_or_init(Server::start);
        server.runtime.block_on(async {
            let (near, far) = tokio::io::duplex(64 << 10);
            let (mut answers, mut requests) = tokio::io::split(near);
            let talk = async {
                let _ = requests.write_all(bytes).await;
                let _ = requests.shutdown().await;
            };
            let listen = async {
                let mut buffer = [0; 4096];
                while matches!(answers.read(&mut buffer).await, Ok(1..)) {}
            };
            let serve = server::converse(far, server.services.clone(), Arc::clone(&server.state));
            let all = futures::future::join3(talk, listen, serve);
            let _ = tokio::time::timeout(LONGEST, all).await;
        });
    });
}

/// Texts that the guest reads: paths, users' names, the kernel's tables.
pub fn texts(bytes: &[u8]) {
    let user = somebody();
    if let Ok(path) = crate::paths::expand(OsStr::from_bytes(bytes), &user, None) {
        assert!(path.is_absolute(), "{}", path.display());
    }
    if let Ok(value) = http::HeaderValue::from_bytes(bytes) {
        let headers = http::HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        let _ = users::named_in(&headers);
    }
    ports::parse_table(bytes);
}

/// What keepers and the spawner are told, and tell.
pub fn messages(bytes: &[u8]) {
    let pair = || {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket")
    };
    let (near, far) = pair();
    let _ = rustix::net::send(&near, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = rustix::net::send(&near, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = Report::receive(&far);
    let _ = Order::receive(&far);

    // The first byte says how many descriptors come along and whether the length is a lie.
    let Some((kind, command)) = bytes.split_first() else { return };
    let (near, far) = pair();
    let mut body = File::from(memfd_create("command", MemfdFlags::CLOEXEC).expect("a file"));
    let _ = body.write_all(command);
    let descriptors = vec![body.as_fd(); usize::from(kind >> 4).max(1)];
    let lie = if kind & 1 == 1 { usize::MAX / 3 } else { 0 };
    let length = (command.len().wrapping_add(lie) as u64).to_le_bytes();
    let length = &length[..if kind & 2 == 2 { 3 } else { 8 }];
    let sent = sys_linux::fdpass::send(&near, length, &descriptors, SendFlags::DONTWAIT);
    if sent.is_ok() {
        let _ = Request::receive(&far);
    }
    // Nothing is left that the next one could take for its own.
    let _ = rustix::net::recv(&far, &mut [0; 8], RecvFlags::DONTWAIT);
}

/// What kernels say, which cells can write to.
pub fn frames(bytes: &[u8]) {
    crate::code::fuzzing::frames(bytes);
}

/// Expands a path of a caller's: absolute ones stay as they are, and all others lie beneath the
/// home, whatever is in them.
pub fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let user = somebody();
    let Ok(path) = crate::paths::expand(text, &user, None) else { return };
    assert!(path.is_absolute(), "{}", path.display());
    assert!(!text.contains('\0'));
    if !text.starts_with('/') {
        let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
        assert!(!climbs, "{}", path.display());
    }
}

fn somebody() -> users::User {
    users::User {
        name: "user".to_owned(),
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        home: "/home/user".into(),
        shell: "/bin/sh".into(),
    }
}
