//! Plain HTTP where names matter: every request is for the host that is connected to.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use crate::servers::{Resolver, echo_web, read_head, serve};
use crate::world::{World, rest};

const CUSTOM: &str = r#"{"mode":"custom","allow_domains":["a.example"]}"#;

fn world() -> Option<(World, Resolver)> {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    World::new(CUSTOM, resolver.configuration()).map(|world| (world, resolver))
}

/// Sends a request and reads one answer with a length.
fn ask(stream: &mut TcpStream, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader).expect("no answer");
    let length = head.lines().find_map(|line| {
        line.to_lowercase().strip_prefix("content-length: ").map(|text| text.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn every_request_of_a_connection_names_the_host_that_it_is_to() {
    let Some((world, _resolver)) = world() else { return };
    let port = echo_web();
    let mut stream = world.dial_name("a.example", port);
    let good = format!("GET /one HTTP/1.1\r\nHost: A.example:{port}\r\nX-CaSe: Kept\r\n\r\n");
    let (head, body) = ask(&mut stream, &good);
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(body.contains("X-CaSe: Kept"), "{body}");
    let (head, body) = ask(&mut stream, "GET /two HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert!(body.contains("other name") && body.contains("evil.example"), "{body}");
    let absolute = "GET http://a.example/three HTTP/1.1\r\nHost: a.example\r\n\r\n";
    let (head, body) = ask(&mut stream, absolute);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(body.starts_with("GET /three "), "{body}");
    for wrong in [
        "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
    ] {
        let mut stream = world.dial_name("a.example", port);
        stream.write_all(wrong.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        let status = String::from_utf8_lossy(&status).into_owned();
        assert!(status.ends_with(" 403") || status.ends_with(" 400"), "{wrong}: {status}");
    }
    let entry = world.logged(|entry| entry.rule == "other name");
    assert!(!entry.allowed);
    assert_eq!(entry.name.as_deref(), Some("a.example"));
    drop(stream);
    let entry = world.logged(|entry| entry.allowed && entry.port == port);
    assert!(entry.sent > 0 && entry.received > 0);
}

#[test]
fn http_2_without_tls_is_refused() {
    let Some((world, _resolver)) = world() else { return };
    let port = echo_web();
    let mut stream = world.dial_name("a.example", port);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert!(rest(stream).is_err());
    let entry = world.logged(|entry| entry.port == port);
    assert_eq!((entry.allowed, entry.rule.as_str()), (false, "plain HTTP/2"));
    let mut stream = world.dial_name("a.example", port);
    let upgrade = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let (_, body) = ask(&mut stream, upgrade);
    assert!(!body.to_lowercase().contains("h2c"), "{body}");
}

#[test]
fn what_a_connection_is_upgraded_to_passes() {
    let Some((world, _resolver)) = world() else { return };
    let port = serve(|stream| {
        let mut reader = BufReader::new(stream);
        read_head(&mut reader).unwrap();
        let stream = reader.get_mut();
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: echo\r\n\r\nfirst";
        stream.write_all(answer.as_bytes()).unwrap();
        let mut said = [0; 5];
        reader.read_exact(&mut said).unwrap();
        reader.get_mut().write_all(&said).unwrap();
    });
    let mut stream = world.dial_name("a.example", port);
    let request =
        "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(&stream);
    let head = read_head(&mut reader).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut first = [0; 5];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first");
    (&stream).write_all(b"again").unwrap();
    reader.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"again");
}
