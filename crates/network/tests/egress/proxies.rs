//! The operator's proxy, through which everything is dialled.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use domain::SecretText;
use network::Configuration;

use crate::servers::{Resolver, read_head, serve};
use crate::world::{World, rest};

const CUSTOM: &str =
    r#"{"mode":"custom","allow_domains":["a.example"],"allow_cidrs":["127.0.0.0/8"]}"#;

fn answer(text: &'static str) -> u16 {
    serve(move |mut stream| {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.write_all(&said).unwrap();
    })
}

/// Passes bytes on until both sides are done.
fn join(near: &TcpStream, far: &TcpStream) {
    let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    let up = thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut &*far, &mut &*near);
    let _ = near.shutdown(Shutdown::Write);
    up.join().unwrap();
}

/// A proxy that takes `CONNECT` and says what it was told; everything is at `port`.
fn http_proxy(port: u16) -> (u16, Receiver<String>) {
    let (told, heads) = channel();
    let told = std::sync::Mutex::new(told);
    let proxy = serve(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let head = read_head(&mut reader).unwrap();
        told.lock().unwrap().send(head).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").unwrap();
        join(&stream, &TcpStream::connect(("127.0.0.1", port)).unwrap());
    });
    (proxy, heads)
}

/// The same with SOCKS 5, which wants a login.
fn socks_proxy(port: u16) -> (u16, Receiver<String>) {
    let (told, targets) = channel();
    let told = std::sync::Mutex::new(told);
    let proxy = serve(move |mut stream| {
        let mut greeting = [0; 3];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting, [5, 1, 2]);
        stream.write_all(&[5, 2]).unwrap();
        let mut login = [0; 11];
        stream.read_exact(&mut login).unwrap();
        assert_eq!(&login, b"\x01\x04user\x04pass");
        stream.write_all(&[1, 0]).unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(request[..4], [5, 1, 0, 3], "by name");
        let mut name = vec![0; usize::from(request[4]) + 2];
        stream.read_exact(&mut name).unwrap();
        name.truncate(usize::from(request[4]));
        told.lock().unwrap().send(String::from_utf8(name).unwrap()).unwrap();
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        join(&stream, &TcpStream::connect(("127.0.0.1", port)).unwrap());
    });
    (proxy, targets)
}

fn world(resolver: &Resolver, proxy: &str) -> Option<World> {
    let proxy = Some(SecretText::new(proxy));
    World::new(CUSTOM, Configuration { proxy, ..resolver.configuration() })
}

fn talk(mut stream: TcpStream) -> String {
    stream.write_all(b"\0hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    rest(stream).unwrap()
}

#[test]
fn an_http_proxy_dials_by_name_with_a_login() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let (proxy, heads) = http_proxy(answer("far: "));
    let address = format!("http://user:pass@127.0.0.1:{proxy}");
    let Some(world) = world(&resolver, &address) else { return };
    assert_eq!(talk(world.dial_name("a.example", 4433)), "far: \0hello");
    let head = heads.recv().unwrap();
    assert!(head.starts_with("CONNECT a.example:4433 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    world.refused_name("other.example");
    assert!(heads.try_recv().is_err(), "what is refused does not come to the proxy");
}

#[test]
fn a_socks_proxy_may_be_the_only_one_to_know_a_name() {
    let resolver = Resolver::new(&[]);
    let (proxy, names) = socks_proxy(answer("far: "));
    let address = format!("socks5://user:pass@127.0.0.1:{proxy}");
    let Some(world) = world(&resolver, &address) else { return };
    assert_eq!(talk(world.dial_name("a.example", 4433)), "far: \0hello");
    assert_eq!(names.recv().unwrap(), "a.example");
}

#[test]
fn a_name_with_a_private_address_does_not_come_to_the_proxy() {
    let resolver = Resolver::new(&[("a.example", "10.0.0.1")]);
    let (proxy, heads) = http_proxy(answer("far: "));
    let Some(world) = world(&resolver, &format!("http://127.0.0.1:{proxy}")) else { return };
    world.refused_name("a.example");
    assert!(heads.try_recv().is_err());
}

#[test]
fn a_proxy_that_refuses_is_told_of() {
    let resolver = Resolver::new(&[("a.example", "127.0.0.1")]);
    let proxy = serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.1 407 No\r\n\r\n").unwrap();
    });
    let address = format!("http://user:hidden-password@127.0.0.1:{proxy}");
    let Some(world) = world(&resolver, &address) else { return };
    let mut stream = world.dial_name("a.example", 80);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
    let text = rest(stream).unwrap();
    assert!(text.starts_with("HTTP/1.1 502") && text.contains("407"), "{text}");
    let entry = world.logged(|entry| entry.port == 80);
    assert!(entry.allowed && entry.detail.as_deref().unwrap().contains("407"));
    assert!(!serde_json::to_string(&world.log()).unwrap().contains("hidden-password"));
}
