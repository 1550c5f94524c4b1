//! Connections by name and by address: what passes, what does not, and how soon that is known.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{NetworkEnds, NetworkEntry, NetworkProtocol, NetworkTransport, SandboxId};
use network::attach::ToEgress;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::servers::{Pki, Resolver, serve};
use crate::world::{PATIENCE, World, rest};

/// Says back what it is told, in other letters.
fn shout() -> u16 {
    serve(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes.to_ascii_uppercase()).unwrap();
    })
}

fn custom(names: &str) -> String {
    format!(r#"{{"mode":"custom","allow_domains":[{names}]}}"#)
}

#[test]
fn a_connection_by_name_passes_both_ways_and_is_written_down() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let world = World::new(&custom(r#""a.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let port = shout();
    let mut stream = world.dial_name("a.example", port);
    stream.write_all(b"hello there").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(stream).unwrap(), "HELLO THERE");
    let entry = world.logged(|entry| entry.port == port);
    assert!(entry.allowed);
    assert_eq!(entry.name.as_deref(), Some("a.example"));
    assert_eq!(entry.address, Some("127.0.0.1".parse().unwrap()));
    assert_eq!((entry.sent, entry.received), (11, 11));
    assert_eq!(entry.protocol, NetworkProtocol::Tcp);
}

#[test]
fn whose_a_connection_is_the_guest_is_asked_and_it_is_written_down() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let world = World::new(&custom(r#""a.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let times =
        world.with_guest(|NetworkEnds { transport, to, .. }| match (transport, to.port()) {
            (NetworkTransport::Udp, 53) => b"dig[9]".to_vec(),
            (NetworkTransport::Tcp, 4444) => b"\x1b[31mevil\n[8]".to_vec(),
            (NetworkTransport::Tcp, _) => b"curl[7]".to_vec(),
            other => panic!("{other:?}"),
        });
    let port = shout();
    // One that was over before the guest could answer is nobody's, so there are several.
    let is_curls = |entry: &NetworkEntry| entry.process.as_deref() == Some("curl[7]");
    let begun = Instant::now();
    while !world.log().iter().any(|entry| entry.port == port && is_curls(entry)) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", world.log());
        let mut stream = world.dial_name("a.example", port);
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(stream).unwrap(), "HELLO");
    }
    // What is refused is known too.
    assert!(rest(world.dial(Ipv4Addr::new(93, 184, 216, 34), 4444).unwrap()).is_err());
    let entry = world.logged(|entry| entry.port == 4444);
    assert_eq!((entry.allowed, entry.process.as_deref()), (false, Some("[31mevil[8]")));
    world.refused_name("b.example");
    let entry = world.logged(|entry| entry.name.as_deref() == Some("b.example"));
    assert_eq!((entry.allowed, entry.process.as_deref()), (false, Some("dig[9]")));
    // The guest is let go soon, so that the sandbox can be put to sleep.
    assert_eq!(times.recv_timeout(PATIENCE).unwrap(), world.id);
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let world = World::new(&custom(r#""a.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let port = serve(|mut stream| {
        stream.write_all(b"SSH-2.0-server\r\n").unwrap();
        let mut said = [0; 16];
        stream.read_exact(&mut said).unwrap();
        stream.write_all(&said).unwrap();
    });
    let mut stream = world.dial_name("a.example", port);
    let mut banner = [0; 16];
    stream.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"SSH-2.0-server\r\n");
    stream.write_all(b"SSH-2.0-client\r\n").unwrap();
    assert_eq!(rest(stream).unwrap(), "SSH-2.0-client\r\n");
}

#[test]
fn refusals_come_soon_and_say_why_in_what_is_spoken() {
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(r#"{"mode":"deny-all"}"#, resolver.configuration()) else {
        return;
    };
    let address = Ipv4Addr::new(93, 184, 216, 34);
    let begun = Instant::now();
    let stream = world.dial(address, 22).unwrap();
    assert_eq!(rest(stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    let mut stream = world.dial(address, 80).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x.example\r\n\r\n").unwrap();
    let text = rest(stream).unwrap();
    assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{text}");
    assert!(text.contains("93.184.216.34:80") && text.contains("mode: deny-all"), "{text}");

    let mut stream = world.dial(address, 443).unwrap();
    stream.write_all(&hello("x.example")).unwrap();
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).unwrap();
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49], "access denied");

    let entry = world.logged(|entry| entry.port == 443);
    assert_eq!((entry.allowed, entry.rule.as_str()), (false, "mode: deny-all"));
    assert_eq!(entry.address, Some(address.into()));
}

#[test]
fn addresses_that_are_not_public_are_refused_also_when_all_is_allowed() {
    let resolver = Resolver::new(&[]);
    let configuration = network::Configuration {
        grants: vec!["127.0.0.0/8".parse().unwrap()],
        ..resolver.configuration()
    };
    let Some(world) = World::new(r#"{"mode":"allow-all"}"#, configuration) else { return };
    for (address, rule) in [
        ([10, 0, 0, 1], "private address"),
        ([192, 168, 1, 1], "private address"),
        ([169, 254, 169, 253], "link-local address"),
        ([100, 100, 100, 200], "metadata address"),
        ([198, 18, 77, 77], "no name"),
    ] {
        let stream = world.dial(Ipv4Addr::from(address), 8080).unwrap();
        assert_eq!(rest(stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let address = Ipv4Addr::from(address).into();
        let entry = world.logged(|entry| entry.address == Some(address));
        assert_eq!((entry.allowed, entry.rule.as_str()), (false, rule), "{address}");
    }
}

#[test]
fn a_name_that_turns_to_a_private_address_is_refused() {
    let resolver = Resolver::new(&[]);
    resolver.know("a.example", &[&["127.0.0.1"], &["10.0.0.1"]]);
    let world = World::new(&custom(r#""a.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let port = shout();
    let address = world.address("a.example");
    // As if the answer's time were over.
    let configuration = network::Configuration {
        grants: vec!["127.0.0.0/8".parse().unwrap()],
        ..resolver.configuration()
    };
    let configuration = serde_json::to_string(&configuration).unwrap();
    world.tell(|number| ToEgress::Configure { number, configuration }, &[]).unwrap();
    let stream = world.dial(address, port).unwrap();
    assert!(rest(stream).is_err());
    let entry = world.logged(|entry| entry.port == port);
    assert_eq!((entry.allowed, entry.rule.as_str()), (false, "private address"));
    assert_eq!(entry.name.as_deref(), Some("a.example"));
}

#[test]
fn tls_passes_for_the_name_that_is_connected_to_and_no_other() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1"), ("b.example", "127.0.0.1")]);
    let world = World::new(&custom(r#""a.example","b.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let pki = Pki::new();
    let port = pki.echo_web(&["a.example", "b.example"]);
    let stream = world.dial_name("a.example", port);
    let answer = tls(stream, "a.example", &pki.pem(), "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
    let entry = world.logged(|entry| entry.port == port);
    assert_eq!((entry.allowed, entry.protocol), (true, NetworkProtocol::Tls));

    let without_name = hello("127.0.0.1");
    for (said, rule) in [(hello("b.example"), "other name"), (without_name, "no server name")] {
        let mut stream = world.dial_name("a.example", port);
        stream.write_all(&said).unwrap();
        let mut alert = [0; 7];
        stream.read_exact(&mut alert).unwrap();
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 49]);
        let entry = world.logged(|entry| entry.rule == rule);
        assert!(!entry.allowed);
    }
}

#[test]
fn a_granted_pair_is_reached_by_name_through_the_engine() {
    let other = SandboxId::from_random([9; 15]);
    let policy = format!(r#"{{"mode":"custom","sandboxes":{{"db":"{}"}}}}"#, other.as_str());
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(&policy, resolver.configuration()) else { return };
    let port = shout();
    for name in ["db", "db.sandbox.internal"] {
        let mut stream = world.dial_name(name, 5432);
        let target = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(world.answer_dial(&target), (other.clone(), 5432));
        drop(target);
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(stream).unwrap(), "HELLO");
    }
    world.refused_name("other.sandbox.internal");
    assert_eq!(resolver.asked(), []);
}

#[test]
fn connections_beyond_the_most_are_refused_until_others_end() {
    const MOST: usize = 1024;
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let world = World::new(&custom(r#""a.example""#), resolver.configuration());
    let Some(world) = world else { return };
    let port = shout();
    let address = world.address("a.example");
    let mut open: Vec<TcpStream> = (0..MOST).map(|_| world.dial(address, port).unwrap()).collect();
    let stream = world.dial(address, port).unwrap();
    assert_eq!(rest(stream).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let entry = world.logged(|entry| entry.rule == "connections");
    assert!(!entry.allowed);
    let mut one = open.pop().unwrap();
    one.write_all(b"hello").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(one).unwrap(), "HELLO");
    // Its place is free a little after its end was seen.
    let deadline = Instant::now() + PATIENCE;
    let is_served = || {
        let mut next = world.dial(address, port)?;
        next.write_all(b"hello")?;
        next.shutdown(Shutdown::Write)?;
        rest(next)
    };
    while !is_served().is_ok_and(|text| text == "HELLO") {
        assert!(Instant::now() < deadline, "the place stays taken");
    }
}

#[test]
fn the_metadata_service_answers_inside() {
    let resolver = Resolver::new(&[]);
    let Some(world) = World::new(r#"{"mode":"deny-all"}"#, resolver.configuration()) else {
        return;
    };
    let address = Ipv4Addr::new(169, 254, 169, 254);
    let ask = |request: String| {
        let mut stream = world.dial(address, 80).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        rest(stream).unwrap()
    };
    let put = "PUT /latest/api/token HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\
               X-metadata-token-ttl-seconds: 60\r\n\r\n";
    let answer = ask(put.to_owned());
    let token = answer.rsplit("\r\n").next().unwrap();
    let get = "GET /latest/meta-data/leap0/sandbox/id HTTP/1.1\r\nHost: m\r\nConnection: close\r\n";
    assert!(ask(format!("{get}\r\n")).starts_with("HTTP/1.1 401"));
    let answer = ask(format!("{get}X-metadata-token: {token}\r\n\r\n"));
    assert!(answer.ends_with(world.id.as_str()), "{answer}");
    let stream = world.dial(address, 8080).unwrap();
    assert!(rest(stream).is_err());
}

/// What a client says first.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let mut client = client(name, "");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// Asks something over TLS, and reads what is at hand of the answer.
pub(crate) fn tls(
    stream: TcpStream,
    name: &str,
    trusted: &str,
    request: &str,
) -> std::io::Result<String> {
    let mut stream = rustls::StreamOwned::new(client(name, trusted), stream);
    stream.write_all(request.as_bytes())?;
    let mut bytes = vec![0; 65536];
    let length = stream.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn client(name: &str, trusted: &str) -> ClientConnection {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}
