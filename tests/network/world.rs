//! A world for sandboxes to reach: a resolver that is told its answers and remembers its questions,
//! and servers, all on addresses of the loopback that the operator's configuration grants.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::support::Home;

/// Every server of a world has this address, and the operator grants it.
pub(super) const HERE: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);

/// A resolver, and how to ask it what it was asked.
pub(super) struct World {
    resolver: SocketAddr,
    answers: Arc<Mutex<BTreeMap<String, Vec<Ipv4Addr>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub(super) fn new() -> Self {
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        let resolver = socket.local_addr().unwrap();
        let (answers, asked) = <(Arc<Mutex<BTreeMap<_, _>>>, Arc<Mutex<Vec<_>>>)>::default();
        let (told, remembered) = (Arc::clone(&answers), Arc::clone(&asked));
        thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let Some((name, kind, end)) = question(&bytes[..length]) else { continue };
                remembered.lock().unwrap().push(name.clone());
                let found = told.lock().unwrap().get(&name).cloned();
                let _ = socket.send_to(&answer(&bytes[..end], kind, found.as_deref()), from);
            }
        });
        Self { resolver, answers, asked }
    }

    /// Lets a name have these addresses from now on.
    pub(super) fn name(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.answers.lock().unwrap().insert(name.to_owned(), addresses.to_vec());
    }

    /// Whether anybody asked for a name, or for one that ends like it.
    pub(super) fn was_asked(&self, name: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked.ends_with(name))
    }

    /// A daemon whose sandboxes reach this world, and whatever else is said.
    pub(super) fn daemon(&self, more: &str) -> Daemon {
        let home = Home::new();
        let text = format!(
            "[network]\ngrants = [\"127.77.0.0/16\"]\nresolvers = [\"{}\"]\n{more}\n",
            self.resolver
        );
        std::fs::write(home.path().join("config.toml"), text).unwrap();
        Daemon::of(home)
    }
}

/// The name that is asked for, the kind of answer that is wanted, and where the question ends.
fn question(bytes: &[u8]) -> Option<(String, u16, usize)> {
    let mut place = 12;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*bytes.get(place)?);
        place += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(bytes.get(place..place + length)?).to_lowercase());
        place += length;
    }
    let kind = u16::from_be_bytes([*bytes.get(place)?, *bytes.get(place + 1)?]);
    Some((labels.join("."), kind, place + 4))
}

fn answer(question: &[u8], kind: u16, found: Option<&[Ipv4Addr]>) -> Vec<u8> {
    const ADDRESS: u16 = 1;
    let addresses = if kind == ADDRESS { found.unwrap_or_default() } else { &[] };
    let code = if found.is_some() { 0x80 } else { 0x83 };
    let count = u8::try_from(addresses.len()).unwrap();
    let mut bytes = vec![question[0], question[1], 0x81, code, 0, 1, 0, count, 0, 0, 0, 0];
    bytes.extend(&question[12..]);
    for address in addresses {
        // The name of the question, an address of the internet, no time to live.
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        bytes.extend(address.octets());
    }
    bytes
}

/// A server that tells each client what it was sent: the request's lines as text, in plain HTTP.
pub(super) fn web() -> SocketAddr {
    serve(|stream| {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut head = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{head}",
            head.len()
        );
        let _ = stream.try_clone().unwrap().write_all(answer.as_bytes());
    })
}

/// A server that speaks first, as those for mail and remote shells do, and then says everything
/// back.
pub(super) fn first_to_speak() -> SocketAddr {
    serve(|mut stream| {
        let _ = stream.write_all(b"220 here\n");
        let mut bytes = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
    })
}

/// A server of git's own with one repository, which is called `work` and has the file `page`.
pub(super) fn git() -> (TempDir, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let git = |words: &[&str]| {
        let mut git = sys_linux::command::command("git");
        let who = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        git.current_dir(folder.path()).args(who).args(words);
        let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet", "work"]);
    std::fs::write(folder.path().join("work/page"), "here\n").unwrap();
    git(&["-C", "work", "add", "page"]);
    git(&["-C", "work", "commit", "--quiet", "--message=one"]);
    let base = format!("--base-path={}", folder.path().display());
    let address = serve(move |stream| {
        let mut git = sys_linux::command::command("git");
        let words = ["daemon", "--inetd", "--export-all", "--timeout=60", &base];
        let stream = OwnedFd::from(stream);
        let other = stream.try_clone().unwrap();
        let _ = git.args(words).stdin(stream).stdout(other).stderr(Stdio::null()).status();
    });
    (folder, address)
}

/// Serves each connection in a thread of its own.
pub(super) fn serve(act: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = act.clone();
            let _ = stream.set_read_timeout(Some(Duration::from_mins(1)));
            thread::spawn(move || act(stream));
        }
    });
    address
}
