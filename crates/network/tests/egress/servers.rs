//! The world: a resolver whose answers are scripted, and servers on the host's loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, TXT};
use hickory_proto::rr::{RData, Record, RecordType};
use network::Configuration;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A resolver that knows some names.
pub(crate) struct Resolver {
    pub(crate) address: SocketAddr,
    shared: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    /// Answers in turn; the last one stays.
    addresses: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: Vec<(String, RecordType)>,
}

impl Resolver {
    /// One that knows these names at these addresses.
    pub(crate) fn new(names: &[(&str, &str)]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let shared = Arc::<Mutex<Script>>::default();
        let resolver = Self { address, shared: Arc::clone(&shared) };
        for (name, address) in names {
            resolver.know(name, &[&[address]]);
        }
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, asker)) = socket.recv_from(&mut buffer) {
                let reply = shared.lock().unwrap().answer(&buffer[..length]);
                let _ = socket.send_to(&reply, asker);
            }
        });
        resolver
    }

    /// Answers for a name, in turn; the last one stays.
    pub(crate) fn know(&self, name: &str, answers: &[&[&str]]) {
        let answers = answers
            .iter()
            .map(|addresses| addresses.iter().map(|address| address.parse().unwrap()).collect());
        self.shared.lock().unwrap().addresses.insert(name.to_owned(), answers.collect());
    }

    /// What it was asked.
    pub(crate) fn asked(&self) -> Vec<(String, RecordType)> {
        self.shared.lock().unwrap().asked.clone()
    }

    pub(crate) fn configuration(&self) -> Configuration {
        Configuration { resolvers: vec![self.address], ..Configuration::default() }
    }
}

impl Script {
    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut message = Message::from_vec(bytes).unwrap();
        message.metadata.message_type = MessageType::Response;
        message.edns = None;
        let query = message.queries[0].clone();
        let name = query.name().to_ascii().trim_end_matches('.').to_owned();
        self.asked.push((name.clone(), query.query_type()));
        match self.addresses.get_mut(&name) {
            None => message.metadata.response_code = ResponseCode::NXDomain,
            Some(answers) => {
                for address in &answers[0] {
                    let data = match (address, query.query_type()) {
                        (IpAddr::V4(address), RecordType::A) => RData::A(A(*address)),
                        (IpAddr::V6(address), RecordType::AAAA) => RData::AAAA(AAAA(*address)),
                        _ => continue,
                    };
                    message.add_answer(Record::from_rdata(query.name().clone(), 1, data));
                }
                if query.query_type() == RecordType::TXT {
                    let text = RData::TXT(TXT::new(vec!["hello".to_owned()]));
                    message.add_answer(Record::from_rdata(query.name().clone(), 60, text));
                }
                if query.query_type() == RecordType::A && answers.len() > 1 {
                    answers.remove(0);
                }
            }
        }
        message.to_vec().unwrap()
    }
}

/// Serves connections on loopback, each in a thread. Ends with the test's process.
pub(crate) fn serve(act: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let act = Arc::new(act);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = Arc::clone(&act);
            thread::spawn(move || act(stream));
        }
    });
    port
}

/// One request of HTTP/1, as it came: its head, without its body.
pub(crate) fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// A web server that says what it was asked.
pub(crate) fn echo_web() -> u16 {
    serve(answer_web)
}

/// Answers every request with its own head.
pub(crate) fn answer_web(stream: impl Read + Write) {
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_head(&mut reader) {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let extra = if path == "/away" {
            "HTTP/1.1 302 Found\r\nLocation: https://other.example/\r\n".to_owned()
        } else {
            let echo = head.lines().find(|line| line.to_lowercase().starts_with("authorization"));
            format!("HTTP/1.1 200 OK\r\nX-Echo: {}\r\n", echo.unwrap_or_default())
        };
        let length = head.len();
        let answer = format!("{extra}Content-Length: {length}\r\n\r\n{head}");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
        let _ = reader.get_mut().flush();
    }
}

/// An authority of the world's, and servers with its certificates.
pub(crate) struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// What a server for these names needs.
    pub(crate) fn config(&self, names: &[&str], protocols: &[&str]) -> Arc<ServerConfig> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|text| text.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A web server with TLS that says what it was asked.
    pub(crate) fn echo_web(&self, names: &[&str]) -> u16 {
        let config = self.config(names, &["http/1.1"]);
        serve(move |stream| {
            let server = ServerConnection::new(Arc::clone(&config)).unwrap();
            answer_web(StreamOwned::new(server, stream));
        })
    }
}
